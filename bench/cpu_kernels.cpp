// How fast are the CPU kernels beside what the machine can do? Each operator's rate stands beside two limits measured
// in the same run: reading memory, and fused multiply-adds in registers. Read ratios, not times: machines are shared.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "core/cpu/kernels/add.hpp"
#include "core/cpu/kernels/attention.hpp"
#include "core/cpu/kernels/logp_backward.hpp"
#include "core/cpu/tbb_parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/cpu_kernels.cpp"
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

// steps * 10 multiply-adds of vectors in independent chains; returns the operations done.
double multiply_add(int64_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 1e-3f);
  auto a0 = hn::Set(d, 1.0f), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0, a9 = a0;
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

using cpu::Dtype;
using State = benchmark::State;

const cpu::ParallelFor kPool = cpu::tbb_parallel();

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

Dtype dtype_of(const State& state) {
  return state.range(0) == 0 ? Dtype::f32 : Dtype::bf16;
}

void set_bytes(State& state, int64_t bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(bytes) * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
void set_flops(State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void limit_read(State& state) {
  constexpr int64_t kRows = 512, kColumns = 65536;  // 128 MiB
  const Buffer buffer(kRows * kColumns);
  for (auto _ : state) {
    cpu::parallel_for(kPool, kRows, 4, [&](int64_t begin, int64_t end) {
      float sum = HWY_DYNAMIC_DISPATCH(read_all)(buffer.data() + begin * kColumns, (end - begin) * kColumns);
      benchmark::DoNotOptimize(sum);
    });
  }
  set_bytes(state, kRows * kColumns * 4);
}

void limit_multiply_add(State& state) {
  constexpr int64_t kTasks = 16, kSteps = 100000;
  double flops = 0;
  for (auto _ : state) {
    cpu::parallel_for(kPool, kTasks, 1, [&](int64_t begin, int64_t end) {
      float sink = 0;
      for (int64_t i = begin; i < end; ++i) HWY_DYNAMIC_DISPATCH(multiply_add)(kSteps, &sink);
      benchmark::DoNotOptimize(sink);
    });
  }
  float sink = 0;
  flops = static_cast<double>(kTasks) * HWY_DYNAMIC_DISPATCH(multiply_add)(kSteps, &sink);
  set_flops(state, flops);
}

struct Logits {
  Logits(int64_t rows, int64_t vocab)
      : logits(rows * vocab), ids(static_cast<size_t>(rows), vocab / 2), row_results(static_cast<size_t>(rows)) {
    info.n = info.logits_rows = rows;
    info.vocab = vocab;
    info.ids = ids.data();
  }
  Buffer logits;
  std::vector<int64_t> ids;
  std::vector<float> row_results;
  cpu::LogpRows info;
};

// Range: dtype, rows, vocabulary, entropy.
void logp(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2);
  Logits data(rows, vocab);
  std::vector<float> lse(static_cast<size_t>(rows)), entropy(static_cast<size_t>(rows));
  std::vector<int64_t> workspace(static_cast<size_t>(cpu::logp_workspace_bytes(rows, vocab) / 8 + 1));
  cpu::LogpArgs args;
  args.rows = data.info;
  args.dtype = dtype_of(state);
  args.logits = data.logits.data();
  args.row_stride = vocab;
  args.logp = data.row_results.data();
  args.lse = lse.data();
  args.entropy = state.range(3) != 0 ? entropy.data() : nullptr;
  args.workspace = workspace.data();
  for (auto _ : state) cpu::logp(args, kPool);
  set_bytes(state, rows * vocab * cpu::size_of(args.dtype));
}

// Range: dtype, rows, vocabulary, grad_bias. Bytes: logits read and gradients written.
void logp_backward(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2);
  Logits data(rows, vocab);
  const Buffer grad(rows * vocab);
  std::vector<float> lse(static_cast<size_t>(rows), 14.0f), grad_logp(lse), grad_bias(static_cast<size_t>(vocab));
  std::vector<int64_t> workspace(static_cast<size_t>(cpu::logp_backward_workspace_bytes(rows, false) / 8 + 1));
  cpu::LogpBackwardArgs args;
  args.rows = data.info;
  args.dtype = dtype_of(state);
  args.logits = data.logits.data();
  args.row_stride = args.grad_row_stride = vocab;
  args.lse = lse.data();
  args.grad_logp = grad_logp.data();
  args.grad_logits = grad.data();
  args.grad_bias = state.range(3) != 0 ? grad_bias.data() : nullptr;
  args.workspace = workspace.data();
  for (auto _ : state) cpu::logp_backward(args, kPool);
  set_bytes(state, 2 * rows * vocab * cpu::size_of(args.dtype));
}

