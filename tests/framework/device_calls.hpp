// A call of an operator on a plugin's simulated device, one line per argument, and the plugin's own device and stream.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "framework/loaded_plugin.hpp"

namespace rlk::test {

constexpr rlk_dtype kF32{RLK_DTYPE_FLOAT, 32, 1};
constexpr rlk_dtype kF16{RLK_DTYPE_FLOAT, 16, 1};
constexpr rlk_dtype kBf16{RLK_DTYPE_BFLOAT, 16, 1};
constexpr rlk_dtype kI64{RLK_DTYPE_INT, 64, 1};
constexpr rlk_dtype kI32{RLK_DTYPE_INT, 32, 1};
constexpr rlk_dtype kU8{RLK_DTYPE_UINT, 8, 1};

// A contiguous tensor in device memory.
struct Tensor {
  std::vector<int64_t> shape, strides;
  rlk_tensor tensor{};
  rlk_tensor described{};  // the same without memory, for query and plan
};

// Vendor: the simulated runtime's own calls, on device 0,
//   static void upload(void* to, const void* from, size_t bytes), download(...);  // done when they return
//   static void expect_nothing_left();                                           // of what the plugin made
template <class Vendor>
class CallFixture : public ::testing::Test {
protected:
  void SetUp() override {
    rlk_error error = no_error();
    ASSERT_EQ(plugin.api->device_open(plugin.instance, 0, &device, &error), RLK_OK) << error.text;
    ASSERT_EQ(plugin.api->stream->create(device, 0, &stream, &error), RLK_OK) << error.text;
  }
  void TearDown() override {
    EXPECT_EQ(plugin.api->stream->destroy(stream, nullptr), RLK_OK);
    for (void* memory : memory_)
      EXPECT_EQ(plugin.api->device->deallocate(device, RLK_MEMORY_DEVICE, memory, nullptr), RLK_OK);
    EXPECT_EQ(plugin.api->device_close(device, nullptr), RLK_OK);
    Vendor::expect_nothing_left();
  }

  void* allocate(uint64_t bytes) {
    void* memory = nullptr;
    rlk_error error = no_error();
    EXPECT_EQ(plugin.api->device->allocate(device, RLK_MEMORY_DEVICE, bytes, &memory, &error), RLK_OK) << error.text;
    memory_.push_back(memory);
    return memory;
  }

  template <class T>
  Tensor* tensor(rlk_dtype dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
    Tensor* made = tensor(dtype, std::move(shape));
    if (!values.empty()) Vendor::upload(made->tensor.data, values.data(), values.size() * sizeof(T));
    return made;
  }
  Tensor* tensor(rlk_dtype dtype, std::vector<int64_t> shape) {
    tensors_.push_back(std::make_unique<Tensor>());
    Tensor& made = *tensors_.back();
    made.shape = std::move(shape);
    made.strides.resize(made.shape.size());
    int64_t count = 1;
    for (size_t i = made.shape.size(); i-- > 0; count *= made.shape[i]) made.strides[i] = count;
    made.tensor = {sizeof(rlk_tensor),
                   256,
                   nullptr,
                   0,
                   made.shape.data(),
                   made.strides.data(),
                   static_cast<int32_t>(made.shape.size()),
                   dtype};
    made.described = made.tensor;
    if (count > 0) made.tensor.data = allocate(static_cast<uint64_t>(count) * dtype.bits / 8);
    return &made;
  }
  template <class T>
  std::vector<T> read(const Tensor* from) {
    std::vector<T> values(
        static_cast<size_t>(std::accumulate(from->shape.begin(), from->shape.end(), int64_t{1}, std::multiplies<>())));
    Vendor::download(values.data(), from->tensor.data, values.size() * sizeof(T));
    return values;
  }

  rlk_status synchronize(rlk_data_error* data_error = nullptr, rlk_error* error = nullptr) {
    return plugin.api->stream->synchronize(stream, UINT64_MAX, data_error, error);
  }

