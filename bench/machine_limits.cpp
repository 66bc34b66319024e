// The machine's limits with all threads, for programs that are not C++ (bench/cpu_torch.py): a shared library of four
// functions, with threads of its own and nothing of librlk. Each gives the best of several rounds, per second.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#endif

#include "core/cpu/simd/amx.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/machine_limits.cpp"
#include <hwy/foreach_target.h>

#include "bench/limit_loops-inl.hpp"

#if HWY_ONCE
namespace rlk::bench {

HWY_EXPORT(read_all);
HWY_EXPORT(copy_all);
HWY_EXPORT(multiply_add);

namespace {

constexpr int kRounds = 8;
constexpr int64_t kUnit = 1024;  // floats: vectors of every width, four at a time

// The shortest of kRounds in which every thread did work(thread), in seconds; the first warms up.
template <class Work>
double best_time(int64_t threads, const Work& work) {
  std::barrier<> line(threads);
  double best = 1e300;
  const auto run = [&](int64_t thread) {
    for (int round = 0; round <= kRounds; ++round) {
      line.arrive_and_wait();
      const auto start = std::chrono::steady_clock::now();
      work(thread);
      line.arrive_and_wait();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (thread == 0 && round > 0) best = std::min(best, seconds);
    }
  };
  std::vector<std::jthread> others;
  for (int64_t thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  return best;
}

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Floats = std::unique_ptr<float[], Free>;

// A stretch of each thread's own, first written by that thread.
class Stretches {
public:
  Stretches(int64_t threads, int64_t bytes) : each(std::max<int64_t>(1, bytes / 4 / threads / kUnit) * kUnit) {
    for (int64_t i = 0; i < threads; ++i) {
      of.emplace_back(static_cast<float*>(std::aligned_alloc(4096, static_cast<size_t>(each) * sizeof(float))));
    }
  }
  bool allocated() const {
    return std::all_of(of.begin(), of.end(), [](const Floats& p) { return p != nullptr; });
  }
  void fill(int64_t thread) { std::fill_n(at(thread), each, 1.0f); }
  float* at(int64_t thread) { return of[static_cast<size_t>(thread)].get(); }

  const int64_t each;  // floats
  std::vector<Floats> of;
};

// Keeps what was computed.
void keep(double value) {
  asm volatile("" : : "x"(value) : "memory");
}

// Operations a second of threads that each do loop() once, which returns how many that were.
template <class Loop>
double rate(int64_t threads, const Loop& loop) {
  std::vector<double> done(static_cast<size_t>(threads));
  const double seconds = best_time(threads, [&](int64_t thread) { done[static_cast<size_t>(thread)] = loop(); });
  return done[0] * static_cast<double>(threads) / seconds;
}

#if defined(__x86_64__) && defined(__linux__)

// 16 x 16 sums of 32 products each, four tiles of sums at a time, all in registers.
__attribute__((target("amx-tile,amx-bf16"))) double tile_products() {
  constexpr int64_t kSteps = 200000;
  struct alignas(64) {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < kSteps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 32 * kSteps;
}

// Ten chains of 16 sums of two products.
__attribute__((target("avx512f,avx512bf16"))) double pair_products() {
  constexpr int64_t kSteps = 1000000;
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
  __m512 sums[10];
  for (int k = 0; k < 10; ++k) sums[k] = _mm512_set1_ps(static_cast<float>(k));
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 10
    for (int k = 0; k < 10; ++k) sums[k] = _mm512_dpbf16_ps(sums[k], x, x);
  }
  for (int k = 1; k < 10; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
  keep(static_cast<double>(_mm512_cvtss_f32(sums[0])));
  return 10.0 * 2 * 32 * kSteps;
}

#endif

}  // namespace
}  // namespace rlk::bench

#define RLK_BENCH_API extern "C" __attribute__((visibility("default")))

// Bytes read; 0 when there is no such memory. bytes: of all threads together, several times the caches.
RLK_BENCH_API double rlk_limit_read(int64_t threads, int64_t bytes) {
  using namespace rlk::bench;  // NOLINT(google-build-using-namespace): a function of it with a C name
  Stretches from(threads, bytes);
  if (!from.allocated()) return 0;
  best_time(threads, [&](int64_t thread) { from.fill(thread); });
  const double seconds = best_time(threads, [&](int64_t thread) {
    keep(static_cast<double>(HWY_DYNAMIC_DISPATCH(read_all)(from.at(thread), from.each)));
  });
  return 4.0 * static_cast<double>(from.each * threads) / seconds;
}

// Bytes read and bytes written, together.
RLK_BENCH_API double rlk_limit_copy(int64_t threads, int64_t bytes) {
  using namespace rlk::bench;  // NOLINT(google-build-using-namespace): as above
  Stretches from(threads, bytes / 2), to(threads, bytes / 2);
  if (!from.allocated() || !to.allocated()) return 0;
  best_time(threads, [&](int64_t thread) { from.fill(thread), to.fill(thread); });
  const double seconds = best_time(threads, [&](int64_t thread) {
    HWY_DYNAMIC_DISPATCH(copy_all)(from.at(thread), from.each, to.at(thread));
  });
  return 8.0 * static_cast<double>(from.each * threads) / seconds;
}

// Operations on fp32, of fused multiply-adds two each.
RLK_BENCH_API double rlk_limit_fma_f32(int64_t threads) {
  using namespace rlk::bench;  // NOLINT(google-build-using-namespace): as above
  return rate(threads, [] {
    float sink = 0;
    const double done = HWY_DYNAMIC_DISPATCH(multiply_add)(1000000, &sink);
    keep(static_cast<double>(sink));
    return done;
  });
}

// Operations of products of bf16 that are added in fp32, by tiles or by pairs; 0 on a processor with neither.
RLK_BENCH_API double rlk_limit_products_bf16([[maybe_unused]] int64_t threads) {
#if defined(__x86_64__) && defined(__linux__)
  using namespace rlk::bench;  // NOLINT(google-build-using-namespace): as above
  if (rlk::cpu::has_amx()) return rate(threads, tile_products);
  if (__builtin_cpu_supports("avx512bf16")) return rate(threads, pair_products);
#endif
  return 0;
}
#endif  // HWY_ONCE
