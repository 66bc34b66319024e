// What the benchmarks of CPU kernels share: memory, the thread pool, and how a row's rate is told.
#pragma once

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "core/cpu/simd/operator.hpp"
#include "core/cpu/simd/past_caches.hpp"
#include "core/cpu/tbb_parallel.hpp"

namespace rlk::bench {

using cpu::Dtype;
using State = benchmark::State;

inline const cpu::ParallelFor kPool = cpu::tbb_parallel();

// Of the last cache, or what BENCH_CACHE_BYTES says; at least 16 MiB. What is to come from memory has as much in every
// tensor, and the limit reads four times as much.
inline int64_t cache_bytes() {
  const char* given = std::getenv("BENCH_CACHE_BYTES");
  const int64_t bytes = given != nullptr ? std::atoll(given) : sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1: not known
  return std::max(bytes, int64_t{16} << 20);
}

// Warm memory: as fp32 random numbers, as pairs of bf16 twice the same one.
class Buffer {
public:
  explicit Buffer(int64_t floats) : data_(static_cast<float*>(std::aligned_alloc(4096, bytes(floats)))) {
    std::minstd_rand engine(1);
    std::uniform_real_distribution<float> uniform(-4.0f, 4.0f);
    for (int64_t i = 0; i < floats; ++i) {
      const uint32_t upper = std::bit_cast<uint32_t>(uniform(engine)) >> 16;
      data_.get()[i] = std::bit_cast<float>(upper << 16 | upper);
    }
  }
  float* data() const { return data_.get(); }

private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  static size_t bytes(int64_t floats) { return (static_cast<size_t>(floats) * sizeof(float) + 4095) / 4096 * 4096; }
  std::unique_ptr<float, Free> data_;
};

// A workspace of so many bytes.
inline std::vector<int64_t> words(int64_t bytes) {
  return std::vector<int64_t>(static_cast<size_t>(bytes / 8 + 8));
}

// Runs the registered kernel.
template <class Op>
void measure(State& state, const cpu::CallOf<Op>& call) {
  std::vector<int64_t> workspace = words(cpu::workspace_bytes<Op>(call, kPool.threads));
  for (auto _ : state) cpu::kernel<Op>().run(call, {kPool, workspace.data()});
}

// Contiguous arrays of a buffer, as the plugin makes them of tensors.
inline cpu::Array matrix(const Buffer& buffer, Dtype dtype, int64_t rows, int64_t columns) {
  cpu::Array array{buffer.data(), dtype, 2, {rows, columns}, {columns, 1}};
  array.exceeds_caches = cpu::exceeds_caches(static_cast<double>(rows * columns * cpu::size_of(dtype)));
  return array;
}
inline cpu::Array vector(const Buffer& buffer, Dtype dtype, int64_t count) {
  cpu::Array array{buffer.data(), dtype, 1, {count}, {1}};
  array.exceeds_caches = cpu::exceeds_caches(static_cast<double>(count * cpu::size_of(dtype)));
  return array;
}
// Numbers of rows.
template <typename T>
cpu::Array vector(std::vector<T>& numbers, Dtype dtype) {
  return cpu::Array::vector(numbers.data(), dtype);
}

// The first number of a row's range: 0 is fp32, 1 is bf16.
inline Dtype dtype_of(const State& state) {
  return state.range(0) == 0 ? Dtype::f32 : Dtype::bf16;
}

// Rates of one iteration, and what part they are of the machine's limit, which is measured here and now.
void set_bytes(State& state, int64_t bytes);  // read and written: GB/s, of_read
void set_flops(State& state, double flops);   // GFLOP/s, of_fma

}  // namespace rlk::bench
