// Another operator's implementation, run on parts of a call's memory: its call, made by hand.
#pragma once

#include <rlk/sdk/arguments.hpp>

#include "product.hpp"

#include <memory>

namespace rlk::products {

// Parts of a workspace, each aligned to 256 bytes. Without a base it only counts.
class Arena {
public:
  explicit Arena(void* base) : base_(static_cast<char*>(base)) {}
  template <class T = void>
  T* take(uint64_t bytes) {
    char* part = base_ != nullptr ? base_ + bytes_ : nullptr;
    bytes_ += simt::host::align_256(bytes);
    return reinterpret_cast<T*>(part);
  }
  uint64_t bytes() const { return bytes_; }

private:
  char* base_;
  uint64_t bytes_ = 0;
};

// Arguments are dense, of one or two dimensions; those that are not given are absent. Which one is meant is said by its
// name: call.input(&InnerCall<ops::Logp>::Named::ids, ...).
template <class Op>
class InnerCall {
public:
  using Named = sdk::Arguments<Op>;
  using Argument = const rlk_tensor* Named::*;

  explicit InnerCall(const typename Op::Params& params) : params_(params) {
    for (int32_t& alias : alias_) alias = -1;
    for (int64_t& symbol : symbols_) symbol = -1;
  }
  InnerCall(const InnerCall&) = delete;
  InnerCall& operator=(const InnerCall&) = delete;

  // columns below 0: one dimension.
  void input(Argument argument, const void* data, sdk::Dtype dtype, int64_t rows, int64_t columns = -1) {
    const uint32_t i = sdk::index_of(argument);
    inputs_[i] = &in_[i].set(const_cast<void*>(data), dtype, rows, columns);
  }
  void output(Argument argument, void* data, sdk::Dtype dtype, int64_t rows, int64_t columns = -1) {
    const uint32_t i = sdk::index_of(argument);
    outputs_[i] = &out_[i].set(data, dtype, rows, columns);
  }
  // The result takes the place of an input that was given.
  void output_in_place(Argument argument, Argument input) {
    const uint32_t i = sdk::index_of(argument), from = sdk::index_of(input);
    outputs_[i] = inputs_[from];
    alias_[i] = static_cast<int32_t>(from);
  }
  void symbol(int64_t Named::*symbol, int64_t value) { symbols_[sdk::index_of(symbol)] = value; }

  rlk_call_desc description() const {
    rlk_call_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.op_revision = Op::kRevision;
    desc.op = Op::kName;
    desc.params = &params_;
    desc.n_inputs = Op::kInputs;
    desc.n_outputs = Op::kOutputs;
    desc.inputs = inputs_;
    desc.outputs = outputs_;
    desc.output_alias = alias_;
    desc.symbols = symbols_;
    desc.n_symbols = Op::kSymbols;
    return desc;
  }
  rlk_run run(const sdk::Run& outer, rlk_data_error_record* errors, void* workspace, uint64_t bytes) const {
    rlk_run run{};
    run.struct_size = sizeof(run);
    run.tag = outer.tag();
    run.n_inputs = Op::kInputs;
    run.n_outputs = Op::kOutputs;
    run.inputs = inputs_;
    run.outputs = outputs_;
    run.host_inputs = hosts_;
    run.symbols = symbols_;
    run.n_symbols = Op::kSymbols;
    run.flags = outer.is_capturing() ? RLK_RUN_CAPTURING : 0;
    run.workspace = workspace;
    run.workspace_bytes = bytes;
    run.data_error_record = errors;
    return run;
  }

private:
  struct Slot {
    rlk_tensor tensor{};
    int64_t shape[2] = {0, 0}, strides[2] = {1, 1};
    rlk_tensor& set(void* data, sdk::Dtype dtype, int64_t rows, int64_t columns) {
      tensor.struct_size = sizeof(tensor);
      tensor.data = data;
      tensor.dtype = sdk::abi_of(dtype);
      const auto address = reinterpret_cast<uintptr_t>(data);
      tensor.alignment =
          data == nullptr ? 16 : static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256));
      tensor.ndim = columns < 0 ? 1 : 2;
      shape[0] = rows;
      shape[1] = columns;
      strides[0] = columns < 0 ? 1 : columns;
      tensor.shape = shape;
      tensor.strides = strides;
      return tensor;
    }
  };
  typename Op::Params params_;
  Slot in_[Op::kInputs], out_[Op::kOutputs];
  const rlk_tensor* inputs_[Op::kInputs] = {};
  const rlk_tensor* outputs_[Op::kOutputs] = {};
  const void* hosts_[Op::kInputs] = {};
  int32_t alias_[Op::kOutputs];
  int64_t symbols_[Op::kSymbols];
};

}  // namespace rlk::products
