// What the machine can do: reading memory, and fused multiply-adds in registers. Both are rows of their own, and are
// measured again beside every other row.
#include <algorithm>
#include <array>
#include <chrono>

#include "bench/cpu_bench.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/cpu_limits.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace rlk::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sum of count floats, a multiple of eight vectors.
float read_all(const float* p, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, p + i));
    s1 = hn::Add(s1, hn::LoadU(d, p + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, p + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, p + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// steps * 10 multiply-adds of vectors in independent chains; returns the operations done. Each chain begins with
// another number: of equal chains a compiler makes one.
double multiply_add(int64_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 1e-3f);
  const auto from = [&](float value) HWY_ATTR { return hn::Set(d, value); };
  auto a0 = from(0.0f), a1 = from(0.1f), a2 = from(0.2f), a3 = from(0.3f), a4 = from(0.4f), a5 = from(0.5f);
  auto a6 = from(0.6f), a7 = from(0.7f), a8 = from(0.8f), a9 = from(0.9f);
  for (int64_t i = 0; i < steps; ++i) {
    a0 = hn::MulAdd(a0, x, y), a1 = hn::MulAdd(a1, x, y), a2 = hn::MulAdd(a2, x, y), a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y), a5 = hn::MulAdd(a5, x, y), a6 = hn::MulAdd(a6, x, y), a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y), a9 = hn::MulAdd(a9, x, y);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
                           hn::Add(hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)), hn::Add(a8, a9)));
  *sink += hn::GetLane(sum);
  return 2.0 * 10.0 * static_cast<double>(steps) * static_cast<double>(hn::Lanes(d));
}

}  // namespace rlk::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::bench {

HWY_EXPORT(read_all);
HWY_EXPORT(multiply_add);

namespace {

constexpr int64_t kReadRows = 512, kReadColumns = 65536;  // 128 MiB
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
  state.counters["GB/s"] = rate(kReadRows * kReadColumns * 4e-9);
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
  const double limit = kReadRows * kReadColumns * 4.0 / median_time(read_once);
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
