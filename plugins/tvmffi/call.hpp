// A call of a kernel: its arguments as tvm-ffi's values, and what it finds around it.
#pragma once

#include <rlk/sdk.hpp>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/tvmffi/answer.hpp"
#include "plugins/tvmffi/copies.hpp"

namespace rlk::tvmffi {
namespace {

Library& tvm() {
  static Library library;
  return library;
}

// A kernel that allocates does so outside of rlk's workspace, and inside of a captured graph: the plugin refuses that.
int refuse_allocation(DlTensor*, void** out, void* context, void (*set_error)(void*, const char*, const char*)) {
  *out = nullptr;
  set_error(context, "RuntimeError", "rlk gives kernels no memory: write into the outputs that are passed");
  return -1;
}

// The thread's stream and allocator of tvm-ffi, put back at the end.
class Surroundings {
public:
  Surroundings(DlDevice device, void* stream) : device_(device) {
    if (device.type != kDlCpu) tvm().set_stream(device.type, device.id, stream, &stream_);
    if (tvm().set_allocator != nullptr) tvm().set_allocator(&refuse_allocation, 0, &allocator_);
  }
  ~Surroundings() {
    if (device_.type != kDlCpu) tvm().set_stream(device_.type, device_.id, stream_, nullptr);
    if (tvm().set_allocator != nullptr) tvm().set_allocator(allocator_, 0, nullptr);
  }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

private:
  const DlDevice device_;
  void* stream_ = nullptr;
  Allocator allocator_ = nullptr;
};

std::string take_error() {
  void* raised = nullptr;
  tvm().take_error(&raised);
  if (raised == nullptr) return "an error without a text";
  const ErrorCell& cell = *behind<ErrorCell>(static_cast<Object*>(raised));
  std::string text =
      std::string(cell.kind.data, cell.kind.size) + ": " + std::string(cell.message.data, cell.message.size);
  tvm().release(raised);
  return text;
}

// tvm-ffi's Array of these values, which the caller releases.
Any made_list(std::vector<Any> items) {
  constexpr const char* kMaker = "ffi.Array";
  const Bytes name = {kMaker, std::strlen(kMaker)};
  void* maker = nullptr;
  if (tvm().get_global == nullptr || tvm().call == nullptr || tvm().get_global(&name, &maker) != 0 || maker == nullptr)
    throw sdk::Error(RLK_UNSUPPORTED, "this libtvm_ffi makes no lists; pip install -U apache-tvm-ffi");
  Any list = {kNone, 0, {0}};
  const int status = tvm().call(maker, items.data(), static_cast<int32_t>(items.size()), &list);
  tvm().release(maker);
  if (status != 0) throw sdk::Error(RLK_BACKEND_ERROR, take_error());
  return list;
}

// For a function of Tensor: an object for each tensor among the arguments, for as long as this is there.
class Objects {
public:
  Objects(bool is_wanted, std::vector<Any>* arguments) {
    if (!is_wanted) return;
    try {
      for (Any& argument : *arguments) {
        if (argument.type_index == kDlTensorPtr) replace(&argument);
      }
    } catch (...) {
      release();
      throw;
    }
  }
  ~Objects() { release(); }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;

private:
  void replace(Any* argument) {
    if (tvm().make_tensor == nullptr)
      throw sdk::Error(RLK_UNSUPPORTED, "this libtvm_ffi makes no tensors of DLPack 1; pip install -U apache-tvm-ffi");
    constexpr uint32_t kMajor = 1, kMinor = 0;
    auto managed = std::make_unique<DlManagedTensor>(DlManagedTensor{{kMajor, kMinor},
                                                                     nullptr,
                                                                     [](DlManagedTensor* self) { delete self; },
                                                                     0,
                                                                     *static_cast<DlTensor*>(argument->pointer)});
    objects_.push_back(nullptr);
    if (tvm().make_tensor(managed.get(), 0, 0, &objects_.back()) != 0)
      throw sdk::Error(RLK_BACKEND_ERROR, take_error());
    static_cast<void>(managed.release());  // the object's now
    argument->type_index = kTensor;
    argument->pointer = objects_.back();
  }
  void release() noexcept {
    for (void* object : objects_)
      if (object != nullptr) tvm().release(object);
  }
  std::vector<void*> objects_;
};

class Plan final : public sdk::Plan {
public:
  Plan(const Kernel& kernel, Function function, DlDevice device, const rlk_call_desc& desc)
      : kernel_(kernel), function_(function), device_(device), values_(values_of(*kernel.op, desc)) {
    flags = RLK_PLAN_SHAREABLE | (kernel.is_capturable ? RLK_PLAN_CAPTURABLE : 0u);
    for (uint32_t i = 0; i < kernel.op->n_symbols; ++i) {
      if (kernel.sizes.count(i) == 0) dynamic_symbols |= uint64_t{1} << i;
    }
    for (const auto& [symbol, rule] : kernel.sizes) {
      if (rule.of >= 0) dynamic_symbols &= ~(uint64_t{1} << rule.of);
    }
    numerics = kernel.numerics;
    variant = kernel.name;
    workspace_bound = kernel.workspace_bytes;
    if (!kernel.in_place.empty()) copies_.emplace(device.type);
    for (const Slot& slot : kernel.slots) {
      lists_.push_back({kNone, 0, {0}});
      if (slot.kind == Slot::Kind::list) lists_.back() = made_list(slot.items);
    }
  }
  ~Plan() override {
    for (const Any& list : lists_) {
      if (list.type_index >= kObjectBegin) tvm().release(list.object);
    }
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    std::vector<DlTensor> tensors;
    tensors.reserve(kernel_.slots.size());  // the arguments point into it
    std::vector<Any> arguments;
    for (const Slot& slot : kernel_.slots) arguments.push_back(argument(slot, run, stream.native(), &tensors));
    const Objects objects(kernel_.takes_objects, &arguments);
    Any result = {kNone, 0, {0}};
    const Surroundings surroundings(device_, stream.native());
    const int status = function_(nullptr, arguments.data(), static_cast<int32_t>(arguments.size()), &result);
    if (status != 0) throw sdk::Error(RLK_BACKEND_ERROR, kernel_.symbol + " raised " + take_error(), status, "tvm-ffi");
    if (result.type_index < kObjectBegin) return;
    tvm().release(result.object);
    throw sdk::Error(RLK_BACKEND_ERROR,
                     kernel_.symbol + " returned an object; expected None, and outputs written in place");
  }

private:
  Any argument(const Slot& slot, const sdk::Run& run, void* stream, std::vector<DlTensor>* tensors) const {
    switch (slot.kind) {
      case Slot::Kind::parameter:
        return values_[slot.index];
      case Slot::Kind::symbol: {
        Any size = {kInt, 0, {0}};
        size.i64 = run.symbol(slot.index);
        return size;
      }
      case Slot::Kind::constant: {
        Any constant = slot.constant;
        if (constant.type_index == kRawStr) constant.text = slot.text.c_str();
        return constant;
      }
      case Slot::Kind::list:
        return lists_[&slot - kernel_.slots.data()];
      case Slot::Kind::data_error_record: {
        if (run.data_error_record() == nullptr) return {kNone, 0, {0}};
        Any record = {kOpaquePtr, 0, {0}};
        record.pointer = run.data_error_record();
        return record;
      }
      case Slot::Kind::data_error_tag: {
        Any tag = {kInt, 0, {0}};
        tag.i64 = run.tag();
        return tag;
      }
      case Slot::Kind::workspace:
        return view({run.workspace(), device_, 1, {kDlUint, 8, 1}, workspace_shape_, workspace_strides_, 0}, tensors);
      default:
        break;
    }
    const rlk_tensor* given = slot.kind == Slot::Kind::input ? run.input(slot.index) : run.output(slot.index);
    if (slot.kind == Slot::Kind::input) given = written_over(slot.index, given, run, stream);
    if (given == nullptr) return {kNone, 0, {0}};
    // Many kernels look at data alone: byte_offset is 0.
    return view({sdk::data_of(given),
                 device_,
                 given->ndim,
                 {given->dtype.code, given->dtype.bits, given->dtype.lanes},
                 const_cast<int64_t*>(given->shape),
                 const_cast<int64_t*>(given->strides),
                 0},
                tensors);
  }

