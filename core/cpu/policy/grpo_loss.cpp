// GRPO from logits and rewards, forward and backward: the kernels of logp over the tokens of the batch, and
// policy_loss. The only scratch is a few numbers per token; the logits are read once, their gradient written once.
#include <rlk/sdk/ops/grpo_loss.hpp>
#include <rlk/sdk/ops/grpo_loss_backward.hpp>
#include <rlk/sdk/ops/policy_loss_backward.hpp>

#include <algorithm>

#include "core/cpu/advantages/group_advantages.hpp"
#include "core/cpu/logp/logp.hpp"
#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/logp/logp_block.hpp"
#include "core/cpu/policy/policy_terms.hpp"
#include "core/cpu/simd/data_error.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {

extern template const Kernel<sdk::ops::PolicyLoss>& kernel();  // of policy_loss.cpp
extern template const Kernel<sdk::ops::PolicyLossBackward>& kernel();

namespace {

using Forward = CallOf<sdk::ops::GrpoLoss>;
using Backward = CallOf<sdk::ops::GrpoLossBackward>;

constexpr int64_t kGrainTokens = 1024;  // per task at least

// Writes [B] advantages; the data error of group_boundaries.
template <class Call>
DataError advantages_of(const Call& call, double* advantages, const ParallelFor& hook) {
  CallOf<sdk::ops::GroupAdvantages> of_groups;
  const bool by_boundaries = call.params.grouping == sdk::ops::grpo_loss::Grouping::boundaries;
  of_groups.params.grouping = by_boundaries ? Grouping::boundaries : Grouping::fixed;
  of_groups.B = call.B;
  of_groups.G = call.G;
  of_groups.params.samples_per_prompt = call.params.samples_per_prompt;
  of_groups.group_boundaries = call.group_boundaries;
  of_groups.rewards = call.rewards;
  of_groups.params.std = call.params.std;
  of_groups.params.eps_mode = call.params.eps_mode;
  of_groups.params.eps = call.params.eps;
  of_groups.advantages = Array::of(advantages);
  return group_advantages(of_groups, {hook});
}

template <class Call>
bool is_active(const Call& call, int64_t b, int64_t t) {
  return call.mask.keeps(b, t) && call.ids.integer(b, t) != call.params.ignore_index;
}

// Where the logits, or their gradients, of a token begin.
void* row_of(const Array& array, int64_t b, int64_t t) {
  return element(array.data, b * array.strides[0] + t * array.strides[1], array.dtype);
}

// Whether the tokens of the batch are one run of rows in every tensor, so that one call of logp sees them all.
template <class Call, class... Arrays>
bool is_one_run(const Call& call, const Arrays&... arrays) {
  const auto runs = [&](const Array& array) {
    return !array.present() || array.strides[0] == call.T * array.strides[1];
  };
  return call.B <= 1 || (runs(call.ids) && runs(call.mask) && (runs(arrays) && ...));
}

// The tokens of sequences b and on as rows: [rows] or [rows, V].
Array rows_of(const Array& array, int64_t b) {
  Array rows = array;
  rows.data = row_of(array, b, 0);
  rows.ndim = array.ndim - 1;
  for (int32_t axis = 0; axis < rows.ndim; ++axis) {
    rows.shape[axis] = array.shape[axis + 1];
    rows.strides[axis] = array.strides[axis + 1];
  }
  return rows;
}

// What logp and its backward have in common: the tokens of sequences b and on, as many as are one run.
template <class LogpCall, class Call>
LogpCall call_of_rows(const Call& call, const Array& logits, int64_t b, int64_t rows) {
  LogpCall of_rows;
  of_rows.logits = rows_of(logits, b);
  of_rows.ids = rows_of(call.ids, b);
  if (call.mask.present()) of_rows.mask = rows_of(call.mask, b);
  of_rows.N = of_rows.R = rows;
  of_rows.V = call.V;
  of_rows.params.temperature = call.params.temperature;
  of_rows.params.ignore_index = call.params.ignore_index;
  return of_rows;
}

// Calls run(first sequence, tokens) for each run of rows; returns the first data error with the row it has in the
// batch.
template <class Call, typename Run>
DataError for_each_run(const Call& call, bool one_run, Run&& run) {
  if (one_run) return run(int64_t{0}, call.B * call.T);
  DataError first;
  for (int64_t b = 0; b < call.B; ++b) {
    DataError error = run(b, call.T);
    error.row += b * call.T;
    if (first.kind == kNoDataError) first = error;
  }
  return first;
}

// logp in fp64 and lse (optional, of the accumulator's dtype) of all tokens, row-major.
DataError token_logp(const Forward& call, const Array& logits, double* logp_out, void* lse, void* workspace,
                     const ParallelFor& hook) {
  return for_each_run(call, is_one_run(call, logits), [&](int64_t b, int64_t n) {
    auto of_rows = call_of_rows<CallOf<sdk::ops::Logp>>(call, logits, b, n);
    const Dtype wide = accumulator(logits.dtype);
    of_rows.logp = Array::of(logp_out + b * call.T);
    of_rows.lse = Array::vector(element(lse, b * call.T, wide), wide);
    return logp(of_rows, {hook, workspace});
  });
}

template <class Call, typename Function>
void for_each_row(const Call& call, const ParallelFor& hook, Function&& function) {
  const int64_t grain = std::max<int64_t>(1, kGrainTokens / std::max<int64_t>(call.T, 1));
  parallel_for(hook, call.B, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) function(b);
  });
}

