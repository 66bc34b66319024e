// A runtime that has one plugin over the CPU's device and compares every call with the reference, and memory for calls
// with nothing readable right before and right behind every tensor.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/conformance/buffers.hpp"
#include "core/conformance/call.hpp"
#include "core/dispatch/call/dispatcher.hpp"
#include "loader/host/services.hpp"

namespace rlk::core {

class ShadowedRuntime {
public:
  explicit ShadowedRuntime(const rlk_plugin& plugin) {
    rlk_error error = {sizeof(rlk_error), 0, 0, {}, {}};
    PluginBinding binding;
    binding.id = binding.backend = "cpu";
    binding.built_in = true;
    binding.api = &plugin;
    EXPECT_EQ(plugin.create(loader::host_services(), &binding.instance, &error), RLK_OK) << error.text;
    rlk_device_properties properties{};
    properties.struct_size = sizeof(properties);
    EXPECT_EQ(plugin.device_describe(binding.instance, 0, &properties, &error), RLK_OK) << error.text;
    binding.devices.push_back(std::make_shared<PluginDevice>(binding.api, binding.instance, 0, properties));
    registry.publish({std::move(binding)}, {});
    Policy policy;
    const auto environment = [](const char* name) { return std::strcmp(name, "RLK_WATCH") == 0 ? "1" : nullptr; };
    EXPECT_EQ(Policy::make(environment, {"RLK_WATCH"}, {}, &policy, &error), RLK_OK) << error.text;
    dispatcher = std::make_unique<Dispatcher>(registry, std::move(policy), 64);
    DeviceState* device = nullptr;
    EXPECT_EQ(dispatcher->device("cpu", 0, &device, &error), RLK_OK) << error.text;
    EXPECT_EQ(Stream::create(*device, dispatcher->counters(), 0, &stream, &error), RLK_OK) << error.text;
  }

  // The call, until the stream has done it; what the stream said then is in `told`. Afterwards it is judged.
  rlk_status run(const conformance::ConcreteCall& call, std::span<const rlk_tensor* const> inputs,
                 std::span<const rlk_tensor* const> outputs) {
    told = RLK_OK;
    last = {sizeof(rlk_error), 0, 0, {}, {}};
    rlk_status status = dispatcher->call(*stream, *call.decl, call.params.data(), inputs, outputs, {}, &last);
    if (status == RLK_OK) told = status = dispatcher->synchronize(*stream, UINT64_MAX, &last);
    dispatcher->shadow_check().settle();
    return status;
  }
  ShadowStatistics statistics() const { return dispatcher->shadow_check().statistics(); }

  Registry registry;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<Stream> stream;
  rlk_status told = RLK_OK;
  rlk_error last{};
};

// One tensor's memory.
class GuardedBlock {
public:
  static constexpr uint64_t kBytes = uint64_t{1} << 21;

  GuardedBlock() : page_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))) {
    void* const memory = mmap(nullptr, kBytes + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    begin_ = static_cast<std::byte*>(memory) + page_;
    EXPECT_EQ(mprotect(begin_, kBytes, PROT_READ | PROT_WRITE), 0);
  }
  ~GuardedBlock() { munmap(begin_ - page_, kBytes + 2 * page_); }
  GuardedBlock(const GuardedBlock&) = delete;
  GuardedBlock& operator=(const GuardedBlock&) = delete;

  // So many bytes right behind the page before, or right before the page behind.
  std::byte* place(uint64_t bytes, bool at_end) { return at_end ? begin_ + (kBytes - bytes) : begin_; }

private:
  const uint64_t page_;
  std::byte* begin_;
};

// The tensors of a filled call, which lives longer, in such memory.
class GuardedCall {
public:
  // False: some tensor has no room.
  bool place(const conformance::ConcreteCall& call, bool at_end) {
    const conformance::Image image(call, 0x7f);
    const conformance::Descriptors tensors(call);
    tensors_.clear(), inputs_.clear(), outputs_.clear();
    tensors_.reserve(call.inputs.size() + call.outputs.size());
    size_t block = 0;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (!add(tensors.inputs()[i], call.inputs[i], image, image.input_at(i), block++, at_end, inputs_)) return false;
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const int32_t alias = call.output_alias[i];
      const size_t at = alias >= 0 ? static_cast<size_t>(alias) : block++;
      if (!add(tensors.outputs()[i], call.outputs[i], image, image.output_at(i), at, at_end, outputs_)) return false;
    }
    strides_.clear();
    for (rlk_tensor& tensor : tensors_) {
      strides_.emplace_back(tensor.strides, tensor.strides + tensor.ndim);
      tensor.strides = strides_.back().data();
    }
    return true;
  }
  std::span<const rlk_tensor* const> inputs() const { return inputs_; }
  std::span<const rlk_tensor* const> outputs() const { return outputs_; }

private:
  bool add(const rlk_tensor* tensor, const conformance::Argument& argument, const conformance::Image& image,
           uint64_t from, size_t block, bool at_end, std::vector<const rlk_tensor*>& list) {
    list.push_back(nullptr);
    if (tensor == nullptr) return true;
    list.back() = &tensors_.emplace_back(*tensor);
    if (from == conformance::Image::kNone) return true;
    const int64_t elements = argument.placement().extent + argument.shift;
    const auto bytes = static_cast<uint64_t>((elements * bits_of(argument.dtype) + 7) / 8);
    if (bytes > GuardedBlock::kBytes) return false;
    while (blocks_.size() <= block) blocks_.emplace_back();
    std::byte* const to = blocks_[block].place(bytes, at_end);
    std::memcpy(to, image.bytes() + from, bytes);
    rlk_tensor& placed = tensors_.back();
    placed.data = to;
    const uint64_t first = reinterpret_cast<uintptr_t>(to) + placed.byte_offset;
    placed.alignment = static_cast<uint32_t>(uint64_t{1} << std::min(std::countr_zero(first), 8));
    return true;
  }

  std::deque<GuardedBlock> blocks_;
  std::vector<rlk_tensor> tensors_;
  std::deque<std::vector<int64_t>> strides_;
  std::vector<const rlk_tensor*> inputs_, outputs_;
};

}  // namespace rlk::core
