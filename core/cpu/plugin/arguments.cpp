// What knows no operator: inline, and so once for each, it was half of the plugin's code.
#include "core/cpu/plugin/arguments.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/cpu/simd/past_caches.hpp"

namespace rlk::cpu {

void read_array(const rlk_tensor* tensor, Array& array) {
  if (tensor == nullptr) return;
  array.data = sdk::data_of(tensor);
  array.dtype = sdk::dtype_of(*tensor);
  array.ndim = tensor->ndim;
  auto bytes = static_cast<double>(size_of(array.dtype));
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
    array.shape[axis] = tensor->shape[axis];
    array.strides[axis] = tensor->strides[axis];
    bytes *= static_cast<double>(array.shape[axis]);
  }
  array.exceeds_caches = exceeds_caches(bytes);
}

std::byte* Lookups::room_for(size_t bytes) {
  if (bytes <= kFew - used_) {
    std::byte* const room = few_ + used_;
    used_ += (bytes + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
    used_ = std::min(used_, kFew);
    return room;
  }
  return many_.emplace_back(new std::byte[bytes]).get();
}

// What repeats along an axis (a stride of 0) is copied once.
void Lookups::take(Array& array) {
  if (!array.present()) return;
  const auto size = static_cast<size_t>(size_of(array.dtype));
  int64_t count = 1, strides[RLK_MAX_NDIM] = {};
  bool dense = true;
  for (int32_t axis = array.ndim - 1; axis >= 0; --axis) {
    if (array.strides[axis] == 0 || array.shape[axis] == 1) continue;
    dense = dense && array.strides[axis] == count;
    strides[axis] = count;
    count *= array.shape[axis];
  }
  std::byte* const own = room_for(static_cast<size_t>(count) * size);
  const auto* const theirs = static_cast<const std::byte*>(array.data);
  if (dense) {
    std::memcpy(own, theirs, static_cast<size_t>(count) * size);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, from = 0;
      for (int32_t axis = 0; axis < array.ndim; ++axis) {
        if (strides[axis] == 0) continue;
        from += rest / strides[axis] * array.strides[axis];
        rest %= strides[axis];
      }
      std::memcpy(own + static_cast<size_t>(i) * size, theirs + from * static_cast<int64_t>(size), size);
    }
  }
  array.data = own;
  std::copy(strides, strides + array.ndim, array.strides);
}

bool has_integer_outputs_alone(const rlk_call_desc& call) {
  return std::all_of(call.outputs, call.outputs + call.n_outputs, [](const rlk_tensor* output) {
    if (output == nullptr) return true;
    const sdk::Dtype dtype = sdk::dtype_of(*output);
    return dtype == sdk::Dtype::i64 || dtype == sdk::Dtype::i32 || dtype == sdk::Dtype::u8;
  });
}

double bytes_of(const rlk_call_desc& call) {
  double bytes = 0;
  const auto add = [&bytes](const rlk_tensor* tensor) {
    if (tensor != nullptr) bytes += static_cast<double>(sdk::element_count(*tensor)) * tensor->dtype.bits / 8;
  };
  std::for_each_n(call.inputs, call.n_inputs, add);
  std::for_each_n(call.outputs, call.n_outputs, add);
  return bytes;
}

sdk::Support support_of(uint32_t demanded, uint32_t offered, const char* why_not, uint64_t workspace_bytes,
                        double bytes, double operations) {
  if ((demanded & ~offered) != 0) return sdk::Support::no("NUMERICS", why_not);
  sdk::Support answer = sdk::Support::yes(variant_name(), offered);
  answer.workspace_bound = workspace_bytes;
  answer.cost_us = 1.0 + std::max(bytes / 30e3, operations / 100e3);
  return answer;
}

void serve_all(sdk::Plan& plan, uint32_t symbols) {
  plan.flags = RLK_PLAN_SHAREABLE;
  plan.dynamic_symbols = (uint64_t{1} << symbols) - 1;
  plan.workspace_bound = UINT64_MAX;  // grows with the symbols
  plan.variant = variant_name();
}

void report(const sdk::Run& run, const DataError& error) {
  rlk_data_error_record* record = run.data_error_record();
  if (error.kind == kNoDataError || record == nullptr) return;
  int32_t none = 0;
  std::atomic_ref<int32_t> state(record->state);
  if (!state.compare_exchange_strong(none, 1)) return;
  record->kind = error.kind;
  record->tag = run.tag();
  record->row = error.row;
  record->value = error.value;
}

}  // namespace rlk::cpu