// One number per token, row-major.
template <class Call>
Array of_tokens(const Call& call, void* numbers, Dtype dtype) {
  return {numbers, dtype, 2, {call.B, call.T}, {call.T, 1}};
}

// What a call of policy_loss and one of its backward have in common: PPO's clip over the tokens that `counts` names.
template <class PolicyCallOrBackward, class Call>
PolicyCallOrBackward policy_call(const Call& call, double* advantages, double* logp, uint8_t* counts) {
  PolicyCallOrBackward policy;
  policy.B = call.B;
  policy.T = call.T;
  policy.params.clip_low = call.params.clip_low;
  policy.params.clip_high = call.params.clip_high;
  policy.logp = of_tokens(call, logp, Dtype::f64);
  policy.old_logp = call.old_logp;
  policy.mask = of_tokens(call, counts, Dtype::u8);
  policy.sequence_advantages = Array::of(advantages);
  return policy;
}
template <class Call>
int64_t policy_bytes(const Call& call) {
  return policy_workspace_bytes({}, {call.B, false, call.T, {}});
}

// To an output that may be absent.
void put(const Array& array, int64_t i, double value) {
  if (array.present()) array.put(i, value);
}
void put(const Array& array, int64_t b, int64_t t, double value) {
  if (array.present()) array.put(b, t, value);
}

// Fp64 numbers from a workspace, one array after the other.
class Scratch {
public:
  explicit Scratch(void* memory) : next_(static_cast<double*>(memory)) {}
  double* take(int64_t count) {
    double* from = next_;
    next_ += count;
    return from;
  }
  uint8_t* take_bytes(int64_t count) { return reinterpret_cast<uint8_t*>(take((count + 7) / 8)); }
  void* rest() const { return next_; }

private:
  double* next_;
};

// Of so many numbers for each sequence and token, and a byte for each token.
template <class Call>
int64_t scratch_bytes(const Call& call, int64_t of_sequence, int64_t of_token) {
  const int64_t tokens = call.B * call.T;
  return (of_sequence * call.B + of_token * tokens + (tokens + 7) / 8) * 8;
}

int64_t workspace_bytes(const Forward& call) {
  const int64_t of_logp = std::max(logp_workspace_bytes(call.B * call.T, call.V), logp_workspace_bytes(call.T, call.V));
  return scratch_bytes(call, 1, 3) + of_logp + policy_bytes(call);
}

double operations(const Forward& call) {
  return (call.ref_logits.given() ? 40.0 : 20.0) * static_cast<double>(call.B * call.T * call.V);
}

