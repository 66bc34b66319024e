// What the operators share: reasons to decline, how tensors become kernel arguments, what plans hold.
#pragma once

#include <rlk/sdk/arguments.hpp>

#include "../args.h"
#include "../tiling.h"
#include "stream.hpp"

#include <algorithm>
#include <cstddef>

namespace rlk::simt::host {

static_assert(sizeof(simt::DataErrorRecord) == sizeof(rlk_data_error_record));
static_assert(offsetof(simt::DataErrorRecord, value) == offsetof(rlk_data_error_record, value));
static_assert(simt::kDataIdOutOfRange == RLK_DATA_ID_OUT_OF_RANGE &&
              simt::kDataNoFiniteLogit == RLK_DATA_NO_FINITE_LOGIT &&
              simt::kDataRowOutOfRange == RLK_DATA_ROW_OUT_OF_RANGE && simt::kDataBadSeqlens == RLK_DATA_BAD_SEQLENS &&
              simt::kDataBadSecondSeqlens == RLK_DATA_BAD_SECOND_SEQLENS);

constexpr double kLaunchUs = 2.5;  // what a launch adds to the estimate of a call's time
// With fewer blocks than multiprocessors the others have nothing to do: how much longer that takes than the estimate
// for a whole device.
inline double idle_factor(const Device& device, double blocks) {
  return std::max(static_cast<double>(device.multiprocessors()) / std::max(blocks, 1.0), 1.0);
}
constexpr double kLog2e = 1.4426950408889634074;

inline int64_t accumulator_bytes(sdk::Dtype dtype) {
  return dtype == sdk::Dtype::f64 ? 8 : 4;
}

inline int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
inline uint64_t align_256(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// Every operator takes the four floating dtypes.
inline sdk::Refusal refuse_dtype(const rlk_tensor* tensor, const char* which) {
  return sdk::refuse_dtype(tensor, which, {sdk::Dtype::f32, sdk::Dtype::bf16, sdk::Dtype::f16, sdk::Dtype::f64});
}

inline bool is_aligned(const void* pointer, int64_t stride_bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride_bytes % 16 == 0;
}

inline simt::DataErrorSink error_sink(const sdk::Run& run) {
  return {reinterpret_cast<simt::DataErrorRecord*>(run.data_error_record()), run.tag(), 0};
}

inline Stream& own(sdk::Stream& stream) {
  return static_cast<Stream&>(stream);
}

// A plan of kernels that get their arguments with each launch: any thread may execute it, and a graph may capture it.
class KernelPlan : public sdk::Plan {
protected:
  explicit KernelPlan(const Device& device) : place_(device.place()), start_(device.start()) {
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
  }
  const Place place_;
  const Start start_;  // of kernels that wait for those ahead of them
};

template <class Op>
class OperatorPlan : public KernelPlan {
protected:
  OperatorPlan(const Device& device, const sdk::Call<Op>& call) : KernelPlan(device), params_(call.params()) {}
  sdk::Arguments<Op> arguments_of(const sdk::Run& run) const { return sdk::arguments_of<Op>(run, params_); }

  const typename Op::Params params_;
};

// Gives parts of a call's workspace out, each aligned to 256 bytes.
class Workspace {
public:
  explicit Workspace(void* base) : at_(static_cast<char*>(base)) {}
  template <class T>
  T* take(uint64_t bytes) {
    T* part = reinterpret_cast<T*>(at_);
    at_ += align_256(bytes);
    return part;
  }

private:
  char* at_;
};

}  // namespace rlk::simt::host
