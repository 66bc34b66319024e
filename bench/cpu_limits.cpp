// What the machine can do: reading memory, and fused multiply-adds in registers. Both are rows of their own, and are
// measured again beside every other row.
#include <algorithm>
#include <array>
#include <chrono>

#include "bench/cpu_bench.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/cpu_limits.cpp"
#include <hwy/foreach_target.h>
#include "bench/limit_loops-inl.hpp"

#if HWY_ONCE
namespace rlk::bench {

HWY_EXPORT(read_all);
HWY_EXPORT(multiply_add);

namespace {

constexpr int64_t kReadColumns = 65536;  // 256 KiB
const int64_t kReadRows = 4 * cache_bytes() / (kReadColumns * 4);
constexpr int64_t kTasks = 16, kSteps = 100000;

void read_once() {
  static const Buffer buffer(kReadRows * kReadColumns);
  cpu::parallel_for(kPool, kReadRows, 4, [&](int64_t begin, int64_t end) {
    float sum = HWY_DYNAMIC_DISPATCH(read_all)(buffer.data() + begin * kReadColumns, (end - begin) * kReadColumns);
    benchmark::DoNotOptimize(sum);
  });
}

// Returns the operations done.
double multiply_add_once() {
  std::array<double, kTasks> flops{};
  cpu::parallel_for(kPool, kTasks, 1, [&](int64_t begin, int64_t end) {
    float sink = 0;
    for (int64_t i = begin; i < end; ++i) {
      flops[static_cast<size_t>(i)] = HWY_DYNAMIC_DISPATCH(multiply_add)(kSteps, &sink);
    }
    benchmark::DoNotOptimize(sink);
  });
  return flops[0] * kTasks;
}

// The median time of five calls, in seconds.
template <typename Function>
double median_time(const Function& function) {
  std::array<double, 5> seconds{};
  for (double& s : seconds) {
    const auto start = std::chrono::steady_clock::now();
    function();
    s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[2];
}

benchmark::Counter rate(double amount) {
  return {amount, benchmark::Counter::kIsIterationInvariantRate};
}

void limit_read(State& state) {
  read_once();
  for (auto _ : state) read_once();
  state.counters["GB/s"] = rate(static_cast<double>(kReadRows * kReadColumns) * 4e-9);
}

void limit_multiply_add(State& state) {
  double flops = 0;
  for (auto _ : state) flops = multiply_add_once();
  state.counters["GFLOP/s"] = rate(flops * 1e-9);
}

BENCHMARK(limit_read)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(limit_multiply_add)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

void set_bytes(State& state, int64_t bytes) {
  const double limit = static_cast<double>(kReadRows * kReadColumns) * 4.0 / median_time(read_once);
  state.counters["GB/s"] = rate(static_cast<double>(bytes) * 1e-9);
  state.counters["of_read"] = rate(static_cast<double>(bytes) / limit);
}

void set_flops(State& state, double flops) {
  double done = 0;
  const double seconds = median_time([&] { done = multiply_add_once(); });
  state.counters["GFLOP/s"] = rate(flops * 1e-9);
  state.counters["of_fma"] = rate(flops * seconds / done);
}

}  // namespace rlk::bench

BENCHMARK_MAIN();
#endif  // HWY_ONCE