DataError grpo_loss(const Forward& call, const Context& context) {
  const ParallelFor& hook = context.parallel;
  const int64_t rows = call.B * call.T;
  Scratch scratch(context.workspace);
  double* advantages = scratch.take(call.B);
  if (const DataError of_groups = advantages_of(call, advantages, hook); of_groups.kind != kNoDataError) {
    return all_nan(call, of_groups);
  }
  double *lp = scratch.take(rows), *lr = scratch.take(rows), *lse = scratch.take(rows);
  uint8_t* const counts = scratch.take_bytes(rows);
  const bool has_ref = call.ref_logits.present();
  DataError error = token_logp(call, call.logits, lp, lse, scratch.rest(), hook);
  if (has_ref) {
    const DataError of_ref = token_logp(call, call.ref_logits, lr, nullptr, scratch.rest(), hook);
    const bool earlier = of_ref.kind != kNoDataError && of_ref.row < error.row;
    if (error.kind == kNoDataError || earlier) error = of_ref;
  }

  const Dtype wide = accumulator(call.logits.dtype);
  for_each_row(call, hook, [&](int64_t b) {
    put(call.advantages, b, advantages[b]);
    for (int64_t t = 0; t < call.T; ++t) {
      const int64_t row = b * call.T + t;
      put(call.lse, b, t, load_element(lse, wide, row));
      put(call.logp, b, t, lp[row]);
      put(call.ref_logp, b, t, has_ref ? lr[row] : 0);
      counts[row] = is_active(call, b, t) ? 1 : 0;
    }
  });

  double loss = 0, metrics[RLK_POLICY_LOSS_N_METRICS];
  auto policy = policy_call<PolicyCall>(call, advantages, lp, counts);
  if (has_ref) policy.ref_logp = of_tokens(call, lr, Dtype::f64);
  policy.loss = Array::of(&loss);
  policy.metrics = Array::of(metrics);
  kernel<sdk::ops::PolicyLoss>().run(policy, {hook, scratch.rest()});
  double kl = metrics[RLK_POLICY_LOSS_METRICS_KL];
  if (error.kind != kNoDataError) loss = kl = kNan;
  call.loss.put(0, call.params.beta != 0 ? loss + call.params.beta * kl : loss);
  put(call.policy_loss, 0, loss);
  put(call.kl, 0, kl);
  return error;
}

int64_t backward_workspace_bytes(const Backward& call) {
  return scratch_bytes(call, 2, 1) +
         std::max(logp_backward_workspace_bytes(call.B * call.T, false), policy_bytes(call));
}

double backward_operations(const Backward& call) {
  return 25.0 * static_cast<double>(call.B * call.T * call.V);
}

DataError grpo_loss_backward(const Backward& call, const Context& context) {
  const ParallelFor& hook = context.parallel;
  const Array& logits = call.logits;
  Scratch scratch(context.workspace);
  double *advantages = scratch.take(call.B), *active = scratch.take(call.B);
  if (const DataError error = advantages_of(call, advantages, hook); error.kind != kNoDataError) {
    return all_nan(call, error);
  }

  double* gradient = scratch.take(call.B * call.T);  // first the log-probabilities themselves
  uint8_t* const counts = scratch.take_bytes(call.B * call.T);
  const Scores scores = make_scores(logits.dtype, call.params.temperature, 0, logits.strides[2]);
  for_each_row(call, hook, [&](int64_t b) {
    active[b] = 0;
    for (int64_t t = 0; t < call.T; ++t) {
      const int64_t row = b * call.T + t, id = call.ids.integer(b, t);
      const bool counted = is_active(call, b, t);
      active[b] += counted ? 1 : 0;
      // An id out of range is logp_backward's to tell.
      counts[row] = counted && id >= 0 && id < call.V ? 1 : 0;
      gradient[row] =
          counts[row] != 0 ? logp_by_lse(score_of(scores, row_of(logits, b, t), id), call.lse.get(b, t)) : 0;
    }
  });
  double n = 0;
  for (int64_t b = 0; b < call.B; ++b) n += active[b];

  auto policy = policy_call<CallOf<sdk::ops::PolicyLossBackward>>(call, advantages, gradient, counts);
  policy.params.denominator = n;
  policy.params.beta = call.params.beta;
  policy.params.clamp_gradient = call.params.clamp_gradient;
  policy.ref_logp = call.ref_logp;
  policy.grad_loss = call.grad_loss;
  policy.grad_logp = policy.logp;
  kernel<sdk::ops::PolicyLossBackward>().run(policy, {hook, scratch.rest()});

  return for_each_run(call, is_one_run(call, logits, call.lse, call.grad_logits), [&](int64_t b, int64_t rows) {
    auto of_rows = call_of_rows<CallOf<sdk::ops::LogpBackward>>(call, logits, b, rows);
    of_rows.lse = rows_of(call.lse, b);
    of_rows.grad_logp = Array::of(gradient + b * call.T);
    of_rows.grad_logits = rows_of(call.grad_logits, b);
    return logp_backward(of_rows, {hook, scratch.rest()});
  });
}

}  // namespace

RLK_CPU_KERNEL(GrpoLoss, .run = grpo_loss, .operations = operations, .workspace_bytes = workspace_bytes);
RLK_CPU_KERNEL(GrpoLossBackward, .run = grpo_loss_backward, .operations = backward_operations,
               .workspace_bytes = backward_workspace_bytes);

}  // namespace rlk::cpu
