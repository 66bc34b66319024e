// Operators over [N, V]: losses from logits, and log-probabilities from hidden states. Bytes are the logits read, and
// their gradients written; operations those of the products, with the weights.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/grpo_loss.hpp>
#include <rlk/sdk/ops/grpo_loss_backward.hpp>
#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>
#include <rlk/sdk/ops/logits_ratio_kl.hpp>
#include <rlk/sdk/ops/logits_ratio_kl_backward.hpp>

#include <vector>

#include "bench/cpu_bench.hpp"

namespace rlk::bench {
namespace {

cpu::Array array(std::vector<float>& numbers) {
  return cpu::Array::vector(numbers.data(), Dtype::f32);
}

// Range: dtype, rows, vocabulary, backward. Forward reads the logits of both models, backward one and writes a
// gradient.
void logits_ratio_kl(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2);
  const Buffer logits(rows * vocab), other(rows * vocab);
  std::vector<int64_t> ids(static_cast<size_t>(rows), vocab / 2);
  std::vector<float> old_logp(ids.size(), -12.0f), ratio(old_logp), kl(old_logp), lse(ids.size(), 14.0f);
  const auto scores = [&](const Buffer& buffer) {
    return cpu::Array{buffer.data(), dtype_of(state), 2, {rows, vocab}, {vocab, 1}};
  };
  const auto set = [&](auto& call) {
    call.N = rows;
    call.V = vocab;
    call.logits = scores(logits);
    call.ids = cpu::Array::vector(ids.data(), Dtype::i64);
    call.old_logp = array(old_logp);
  };
  if (state.range(3) != 0) {
    cpu::CallOf<sdk::ops::LogitsRatioKlBackward> call;
    set(call);
    call.lse = array(lse);
    call.grad_ratio = array(ratio);
    call.grad_kl = array(kl);
    call.ref_logp = array(old_logp);
    call.grad_logits = scores(other);
    measure<sdk::ops::LogitsRatioKlBackward>(state, call);
  } else {
    cpu::CallOf<sdk::ops::LogitsRatioKl> call;
    set(call);
    call.ref_logits = scores(other);
    call.ratio = array(ratio);
    call.kl = array(kl);
    measure<sdk::ops::LogitsRatioKl>(state, call);
  }
  set_bytes(state, 2 * rows * vocab * cpu::size_of(dtype_of(state)));
}

// Range: dtype, sequences, tokens, vocabulary, backward. With a reference, forward reads the logits of both models.
void grpo_loss(State& state) {
  const int64_t sequences = state.range(1), tokens = state.range(2), vocab = state.range(3), n = sequences * tokens;
  const Buffer logits(n * vocab), other(n * vocab);
  std::vector<int64_t> ids(static_cast<size_t>(n), vocab / 2);
  std::vector<float> logp(ids.size(), -12.0f), lse(ids.size(), 14.0f), rewards(static_cast<size_t>(sequences));
  for (size_t i = 0; i < rewards.size(); ++i) rewards[i] = static_cast<float>(i % 2);
  std::vector<float> loss(1, 1.0f);
  const auto per_token = [&](std::vector<float>& numbers) {
    return cpu::Array{numbers.data(), Dtype::f32, 2, {sequences, tokens}, {tokens, 1}};
  };
  const auto scores = [&](const Buffer& buffer) {
    return cpu::Array{buffer.data(), dtype_of(state), 3, {sequences, tokens, vocab}, {tokens * vocab, vocab, 1}};
  };
  const auto set = [&](auto& call) {
    call.B = sequences;
    call.T = tokens;
    call.V = vocab;
    call.logits = scores(logits);
    call.ids = {ids.data(), Dtype::i64, 2, {sequences, tokens}, {tokens, 1}};
    call.old_logp = per_token(logp);
    call.rewards = array(rewards);
    call.params.beta = 0.04;
  };
  if (state.range(4) != 0) {
    cpu::CallOf<sdk::ops::GrpoLossBackward> call;
    set(call);
    call.lse = per_token(lse);
    call.ref_logp = per_token(logp);
    call.grad_loss = array(loss);
    call.grad_logits = scores(other);
    measure<sdk::ops::GrpoLossBackward>(state, call);
  } else {
    cpu::CallOf<sdk::ops::GrpoLoss> call;
    set(call);
    call.ref_logits = scores(other);
    call.loss = array(loss);
    call.lse = per_token(lse);
    measure<sdk::ops::GrpoLoss>(state, call);
  }
  set_bytes(state, 2 * n * vocab * cpu::size_of(dtype_of(state)));
}

// Range: dtype, rows, hidden size, vocabulary, backward (3 products of the forward's size).
void linear_logp(State& state) {
  const int64_t rows = state.range(1), depth = state.range(2), vocab = state.range(3);
  const bool backward = state.range(4) != 0;
  const Dtype dtype = dtype_of(state);
  const Buffer hidden(rows * depth), weight(vocab * depth), grad_hidden(backward ? rows * depth : 1),
      grad_weight(backward ? vocab * depth : 1);
  std::vector<int64_t> ids(static_cast<size_t>(rows), vocab / 2);
  std::vector<float> logp(ids.size()), lse(ids.size(), 300.0f);
  cpu::CallOf<sdk::ops::LinearLogp> call;
  call.hidden = matrix(hidden, dtype, rows, depth);
  call.weight = matrix(weight, dtype, vocab, depth);
  call.ids = vector(ids, Dtype::i64);
  call.logp = vector(logp, Dtype::f32);
  call.lse = vector(lse, Dtype::f32);
  call.N = rows;
  call.V = vocab;
  call.D = depth;
  if (backward) {
    auto of_backward = sdk::backward_of<cpu::CallOf<sdk::ops::LinearLogpBackward>>(call);
    of_backward.lse = vector(lse, Dtype::f32);
    of_backward.grad_logp = vector(logp, Dtype::f32);
    of_backward.grad_hidden = matrix(grad_hidden, dtype, rows, depth);
    of_backward.grad_weight = matrix(grad_weight, Dtype::f32, vocab, depth);
    measure<sdk::ops::LinearLogpBackward>(state, of_backward);
  } else {
    measure<sdk::ops::LinearLogp>(state, call);
  }
  set_flops(state, (backward ? 3 : 1) * 2.0 * static_cast<double>(rows) * static_cast<double>(vocab * depth));
  set_bytes(state, (backward ? 2 : 1) * vocab * depth * cpu::size_of(dtype));
}

BENCHMARK(logits_ratio_kl)
    ->ArgNames({"bf16", "N", "V", "backward"})
    ->ArgsProduct({{0, 1}, {512}, {32768}, {0, 1}})
    ->ArgsProduct({{0, 1}, {128}, {151936}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(grpo_loss)
    ->ArgNames({"bf16", "B", "T", "V", "backward"})
    ->ArgsProduct({{0, 1}, {8}, {64}, {32768}, {0, 1}})
    ->ArgsProduct({{0, 1}, {8}, {16}, {151936}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(linear_logp)
    ->ArgNames({"bf16", "N", "D", "V", "backward"})
    ->ArgsProduct({{0, 1}, {512}, {1024}, {32768}, {0, 1}})
    ->ArgsProduct({{0, 1}, {1, 8}, {1024}, {128256}, {0}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rlk::bench
