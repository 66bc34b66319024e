// From the ABI's tensors to the kernels' pointers and strides, and what all four implementations answer alike.
#pragma once

#include <rlk/sdk/implementation.hpp>

#include <algorithm>
#include <atomic>

#include "core/cpu/simd/array.hpp"
#include "core/cpu/simd/target.hpp"

namespace rlk::cpu {

// The classes that the kernel of an operator belongs to.
template <class Op>
constexpr uint32_t kNumerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC |
                               (Op::kBatchInvariant ? RLK_NUMERICS_BATCH_INVARIANT : 0);

// The classes of one call: portable too, where the declaration specifies the arithmetic and only integers are asked
// for. Settings by which a call combines rows although the operator need not are told by `combines_rows`.
template <class Op>
uint32_t numerics_of(const sdk::Call<Op>& call, bool combines_rows = false) {
  bool integers_alone = Op::kPortable;
  for (uint32_t i = 0; i < Op::kOutputs; ++i) {
    const rlk_tensor* output = call.output(i);
    if (output == nullptr) continue;
    const sdk::Dtype dtype = sdk::dtype_of(*output);
    integers_alone &= dtype == sdk::Dtype::i64 || dtype == sdk::Dtype::i32 || dtype == sdk::Dtype::u8;
  }
  const uint32_t numerics = kNumerics<Op> | (integers_alone ? RLK_NUMERICS_PORTABLE : 0);
  return numerics & ~(combines_rows ? RLK_NUMERICS_BATCH_INVARIANT : 0u);
}

inline Dtype kernel_dtype(const rlk_tensor& tensor) {
  switch (sdk::dtype_of(tensor)) {
    case sdk::Dtype::f32:
      return Dtype::f32;
    case sdk::Dtype::bf16:
      return Dtype::bf16;
    case sdk::Dtype::f16:
      return Dtype::f16;
    case sdk::Dtype::f64:
      return Dtype::f64;
    default:
      break;
  }
  throw sdk::Error(RLK_INVALID_ARGUMENT, "a floating tensor has a dtype other than f32, bf16, f16 and f64");
}

inline bool is_i64(const rlk_tensor& tensor) {
  return sdk::dtype_of(tensor) == sdk::Dtype::i64;
}

// In elements; 0 for an absent tensor.
inline int64_t stride_of(const rlk_tensor* tensor, int32_t axis) {
  return tensor != nullptr ? tensor->strides[axis] : 0;
}

inline Array array_of(const rlk_tensor* tensor) {
  Array array;
  if (tensor == nullptr) return array;
  array.data = sdk::data_of(tensor);
  array.dtype = sdk::dtype_of(*tensor);
  array.ndim = tensor->ndim;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
    array.shape[axis] = tensor->shape[axis];
    array.strides[axis] = tensor->strides[axis];
  }
  return array;
}

// Bytes that a call reads and writes: what its time is estimated from.
template <class Op>
double bytes_of(const sdk::Call<Op>& call) {
  double bytes = 0;
  const auto add = [&bytes](const rlk_tensor* tensor) {
    if (tensor != nullptr) bytes += static_cast<double>(sdk::element_count(*tensor)) * tensor->dtype.bits / 8;
  };
  for (uint32_t i = 0; i < Op::kInputs; ++i) add(call.input(i));
  for (uint32_t i = 0; i < Op::kOutputs; ++i) add(call.output(i));
  return bytes;
}

// Everything is supported but `portable` where no arithmetic is specified, and `batch_invariant` where rows are
// combined. `bytes` and `operations` of the call estimate its time: at 30 GB/s and 100 operations per nanosecond, which
// is within a factor of a few on every server.
template <class Op>
sdk::Support support(const sdk::Call<Op>& call, uint64_t workspace_bytes, double bytes, double operations,
                     bool combines_rows = false) {
  const uint32_t numerics = numerics_of(call, combines_rows);
  if ((call.numerics() & ~numerics) != 0) {
    return sdk::Support::no("NUMERICS", Op::kPortable ? "demanded: portable; offered without floating outputs only"
                                        : Op::kBatchInvariant && !combines_rows
                                            ? "demanded: the same bits on every backend; offered: batch_invariant"
                                            : "demanded: more than deterministic; the call combines rows");
  }
  sdk::Support answer = sdk::Support::yes(variant_name(), numerics);
  answer.workspace_bound = workspace_bytes;
  answer.cost_us = 1.0 + std::max(bytes / 30e3, operations / 100e3);
  return answer;
}

// A plan that reads all sizes and strides from each execution: one serves every value of every symbol.
template <class Op>
class CpuPlan : public sdk::Plan {
public:
  CpuPlan(const typename Op::Params& params, ParallelFor parallel) : params_(params), parallel_(parallel) {
    flags = RLK_PLAN_SHAREABLE;
    dynamic_symbols = (uint64_t{1} << Op::kSymbols) - 1;
    workspace_bound = UINT64_MAX;  // grows with the symbols
    numerics = kNumerics<Op>;
    variant = variant_name();
  }

protected:
  const typename Op::Params& params() const { return params_; }
  const ParallelFor& parallel() const { return parallel_; }

private:
  const typename Op::Params params_;
  const ParallelFor parallel_;
};

// Keeps the error if the record holds none yet.
inline void report(const sdk::Run& run, const DataError& error) {
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
