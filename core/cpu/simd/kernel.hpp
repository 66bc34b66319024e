// What every CPU kernel shares with its caller: dtypes, the parallel-for hook, the data error of a call.
//
// Common rules of the kernels in this folder. A kernel is a function of plain pointers, sizes and strides (in elements,
// any sign, 0 included); shapes and parameters have been validated, tensor *values* are not trusted. It is thread-safe,
// throws nothing but throw_no_scratch(), returns when the work is done, and writes every output element. Its bits do
// not depend on the number of threads or on how the hook cuts the ranges.
#pragma once

#include <rlk/sdk/data_error.hpp>
#include <rlk/sdk/dtype.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace rlk::cpu {

using Dtype = sdk::Dtype;

inline int64_t size_of(Dtype dtype) {
  return sdk::bytes_of(dtype);
}

// What arithmetic on a dtype accumulates in: acc(T) of the declarations.
inline Dtype accumulator(Dtype dtype) {
  return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

// Calls body over disjoint ranges that cover [0, n), possibly from several threads, and returns when all are done. Same
// signature as the host's parallel-for service. body must not throw.
struct ParallelFor {
  void* ctx;
  void (*run)(void* ctx, int64_t n, int64_t grain, void (*body)(void* user, int64_t begin, int64_t end), void* user);
  int64_t threads;  // a hint for the size of tasks; results do not depend on it
};

// Calls function(begin, end) through the hook.
template <typename Function>
void parallel_for(const ParallelFor& hook, int64_t n, int64_t grain, Function&& function) {
  if (n <= 0) return;
  if (n <= grain) return function(int64_t{0}, n);
  using F = std::remove_reference_t<Function>;
  const auto body = [](void* user, int64_t begin, int64_t end) { (*static_cast<F*>(user))(begin, end); };
  hook.run(hook.ctx, n, grain, body, const_cast<std::remove_const_t<F>*>(&function));
}

using sdk::DataError;
using enum sdk::DataErrorKind;

// The lowest row that any thread has seen in error. Only the row is kept: its kind and value follow from the row alone,
// so the caller can work them out again afterwards, and nothing is lost between two words.
class FirstBadRow {
public:
  void report(int64_t row) {
    int64_t seen = row_.load(std::memory_order_relaxed);
    while (row < seen && !row_.compare_exchange_weak(seen, row, std::memory_order_relaxed)) {
    }
  }
  bool any() const { return row() != kNone; }
  int64_t row() const { return row_.load(std::memory_order_relaxed); }

private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> row_{kNone};
};

}  // namespace rlk::cpu
