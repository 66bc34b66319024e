// Operators with one number per token, on tensors of the last cache's size each. Bytes are the tensors of tokens, each
// read or written once.

#include <rlk/sdk/ops/gae.hpp>
#include <rlk/sdk/ops/group_advantages.hpp>
#include <rlk/sdk/ops/logp_merge.hpp>
#include <rlk/sdk/ops/policy_loss.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>
#include <rlk/sdk/ops/ratio_kl.hpp>
#include <rlk/sdk/ops/ratio_kl_backward.hpp>
#include <rlk/sdk/ops/returns.hpp>
#include <rlk/sdk/ops/value_loss.hpp>
#include <rlk/sdk/ops/value_loss_backward.hpp>
#include <rlk/sdk/ops/whiten.hpp>

#include <vector>

#include "bench/cpu_bench.hpp"

namespace rlk::bench {
namespace {

constexpr int64_t kLength = 8192;
const int64_t kSequences = cache_bytes() / (kLength * 4), kTokens = kSequences * kLength;

// [kSequences, kLength] of fp32.
cpu::Array array(const Buffer& buffer) {
  return matrix(buffer, Dtype::f32, kSequences, kLength);
}
cpu::Array column(const Buffer& buffer) {
  return vector(buffer, Dtype::f32, kTokens);
}
void set_token_tensors(State& state, int64_t count) {
  set_bytes(state, count * kTokens * 4);
}

// Range: backward, with a reference and rollout corrections, whose log-probabilities are one tensor here.
void policy_loss(State& state) {
  const bool backward = state.range(0) != 0, corrected = state.range(1) != 0;
  const Buffer logp(kTokens), old_logp(kTokens), ref_logp(corrected ? kTokens : 1), advantages(kTokens),
      grad(backward ? kTokens : 1), loss(1);
  const auto set = [&](auto& call) {
    call.B = kSequences;
    call.T = kLength;
    call.logp = array(logp);
    call.old_logp = array(old_logp);
    call.advantages = array(advantages);
    if (!corrected) return;
    call.params.beta = 0.1;
    call.ref_logp = call.rollout_logp = array(ref_logp);
  };
  if (backward) {
    cpu::CallOf<sdk::ops::PolicyLossBackward> call;
    set(call);
    call.grad_loss = column(loss);
    call.grad_logp = array(grad);
    measure<sdk::ops::PolicyLossBackward>(state, call);
  } else {
    cpu::CallOf<sdk::ops::PolicyLoss> call;
    set(call);
    call.loss = column(loss);
    measure<sdk::ops::PolicyLoss>(state, call);
  }
  set_token_tensors(state, 3 + (corrected ? 1 : 0) + (backward ? 1 : 0));
}

// Range: backward.
void value_loss(State& state) {
  const Buffer values(kTokens), old_values(kTokens), returns(kTokens), grad(kTokens), loss(1);
  const auto set = [&](auto& call) {
    call.B = kSequences;
    call.L = kLength;
    call.values = array(values);
    call.returns = array(returns);
    call.old_values = array(old_values);
    call.params.clip_eps = 0.2;
  };
  if (state.range(0) != 0) {
    cpu::CallOf<sdk::ops::ValueLossBackward> call;
    set(call);
    call.grad_loss = column(loss);
    call.grad_values = array(grad);
    measure<sdk::ops::ValueLossBackward>(state, call);
  } else {
    cpu::CallOf<sdk::ops::ValueLoss> call;
    set(call);
    call.loss = column(loss);
    measure<sdk::ops::ValueLoss>(state, call);
  }
  set_token_tensors(state, state.range(0) != 0 ? 4 : 3);
}

// Range: backward. Reads three, writes ratio and kl; backward reads five and writes one.
void ratio_kl(State& state) {
  const Buffer logp(kTokens), old_logp(kTokens), ref_logp(kTokens), ratio(kTokens), kl(kTokens), grad(kTokens);
  const auto set = [&](auto& call) {
    call.N = kTokens;
    call.logp = column(logp);
    call.old_logp = column(old_logp);
    call.ref_logp = column(ref_logp);
  };
  if (state.range(0) != 0) {
    cpu::CallOf<sdk::ops::RatioKlBackward> call;
    set(call);
    call.grad_ratio = column(ratio);
    call.grad_kl = column(kl);
    call.grad_logp = column(grad);
    measure<sdk::ops::RatioKlBackward>(state, call);
  } else {
    cpu::CallOf<sdk::ops::RatioKl> call;
    set(call);
    call.ratio = column(ratio);
    call.kl = column(kl);
    measure<sdk::ops::RatioKl>(state, call);
  }
  set_token_tensors(state, state.range(0) != 0 ? 6 : 5);
}

void gae(State& state) {
  const Buffer rewards(kTokens), values(kTokens), advantages(kTokens), returns(kTokens);
  cpu::CallOf<sdk::ops::Gae> call;
  call.rewards = array(rewards);
  call.values = array(values);
  call.advantages = array(advantages);
  call.returns = array(returns);
  call.B = kSequences;
  call.L = kLength;
  call.params.gamma = 0.99;
  call.params.lam = 0.95;
  measure<sdk::ops::Gae>(state, call);
  set_token_tensors(state, 4);
}

void returns(State& state) {
  const Buffer rewards(kTokens), results(kTokens);
  cpu::CallOf<sdk::ops::Returns> call;
  call.rewards = array(rewards);
  call.returns = array(results);
  call.B = kSequences;
  call.L = kLength;
  call.params.gamma = 0.99;
  measure<sdk::ops::Returns>(state, call);
  set_token_tensors(state, 2);
}

void whiten(State& state) {
  const Buffer x(kTokens), y(kTokens);
  cpu::CallOf<sdk::ops::Whiten> call;
  call.x = array(x);
  call.y = array(y);
  call.B = kSequences;
  call.L = kLength;
  measure<sdk::ops::Whiten>(state, call);
  set_token_tensors(state, 2);
}

// As many samples as elsewhere tokens, in groups of 8.
void group_advantages(State& state) {
  const Buffer rewards(kTokens), advantages(kTokens);
  cpu::CallOf<sdk::ops::GroupAdvantages> call;
  call.rewards = column(rewards);
  call.advantages = column(advantages);
  call.B = kTokens;
  call.params.samples_per_prompt = 8;
  measure<sdk::ops::GroupAdvantages>(state, call);
  set_token_tensors(state, 2);
}

// A million rows of 8 shards.
void logp_merge(State& state) {
  constexpr int64_t kRows = 1 << 20, kShards = 8;
  const Buffer shard_logp(kRows * kShards), shard_lse(kRows * kShards), logp(kRows);
  cpu::CallOf<sdk::ops::LogpMerge> call;
  call.shard_logp = matrix(shard_logp, Dtype::f32, kShards, kRows);
  call.shard_lse = matrix(shard_lse, Dtype::f32, kShards, kRows);
  call.logp = cpu::Array::vector(logp.data(), Dtype::f32);
  call.N = kRows;
  call.S = kShards;
  measure<sdk::ops::LogpMerge>(state, call);
  set_bytes(state, (2 * kShards + 1) * kRows * 4);
}

BENCHMARK(policy_loss)
    ->ArgNames({"backward", "corrected"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(value_loss)->ArgName("backward")->Arg(0)->Arg(1)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(ratio_kl)->ArgName("backward")->Arg(0)->Arg(1)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(gae)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(returns)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(whiten)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(group_advantages)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(logp_merge)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rlk::bench
