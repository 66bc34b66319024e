// The values of the inputs that a plan wants to read on the host: given by the caller, readable in place, or copied.
#include <cstring>

#include "core/declaration/error.hpp"
#include "core/declaration/overlap.hpp"
#include "core/dispatch/call/call.hpp"
#include "core/dispatch/device/host_layout.hpp"
#include "core/dispatch/device/runs.hpp"
#include "core/dispatch/trust/release.hpp"

namespace rlk::core {
namespace {

// What lies at the layout's places.
rlk_tensor on_host(rlk_tensor tensor, const HostLayout& layout) {
  tensor.strides = layout.strides();
  return tensor;
}

}  // namespace

HostInputs::~HostInputs() {
  for (void* memory : pinned_) {
    if (memory != nullptr) call_.stream.device().pinned.deallocate(memory, Fence(), nullptr);
  }
}

rlk_status HostInputs::read(uint64_t wanted, OpCounters& counters, rlk_error* error) {
  const bool unified = call_.stream.device().entry.has(RLK_DEVICE_UNIFIED_MEMORY);
  uint64_t from_device = 0;
  for (size_t i = 0; i < call_.inputs.size(); ++i) {
    const rlk_tensor* t = call_.inputs[i];
    if ((wanted >> i & 1) == 0 || t == nullptr) continue;
    const void* given =
        call_.options.host_inputs != nullptr && i < call_.n_host_inputs ? call_.options.host_inputs[i] : nullptr;
    if (given != nullptr || element_count(*t) == 0) {
      pointers_[i] = given;
    } else if (!unified) {
      from_device |= uint64_t{1} << i;
    } else if (is_contiguous(*t)) {
      pointers_[i] = reinterpret_cast<const void*>(address_of(*t));
    } else {
      gather(i, *t, reinterpret_cast<const char*>(address_of(*t)));
    }
  }
  if (from_device == 0) return RLK_OK;
  if (call_.capturing) {
    const auto first = static_cast<size_t>(__builtin_ctzll(from_device));
    return failf(error, RLK_CAPTURE_FORBIDS,
                 "%s: the host must read input '%s', which would wait for the stream while a graph is captured. Pass "
                 "its values in options.host_inputs",
                 call_.decl().name, call_.decl().inputs[first].name);
  }
  count(counters.host_copies);
  return copy_from_device(from_device, error);
}

rlk_status HostInputs::copy_from_device(uint64_t wanted, rlk_error* error) {
  DeviceState& device = call_.stream.device();
  for (size_t i = 0; i < call_.inputs.size(); ++i) {
    if ((wanted >> i & 1) == 0) continue;
    const rlk_tensor& t = *call_.inputs[i];
    const HostLayout layout = HostLayout::of_input(t);
    const ByteRange range = byte_range_of(on_host(t, layout));
    const auto* source = reinterpret_cast<const char*>(address_of(t));
    rlk_status status = device.pinned.allocate(*call_.stream.clock(), static_cast<uint64_t>(range.high - range.low),
                                               &pinned_[i], error);
    if (status == RLK_OK) {
      auto* first = static_cast<char*>(pinned_[i]) - range.low;
      status = layout.for_each([&](int64_t from, int64_t to, uint64_t bytes) {
        return call_of(device.api, "copy", device.api.stream->copy, call_.stream.handle(), first + to, source + from,
                       bytes, RLK_COPY_DEVICE_TO_HOST, error);
      });
    }
    if (status != RLK_OK) {
      call_.stream.wait_quietly(nullptr);  // earlier copies must not land in memory that is free again
      return status;
    }
  }
  if (const rlk_status status = call_.stream.wait_quietly(error); status != RLK_OK) return status;
  for (size_t i = 0; i < call_.inputs.size(); ++i) {
    if ((wanted >> i & 1) == 0) continue;
    const HostLayout layout = HostLayout::of_input(*call_.inputs[i]);
    const rlk_tensor t = on_host(*call_.inputs[i], layout);
    const auto* first = static_cast<const char*>(pinned_[i]) - byte_range_of(t).low;
    if (is_contiguous(t)) {
      pointers_[i] = first;
    } else {
      gather(i, t, first);
    }
  }
  return RLK_OK;
}

void HostInputs::gather(size_t input, const rlk_tensor& t, const char* first_element) {
  std::vector<char>& values = gathered_.emplace_back();
  values.resize(static_cast<size_t>(element_count(t)) * (t.dtype.bits / 8));
  size_t at = 0;
  for_each_run(t, [&](int64_t offset, uint64_t bytes) {
    std::memcpy(values.data() + at, first_element + offset, bytes);
    at += bytes;
    return RLK_OK;
  });
  pointers_[input] = values.data();
}

}  // namespace rlk::core