// Range: dtype, batch, queries, keys, query heads, key heads, head size, causal. One layout: [batch, token, head, D].
void attention(State& state) {
  const int64_t batch = state.range(1), queries = state.range(2), keys = state.range(3);
  const int64_t q_heads = state.range(4), kv_heads = state.range(5), size = state.range(6);
  const auto tensor = [size](const Buffer& buffer, int64_t tokens, int64_t heads) {
    return cpu::AttentionTensor{buffer.data(), tokens * heads * size, heads * size, size, 1};
  };
  const Buffer q(batch * queries * q_heads * size), k(batch * keys * kv_heads * size),
      v(batch * keys * kv_heads * size), out(batch * queries * q_heads * size);
  cpu::AttentionArgs args;
  args.dtype = dtype_of(state);
  args.q = tensor(q, queries, q_heads);
  args.k = tensor(k, keys, kv_heads);
  args.v = tensor(v, keys, kv_heads);
  args.out = tensor(out, queries, q_heads);
  args.batch = batch;
  args.q_tokens = queries;
  args.k_tokens = keys;
  args.q_heads = q_heads;
  args.kv_heads = kv_heads;
  args.head_size = size;
  args.causal = state.range(7) != 0;
  cpu::DataError error;
  for (auto _ : state) cpu::attention(args, kPool, &error);
  const auto pairs = static_cast<double>(batch * q_heads * queries * keys) * (args.causal && queries > 1 ? 0.5 : 1.0);
  set_flops(state, 4 * pairs * static_cast<double>(size));
  set_bytes(state, 2 * batch * keys * kv_heads * size * cpu::size_of(args.dtype));  // K and V once
}

// Range: dtype, elements. Bytes: two operands read, one written.
void add(State& state) {
  const int64_t count = state.range(1);
  const Buffer a(count), b(count), out(count);
  cpu::AddArgs args;
  args.dtype = dtype_of(state);
  args.ndim = 1;
  args.shape[0] = count;
  args.a_strides[0] = args.b_strides[0] = args.out_strides[0] = 1;
  args.a = a.data();
  args.b = b.data();
  args.out = out.data();
  for (auto _ : state) cpu::add(args, kPool);
  set_bytes(state, 3 * count * cpu::size_of(args.dtype));
}

BENCHMARK(limit_read)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(limit_multiply_add)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(logp)
    ->ArgNames({"bf16", "N", "V", "entropy"})
    ->ArgsProduct({{0, 1}, {512}, {32768, 151936}, {0, 1}})
    ->ArgsProduct({{0, 1}, {1}, {151936}, {0}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(logp_backward)
    ->ArgNames({"bf16", "N", "V", "grad_bias"})
    ->ArgsProduct({{0, 1}, {512}, {32768}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(attention)
    ->ArgNames({"bf16", "B", "Sq", "Sk", "Hq", "Hkv", "D", "causal"})
    ->ArgsProduct({{0, 1}, {1}, {1024}, {1024}, {16}, {16}, {64, 128}, {1}})
    ->ArgsProduct({{0, 1}, {8}, {1}, {4096}, {32}, {8}, {128}, {1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(add)
    ->ArgNames({"bf16", "elements"})
    ->ArgsProduct({{0, 1}, {8 << 20}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rlk::bench

BENCHMARK_MAIN();
#endif  // HWY_ONCE
