// How fast are the CPU kernels beside what the machine can do? Each operator's rate stands beside a limit measured at
// the same time (cpu_limits.cpp). Read ratios, not times: machines are shared.

#include <rlk/sdk/ops/add.hpp>
#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

#include <vector>

#include "bench/cpu_bench.hpp"

namespace rlk::bench {
namespace {

// What calls that choose one token of each row have in common.
struct Rows {
  Rows(int64_t rows, int64_t vocab)
      : ids(static_cast<size_t>(rows), vocab / 2),
        logp(static_cast<size_t>(rows)),
        lse(static_cast<size_t>(rows), 14.0f),
        entropy(static_cast<size_t>(rows)) {}
  std::vector<int64_t> ids;
  std::vector<float> logp, lse, entropy;
};

// Range: dtype, rows, vocabulary, entropy.
void logp(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2);
  const Buffer logits(rows * vocab);
  Rows data(rows, vocab);
  cpu::CallOf<sdk::ops::Logp> call;
  call.logits = matrix(logits, dtype_of(state), rows, vocab);
  call.ids = vector(data.ids, Dtype::i64);
  call.logp = vector(data.logp, Dtype::f32);
  call.lse = vector(data.lse, Dtype::f32);
  if (state.range(3) != 0) call.entropy = vector(data.entropy, Dtype::f32);
  call.N = call.R = rows;
  call.V = vocab;
  measure<sdk::ops::Logp>(state, call);
  set_bytes(state, rows * vocab * cpu::size_of(dtype_of(state)));
}

// Range: dtype, rows, vocabulary, grad_bias. Bytes: logits read and gradients written.
void logp_backward(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2);
  const Buffer logits(rows * vocab), grad(rows * vocab);
  Rows data(rows, vocab);
  std::vector<float> grad_bias(static_cast<size_t>(vocab));
  cpu::CallOf<sdk::ops::LogpBackward> call;
  call.logits = matrix(logits, dtype_of(state), rows, vocab);
  call.ids = vector(data.ids, Dtype::i64);
  call.lse = vector(data.lse, Dtype::f32);
  call.grad_logp = vector(data.lse, Dtype::f32);
  call.grad_logits = matrix(grad, dtype_of(state), rows, vocab);
  if (state.range(3) != 0) call.grad_bias = vector(grad_bias, Dtype::f32);
  call.N = call.R = rows;
  call.V = vocab;
  measure<sdk::ops::LogpBackward>(state, call);
  set_bytes(state, 2 * rows * vocab * cpu::size_of(dtype_of(state)));
}

// Range: dtype, rows, vocabulary, D. Bytes: the weights once.
void linear_logp(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2), depth = state.range(3);
  const Buffer hidden(rows * depth), weight(vocab * depth);
  Rows data(rows, vocab);
  cpu::CallOf<sdk::ops::LinearLogp> call;
  call.hidden = matrix(hidden, dtype_of(state), rows, depth);
  call.weight = matrix(weight, dtype_of(state), vocab, depth);
  call.ids = vector(data.ids, Dtype::i64);
  call.logp = vector(data.logp, Dtype::f32);
  call.N = rows;
  call.V = vocab;
  call.D = depth;
  measure<sdk::ops::LinearLogp>(state, call);
  set_flops(state, 2 * static_cast<double>(rows * vocab * depth));
  set_bytes(state, vocab * depth * cpu::size_of(dtype_of(state)));
}

// Range: dtype, batch, queries, keys, query heads, key heads, head size, causal. One layout: [batch, token, head, D].
void attention(State& state) {
  const int64_t batch = state.range(1), queries = state.range(2), keys = state.range(3);
  const int64_t q_heads = state.range(4), kv_heads = state.range(5), size = state.range(6);
  const auto array = [&](const Buffer& buffer, int64_t tokens, int64_t heads) {
    return cpu::Array{buffer.data(),
                      dtype_of(state),
                      4,
                      {batch, tokens, heads, size},
                      {tokens * heads * size, heads * size, size, 1}};
  };
  const Buffer q(batch * queries * q_heads * size), k(batch * keys * kv_heads * size),
      v(batch * keys * kv_heads * size), out(batch * queries * q_heads * size);
  cpu::CallOf<sdk::ops::Attention> call;
  call.q = array(q, queries, q_heads);
  call.k = array(k, keys, kv_heads);
  call.v = array(v, keys, kv_heads);
  call.out = array(out, queries, q_heads);
  call.B = batch;
  call.Sq = queries;
  call.Sk = keys;
  call.Hq = q_heads;
  call.Hkv = kv_heads;
  call.D = size;
  const bool causal = state.range(7) != 0;
  if (causal) call.params.causal = sdk::ops::attention::Causal::on;
  measure<sdk::ops::Attention>(state, call);
  const auto pairs = static_cast<double>(batch * q_heads * queries * keys) * (causal && queries > 1 ? 0.5 : 1.0);
  set_flops(state, 4 * pairs * static_cast<double>(size));
  set_bytes(state, 2 * batch * keys * kv_heads * size * cpu::size_of(dtype_of(state)));  // K and V once
}

// Range: dtype, elements. Bytes: two operands read, one written.
void add(State& state) {
  const int64_t count = state.range(1);
  const Buffer a(count), b(count), out(count);
  cpu::CallOf<sdk::ops::Add> call;
  call.a = vector(a, dtype_of(state), count);
  call.b = vector(b, dtype_of(state), count);
  call.out = vector(out, dtype_of(state), count);
  measure<sdk::ops::Add>(state, call);
  set_bytes(state, 3 * count * cpu::size_of(dtype_of(state)));
}

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
BENCHMARK(linear_logp)
    ->ArgNames({"bf16", "N", "V", "D"})
    ->ArgsProduct({{0, 1}, {1, 2, 4, 8, 16, 256}, {32768}, {2048}})
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
    ->ArgsProduct({{0, 1}, {8 << 20, 64 << 20}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rlk::bench
