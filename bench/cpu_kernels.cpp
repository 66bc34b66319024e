// How fast are the CPU kernels beside what the machine can do? Each operator's rate stands beside a limit measured at
// the same time (cpu_limits.cpp). Read ratios, not times: machines are shared.
#include <vector>

#include "bench/cpu_bench.hpp"
#include "core/cpu/attention/attention.hpp"
#include "core/cpu/linear/linear_logp.hpp"
#include "core/cpu/logp/logp_backward.hpp"

namespace rlk::bench {
namespace {

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
  std::vector<int64_t> workspace = words(cpu::logp_workspace_bytes(rows, vocab));
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
  std::vector<int64_t> workspace = words(cpu::logp_backward_workspace_bytes(rows, false));
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

// Range: dtype, rows, vocabulary, D. Bytes: the weights once.
void linear_logp(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2), depth = state.range(3);
  const Buffer hidden(rows * depth), weight(vocab * depth);
  const std::vector<int64_t> ids(static_cast<size_t>(rows), vocab / 2);
  std::vector<float> logp(static_cast<size_t>(rows));
  cpu::LinearLogpArgs args;
  args.rows.n = args.rows.logits_rows = rows;
  args.rows.vocab = vocab;
  args.rows.ids = ids.data();
  args.dtype = dtype_of(state);
  args.depth = depth;
  args.hidden = {hidden.data(), depth, 1};
  args.weight = {weight.data(), depth, 1};
  args.logp = logp.data();
  const int64_t bytes = cpu::linear_logp_workspace_bytes({args.dtype, rows, vocab, depth, 1.0, 0.0});
  std::vector<int64_t> workspace(static_cast<size_t>(bytes / 8 + 1));
  args.workspace = workspace.data();
  cpu::DataError error;
  for (auto _ : state) cpu::linear_logp(args, kPool, &error);
  set_flops(state, 2 * static_cast<double>(rows * vocab * depth));
  set_bytes(state, vocab * depth * cpu::size_of(args.dtype));
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
  const auto array = [&](const Buffer& buffer) { return cpu::Array{buffer.data(), dtype_of(state), 1, {count}, {1}}; };
  cpu::CallOf<sdk::ops::Add> call;
  call.a = array(a);
  call.b = array(b);
  call.out = array(out);
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
    ->ArgsProduct({{0, 1}, {8 << 20}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rlk::bench