  // What the function reads and writes over is the output's memory: the input where the call is in place, else a copy.
  const rlk_tensor* written_over(uint32_t input, const rlk_tensor* given, const sdk::Run& run, void* stream) const {
    for (const auto& [output, over] : kernel_.in_place) {
      const rlk_tensor* to = run.output(output);
      if (over != input || to == nullptr || given == nullptr) continue;
      if (sdk::data_of(to) == sdk::data_of(given)) return given;
      size_t bytes = given->dtype.bits / 8;
      for (int32_t i = 0; i < given->ndim; ++i) bytes *= static_cast<size_t>(given->shape[i]);
      copies_->run(stream, sdk::data_of(to), sdk::data_of(given), bytes);
      return to;
    }
    return given;
  }

  static Any view(const DlTensor& tensor, std::vector<DlTensor>* tensors) {
    tensors->push_back(tensor);
    Any out = {kDlTensorPtr, 0, {0}};
    out.pointer = &tensors->back();
    return out;
  }

  const Kernel& kernel_;
  const Function function_;
  const DlDevice device_;
  const std::vector<Any> values_;
  // DLPack's pointers are to what may be written; no function does.
  std::optional<Copies> copies_;  // where the kernel writes over inputs
  std::vector<Any> lists_;        // by slot; None where it is no list
  mutable int64_t workspace_shape_[1] = {static_cast<int64_t>(kernel_.workspace_bytes)}, workspace_strides_[1] = {1};
};

}  // namespace
}  // namespace rlk::tvmffi