  Loaded plugin;
  rlk_plugin_device* device = nullptr;
  rlk_plugin_stream* stream = nullptr;

private:
  std::vector<void*> memory_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
};

// One operator's plan and its executions.
class Call {
public:
  Call(const Loaded& plugin, rlk_plugin_device* device, const char* op, const void* params, std::vector<Tensor*> inputs,
       std::vector<Tensor*> outputs, std::vector<int64_t> symbols)
      : implementation_(plugin.implementation(op)),
        device_(device),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)),
        symbols_(std::move(symbols)),
        aliases_(outputs_.size(), -1),
        host_inputs_(inputs_.size(), nullptr) {
    for (const Tensor* t : inputs_) {
      described_.push_back(t != nullptr ? &t->described : nullptr);
      arguments_.push_back(t != nullptr ? &t->tensor : nullptr);
    }
    for (const Tensor* t : outputs_) {
      described_.push_back(t != nullptr ? &t->described : nullptr);
      arguments_.push_back(t != nullptr ? &t->tensor : nullptr);
    }
    desc_.struct_size = sizeof(desc_);
    desc_.op_revision = 1;
    desc_.op = op;
    desc_.params = params;
    desc_.n_inputs = static_cast<uint32_t>(inputs_.size());
    desc_.n_outputs = static_cast<uint32_t>(outputs_.size());
    desc_.inputs = described_.data();
    desc_.outputs = described_.data() + inputs_.size();
    desc_.output_alias = aliases_.data();
    desc_.symbols = symbols_.data();
    desc_.n_symbols = static_cast<uint32_t>(symbols_.size());
    desc_.numerics = RLK_NUMERICS_TOLERANCE;
    run_.struct_size = sizeof(run_);
    run_.n_inputs = desc_.n_inputs;
    run_.n_outputs = desc_.n_outputs;
    run_.inputs = arguments_.data();
    run_.outputs = arguments_.data() + inputs_.size();
    run_.host_inputs = host_inputs_.data();
    run_.symbols = symbols_.data();
    run_.n_symbols = desc_.n_symbols;
  }
  ~Call() { destroy(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void destroy() {
    if (plan_ != nullptr) implementation_->plan_destroy(plan_, nullptr);
    plan_ = nullptr;
  }
  void set_capturing(bool capturing) { run_.flags = capturing ? RLK_RUN_CAPTURING : 0; }
  void host_input(uint32_t index, const void* values) { host_inputs_[index] = values; }

  rlk_support query() {
    rlk_support support{};
    support.struct_size = sizeof(support);
    rlk_error error = no_error();
    EXPECT_EQ(implementation_->query(implementation_, device_, &desc_, &support, &error), RLK_OK) << error.text;
    return support;
  }
  rlk_status plan(rlk_error* error) {
    rlk_plan_info info{};
    info.struct_size = sizeof(info);
    return implementation_->plan_create(implementation_, device_, &desc_, &plan_, &info, error);
  }
  rlk_status prepare(uint64_t* bytes, rlk_error* error, uint32_t tag = 1) {
    run_.tag = tag;
    run_.workspace = nullptr;
    run_.workspace_bytes = 0;
    return implementation_->plan_prepare(plan_, &run_, bytes, error);
  }
  rlk_status enqueue(rlk_plugin_stream* stream, void* workspace, uint64_t bytes, rlk_error* error) {
    run_.workspace = workspace;
    run_.workspace_bytes = bytes;
    return implementation_->plan_enqueue(plan_, stream, &run_, error);
  }

private:
  const rlk_implementation* implementation_;
  rlk_plugin_device* device_;
  std::vector<Tensor*> inputs_, outputs_;
  std::vector<int64_t> symbols_;
  std::vector<int32_t> aliases_;
  std::vector<const void*> host_inputs_;
  std::vector<const rlk_tensor*> described_, arguments_;
  rlk_call_desc desc_{};
  rlk_run run_{};
  rlk_plugin_plan* plan_ = nullptr;
};

}  // namespace rlk::test
