// GRPO from logits and rewards, forward and backward: the kernels of logp over the tokens of the batch, and plain fp64
// between them. The only scratch is a few numbers per token; the logits are read once, their gradient written once.
#include <rlk/sdk/ops/grpo_loss.hpp>
#include <rlk/sdk/ops/grpo_loss_backward.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/advantages/group_advantages.hpp"
#include "core/cpu/logp/logp.hpp"
#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/logp/logp_block.hpp"
#include "core/cpu/policy/clamp_gradient.hpp"
#include "core/cpu/policy/policy_kinds.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::GrpoLoss>;
using Backward = CallOf<sdk::ops::GrpoLossBackward>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
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
PolicyParams policy_params(const Call& call) {
  PolicyParams params;
  params.clip_low = call.params.clip_low;
  params.clip_high = call.params.clip_high;
  return params;
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

struct SequenceSums {
  double policy = 0, kl = 0, active = 0;
};

template <class Call, typename Function>
void for_each_row(const Call& call, const ParallelFor& hook, Function&& function) {
  const int64_t grain = std::max<int64_t>(1, kGrainTokens / std::max<int64_t>(call.T, 1));
  parallel_for(hook, call.B, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) function(b);
  });
}

PolicyTerm surrogate(const PolicyParams& options, double logp, double old_logp, double advantage, double at_bound = 0) {
  const double log_ratio = logp - old_logp;
  return policy_term(options, {logp, old_logp, advantage, log_ratio, std::exp(log_ratio), at_bound}, {});
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
  void* rest() const { return next_; }

private:
  double* next_;
};

constexpr int64_t kSums = sizeof(SequenceSums) / sizeof(double);

void put_all_nan(const Forward& call) {
  for (const Array* scalar : {&call.loss, &call.policy_loss, &call.kl}) put(*scalar, 0, kNan);
  for (int64_t b = 0; b < call.B; ++b) {
    put(call.advantages, b, kNan);
    for (int64_t t = 0; t < call.T; ++t) {
      for (const Array* output : {&call.lse, &call.logp, &call.ref_logp}) put(*output, b, t, kNan);
    }
  }
}

int64_t workspace_bytes(const Forward& call) {
  const int64_t numbers = (1 + kSums) * call.B + 3 * call.B * call.T;
  return numbers * 8 + std::max(logp_workspace_bytes(call.B * call.T, call.V), logp_workspace_bytes(call.T, call.V));
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
    put_all_nan(call);
    return of_groups;
  }
  auto* sums = reinterpret_cast<SequenceSums*>(scratch.take(kSums * call.B));
  double *lp = scratch.take(rows), *lr = scratch.take(rows), *lse = scratch.take(rows);
  const bool has_ref = call.ref_logits.present();
  DataError error = token_logp(call, call.logits, lp, lse, scratch.rest(), hook);
  if (has_ref) {
    const DataError of_ref = token_logp(call, call.ref_logits, lr, nullptr, scratch.rest(), hook);
    const bool earlier = of_ref.kind != kNoDataError && of_ref.row < error.row;
    if (error.kind == kNoDataError || earlier) error = of_ref;
  }

  const PolicyParams params = policy_params(call);
  const Dtype wide = accumulator(call.logits.dtype);
  for_each_row(call, hook, [&](int64_t b) {
    sums[b] = {};
    put(call.advantages, b, advantages[b]);
    for (int64_t t = 0; t < call.T; ++t) {
      const int64_t row = b * call.T + t;
      put(call.lse, b, t, load_element(lse, wide, row));
      put(call.logp, b, t, lp[row]);
      put(call.ref_logp, b, t, has_ref ? lr[row] : 0);
      if (!is_active(call, b, t)) continue;
      sums[b].active += 1;
      sums[b].policy += surrogate(params, lp[row], call.old_logp.get(b, t), advantages[b]).value;
      if (has_ref) sums[b].kl += kl_term(params, lp[row], lp[row], lr[row], 1).value;
    }
  });

  SequenceSums total;
  for (int64_t b = 0; b < call.B; ++b) {
    total.active += sums[b].active;
    total.policy += sums[b].policy;
    total.kl += sums[b].kl;
  }
  if (total.active > 0) {
    total.policy /= total.active;
    total.kl /= total.active;
  }
  if (error.kind != kNoDataError) total.policy = total.kl = kNan;
  call.loss.put(0, call.params.beta != 0 ? total.policy + call.params.beta * total.kl : total.policy);
  put(call.policy_loss, 0, total.policy);
  put(call.kl, 0, total.kl);
  return error;
}

int64_t backward_workspace_bytes(const Backward& call) {
  return (2 * call.B + call.B * call.T) * 8 + logp_backward_workspace_bytes(call.B * call.T, false);
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
    for (int64_t row = 0; row < call.B * call.T; ++row) {
      void* const gradients = row_of(call.grad_logits, row / call.T, row % call.T);
      for (int64_t v = 0; v < call.V; ++v) {
        store_element(gradients, logits.dtype, v * call.grad_logits.strides[2], kNan);
      }
    }
    return error;
  }

  double* gradient = scratch.take(call.B * call.T);
  for_each_row(call, hook, [&](int64_t b) {
    active[b] = 0;
    for (int64_t t = 0; t < call.T; ++t) active[b] += is_active(call, b, t) ? 1 : 0;
  });
  double n = 0;
  for (int64_t b = 0; b < call.B; ++b) n += active[b];

  const PolicyParams params = policy_params(call);
  const double at_bound = gradient_at_bound(call.params.clamp_gradient);
  const double grad_loss = call.grad_loss.get(0), beta = call.params.beta;
  const Scores scores = make_scores(logits.dtype, call.params.temperature, 0, logits.strides[2]);
  for_each_row(call, hook, [&](int64_t b) {
    for (int64_t t = 0; t < call.T; ++t) {
      double& g = gradient[b * call.T + t];
      g = 0;
      // An id out of range is logp_backward's to tell.
      const int64_t id = call.ids.integer(b, t);
      if (!is_active(call, b, t) || id < 0 || id >= call.V) continue;
      const void* row = row_of(logits, b, t);
      const double lp = score_of(scores, row, id) - call.lse.get(b, t);
      g = surrogate(params, lp, call.old_logp.get(b, t), advantages[b], at_bound).d_log_ratio;
      if (beta != 0) g += beta * kl_term(params, lp, lp, call.ref_logp.get(b, t), 1).d_logp;
      g *= grad_loss / n;
    }
  });

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
