// From the ABI's tensors to the kernels' arrays, and what all implementations answer alike.
#pragma once

#include <rlk/sdk/implementation.hpp>

#include <cstddef>
#include <memory>
#include <vector>

#include "core/cpu/simd/array.hpp"
#include "core/cpu/simd/target.hpp"

namespace rlk::cpu {

bool has_integer_outputs_alone(const rlk_call_desc& call);

// The classes of one call: portable too, where the declaration specifies the arithmetic and only integers are asked
// for.
template <class Op>
uint32_t numerics_of(const sdk::Call<Op>& call) {
  const bool integers_alone = Op::kPortable && has_integer_outputs_alone(call.desc());
  return RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC |
         (Op::combines_rows(call.params()) ? 0 : RLK_NUMERICS_BATCH_INVARIANT) |
         (integers_alone ? RLK_NUMERICS_PORTABLE : 0);
}

// An absent tensor is an empty Array.
void read_array(const rlk_tensor* tensor, Array& array);

// The call's own copies of what its kernel finds places by: ids, offsets, lengths. Another thread may change a caller's
// tensor while the kernel runs; what was checked and what is used are the same numbers here.
class Lookups {
public:
  // From now on the array is a copy, which lives as long as this. std::bad_alloc.
  void take(Array& array);

private:
  std::byte* room_for(size_t bytes);

  static constexpr size_t kFew = 2048;  // ids of a small call need no allocation
  alignas(int64_t) std::byte few_[kFew];
  size_t used_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> many_;
};

// Bytes that a call reads and writes: what its time is estimated from.
double bytes_of(const rlk_call_desc& call);

// The SDK's answer to what demands these classes of what offers those. `bytes` and `operations` of the call estimate
// its time: at 30 GB/s and 100 operations per nanosecond, which is within a factor of a few on every server.
sdk::Support support_of(uint32_t demanded, uint32_t offered, const char* why_not, uint64_t workspace_bytes,
                        double bytes, double operations);

// Everything is supported but `portable` where no arithmetic is specified, and `batch_invariant` where rows are
// combined.
template <class Op>
sdk::Support support(const sdk::Call<Op>& call, uint64_t workspace_bytes, double bytes, double operations) {
  const char* const why_not = Op::kPortable ? "demanded: portable; offered without floating outputs only"
                              : !Op::combines_rows(call.params())
                                  ? "demanded: the same bits on every backend; offered: batch_invariant"
                                  : "demanded: more than deterministic; the call combines rows";
  return support_of(call.numerics(), numerics_of(call), why_not, workspace_bytes, bytes, operations);
}

// Every value of every symbol, by the instruction set in use.
void serve_all(sdk::Plan& plan, uint32_t symbols);

// A plan that reads all sizes and strides from each execution: one serves every value of every symbol.
template <class Op>
class CpuPlan : public sdk::Plan {
public:
  CpuPlan(const typename Op::Params& params, ParallelFor parallel) : params_(params), parallel_(parallel) {
    serve_all(*this, Op::kSymbols);
  }

protected:
  const typename Op::Params& params() const { return params_; }
  const ParallelFor& parallel() const { return parallel_; }

private:
  const typename Op::Params params_;
  const ParallelFor parallel_;
};

// Keeps the error if the record holds none yet.
void report(const sdk::Run& run, const DataError& error);

}  // namespace rlk::cpu
