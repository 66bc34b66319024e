// A driver that is a table of the tests' own, a device of any size where nothing is computed, and calls of operators on
// it: what do they decline, which kernels does an execution launch?
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "plugins/simt/args.h"
#include "plugins/simt/host/device.hpp"
#include "plugins/simt/host/stream.hpp"

namespace rlk::simt::host {

enum Attribute { kWidth, kMultiprocessors, kShared };
inline int device_has[3];
inline std::string device_arch;
inline std::vector<std::string> launched;
inline std::function<void(unsigned blocks, const void* arguments)> on_launch;
inline int64_t block_segments;  // of the last launch of a kernel of logp's segments

// A kernel is known by its name.
inline const char* name_of(FunctionHandle function) {
  return static_cast<const char*>(static_cast<const void*>(function));
}

inline Driver make_table() {
  Driver table;
  table.name = "Test";
  table.domain = "test";
  table.attributes.warp_size = kWidth;
  table.attributes.multiprocessors = kMultiprocessors;
  table.attributes.shared_bytes = kShared;
  table.device_attribute = [](int* value, int which, int) { return *value = device_has[which], 0; };
  table.device_current = [](int* device) { return *device = 0, 0; };
  table.device_set = [](int) { return 0; };
  table.profile = [](int) {
    Profile profile;
    profile.arch = device_arch;
    return profile;
  };
  table.image = [](const char* name, int) -> const void* { return name; };
  table.module_load = [](ModuleHandle*, const void*) { return 0; };
  table.module_unload = [](ModuleHandle) { return 0; };
  table.module_function = [](FunctionHandle* function, ModuleHandle, const char* name) {
    static std::set<std::string> names;
    const void* const kept = names.insert(name).first->c_str();
    return *function = static_cast<FunctionHandle>(const_cast<void*>(kept)), 0;
  };
  table.function_set_attribute = [](FunctionHandle, int, int bytes) { return bytes <= device_has[kShared] ? 0 : 1; };
  table.launch_kernel = [](FunctionHandle function, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned shared_bytes, StreamHandle, void** parameters, void**) {
    launched.push_back(name_of(function));
    if (on_launch) on_launch(blocks, parameters[0]);
    if (launched.back().find("plain") != std::string::npos) {
      block_segments = static_cast<const simt::LogpArgs*>(parameters[0])->block_segments;
    }
    return static_cast<int>(shared_bytes) <= device_has[kShared] ? 0 : 1;
  };
  table.fill_async = [](void*, unsigned char, size_t, StreamHandle) { return 0; };
  return table;
}

constexpr rlk_dtype kF32{RLK_DTYPE_FLOAT, 32, 1};
constexpr rlk_dtype kF64{RLK_DTYPE_FLOAT, 64, 1};
constexpr rlk_dtype kBf16{RLK_DTYPE_BFLOAT, 16, 1};
constexpr rlk_dtype kF16{RLK_DTYPE_FLOAT, 16, 1};
constexpr rlk_dtype kI64{RLK_DTYPE_INT, 64, 1};

// A contiguous tensor; no test looks at its memory.
struct Tensor {
  std::vector<int64_t> shape, strides;
  rlk_tensor tensor{};

  Tensor(rlk_dtype dtype, std::vector<int64_t> sizes) : shape(std::move(sizes)), strides(shape.size()) {
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
    alignas(256) static char memory[256];
    tensor = {
        sizeof(rlk_tensor), 256, memory, 0, shape.data(), strides.data(), static_cast<int32_t>(shape.size()), dtype};
  }
};

// A call of Op, or an execution of it.
template <class Op>
class Arranged {
public:
  Arranged(const typename Op::Params& params, std::vector<int64_t> symbols)
      : params_(params),
        symbols_(std::move(symbols)),
        inputs_(Op::kInputs),
        outputs_(Op::kOutputs),
        alias_(Op::kOutputs, -1) {}

  void input(uint32_t index, rlk_dtype dtype, std::vector<int64_t> shape) {
    inputs_[index] = std::make_unique<Tensor>(dtype, std::move(shape));
  }
  void output(uint32_t index, rlk_dtype dtype, std::vector<int64_t> shape) {
    outputs_[index] = std::make_unique<Tensor>(dtype, std::move(shape));
  }
  Tensor& input(uint32_t index) { return *inputs_[index]; }
  Tensor& output(uint32_t index) { return *outputs_[index]; }
  void set_alias(uint32_t output, int32_t input) { alias_[output] = input; }

  template <class Implementation>
  sdk::Support query(Device& device) {
    return Implementation::query(device, sdk::Call<Op>(description()));
  }
  // That an execution would ask for.
  template <class Implementation>
  uint64_t workspace_of(Device& device) {
    const std::unique_ptr<sdk::Plan> plan = Implementation::plan(device, sdk::Call<Op>(description()));
    const rlk_run run = execution();
    return plan->prepare(sdk::Run(run));
  }
  // Plans and enqueues; the kernels that were launched.
  template <class Implementation>
  std::vector<std::string> launch(Device& device) {
    const sdk::Call<Op> described(description());
    const std::unique_ptr<sdk::Plan> plan = Implementation::plan(device, described);
    sdk::detail::take_bound(Implementation::query(device, described), *plan);
    rlk_run run = execution();
    Stream stream(device, nullptr, false);
    launched.clear();
    // No test looks at this memory; the tensors within it have addresses.
    workspace_bytes = plan->prepare(sdk::Run(run));
    std::vector<char> workspace(workspace_bytes + 1);
    run.workspace = workspace.data();
    run.workspace_bytes = workspace_bytes;
    plan->enqueue(stream, sdk::Run(run));
    return launched;
  }

  uint64_t workspace_bytes = 0;  // that the last execution asked for

private:
  // Of what was described last.
  rlk_run execution() const {
    rlk_run run{};
    run.struct_size = sizeof(run);
    run.n_inputs = Op::kInputs;
    run.n_outputs = Op::kOutputs;
    run.inputs = input_pointers_.data();
    run.outputs = output_pointers_.data();
    run.symbols = symbols_.data();
    run.n_symbols = Op::kSymbols;
    return run;
  }
  const rlk_call_desc& description() {
    input_pointers_.clear();
    output_pointers_.clear();
    for (const auto& tensor : inputs_) input_pointers_.push_back(tensor != nullptr ? &tensor->tensor : nullptr);
    for (const auto& tensor : outputs_) output_pointers_.push_back(tensor != nullptr ? &tensor->tensor : nullptr);
    desc_.struct_size = sizeof(desc_);
    desc_.params = &params_;
    desc_.n_inputs = Op::kInputs;
    desc_.n_outputs = Op::kOutputs;
    desc_.inputs = input_pointers_.data();
    desc_.outputs = output_pointers_.data();
    desc_.output_alias = alias_.data();
    desc_.symbols = symbols_.data();
    desc_.n_symbols = Op::kSymbols;
    return desc_;
  }

  typename Op::Params params_;
  std::vector<int64_t> symbols_;
  std::vector<std::unique_ptr<Tensor>> inputs_, outputs_;
  std::vector<int32_t> alias_;
  std::vector<const rlk_tensor*> input_pointers_, output_pointers_;
  rlk_call_desc desc_{};
};

class OperatorTest : public testing::Test {
protected:
  void SetUp() override { set_device(132, 232448); }  // an H100
  void set_device(int multiprocessors, int shared_bytes) {
    device_has[kWidth] = 32;
    device_has[kMultiprocessors] = multiprocessors;
    device_has[kShared] = shared_bytes;
  }
};

}  // namespace rlk::simt::host
