// Tokens to rows of logp, rows to token losses, token losses to the loss; and back.
#include "core/cpu/policy/grpo_loss.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/advantages/group_advantages.hpp"
#include "core/cpu/logp/logp_backward.hpp"
#include "core/cpu/logp/logp_block.hpp"
#include "core/cpu/policy/policy_kinds.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kGrainTokens = 1024;  // per task at least

// Writes [sequences] advantages; the data error of group_boundaries.
DataError advantages_of(const GrpoBatch& batch, double* advantages, const ParallelFor& hook) {
  namespace group = sdk::ops::group_advantages;
  CallOf<sdk::ops::GroupAdvantages> call;
  call.params.grouping = batch.group_boundaries != nullptr ? Grouping::boundaries : Grouping::fixed;
  call.B = batch.sequences;
  call.G = batch.groups;
  call.params.samples_per_prompt = batch.samples_per_prompt;
  call.group_boundaries = Array::vector(const_cast<void*>(batch.group_boundaries),
                                        batch.boundaries_are_i64 ? Dtype::i64 : Dtype::i32, batch.boundaries_stride);
  call.rewards = Array::vector(batch.rewards, accumulator(batch.logits.dtype), batch.rewards_stride);
  call.params.std = batch.unbiased ? group::Std::unbiased : group::Std::population;
  call.params.eps_mode = batch.additive_eps ? group::EpsMode::additive : group::EpsMode::max_clamp;
  call.params.eps = batch.eps;
  call.advantages = Array::of(advantages);
  return group_advantages(call, {hook});
}

PolicyParams options_of(const GrpoBatch& batch) {
  PolicyParams options;
  options.clip_low = batch.clip_low;
  options.clip_high = batch.clip_high;
  return options;
}

// Whether the tokens of the batch are one run of rows in every tensor, so that one call of logp sees them all.
template <typename... Strides>
bool is_one_run(const GrpoBatch& batch, const Strides*... strides) {
  const auto runs = [&](const int64_t* s) { return s[0] == batch.tokens * s[1]; };
  return batch.sequences <= 1 ||
         (runs(batch.ids_strides) && (batch.mask == nullptr || runs(batch.mask_strides)) && (runs(strides) && ...));
}

// The tokens of sequences b and on, as many as are one run.
LogpRows rows_of(const GrpoBatch& batch, int64_t b, int64_t n) {
  LogpRows rows;
  rows.n = rows.logits_rows = n;
  rows.vocab = batch.vocab;
  const auto* ids = static_cast<const char*>(batch.ids);  // no tokens, no address
  rows.ids = ids == nullptr ? nullptr : ids + b * batch.ids_strides[0] * (batch.ids_are_i64 ? 8 : 4);
  rows.ids_are_i64 = batch.ids_are_i64;
  rows.ids_stride = batch.ids_strides[1];
  rows.mask = batch.mask == nullptr ? nullptr : batch.mask + b * batch.mask_strides[0];
  rows.mask_stride = batch.mask == nullptr ? 0 : batch.mask_strides[1];
  rows.ignore_index = batch.ignore_index;
  return rows;
}

// Calls run(first sequence, tokens) for each run of rows; returns the first data error with the row it has in the
// batch.
template <typename Run>
DataError for_each_run(const GrpoBatch& batch, bool one_run, Run&& run) {
  if (one_run) return run(int64_t{0}, batch.sequences * batch.tokens);
  DataError first;
  for (int64_t b = 0; b < batch.sequences; ++b) {
    DataError error = run(b, batch.tokens);
    error.row += b * batch.tokens;
    if (first.kind == kNoDataError) first = error;
  }
  return first;
}

// logp in fp64 and lse (optional, of the accumulator's dtype) of all tokens, row-major.
DataError token_logp(const GrpoBatch& batch, const GrpoTensor& logits, double* logp_out, void* lse, void* workspace,
                     const ParallelFor& hook) {
  return for_each_run(batch, is_one_run(batch, logits.strides), [&](int64_t b, int64_t n) {
    LogpArgs args;
    args.rows = rows_of(batch, b, n);
    args.dtype = logits.dtype;
    args.logits = element(logits.data, b * logits.strides[0], logits.dtype);
    args.row_stride = logits.strides[1];
    args.col_stride = logits.strides[2];
    args.logp = logp_out + b * batch.tokens;
    args.logp_dtype = Dtype::f64;
    args.lse = element(lse, b * batch.tokens, accumulator(logits.dtype));
    args.temperature = batch.temperature;
    args.workspace = workspace;
    return logp(args, hook);
  });
}

struct SequenceSums {
  double policy = 0, kl = 0, active = 0;
};

int64_t grain_of(const GrpoBatch& batch) {
  return std::max<int64_t>(1, kGrainTokens / std::max<int64_t>(batch.tokens, 1));
}

PolicyTerm surrogate(const PolicyParams& options, double logp, double old_logp, double advantage) {
  const double log_ratio = logp - old_logp;
  return policy_term(options, {logp, old_logp, advantage, log_ratio, std::exp(log_ratio)}, {});
}

void put_scalar(void* to, Dtype dtype, double value) {
  if (to != nullptr) store_element(to, dtype, 0, value);
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

void put_all_nan(const GrpoLossArgs& args) {
  const GrpoBatch& batch = args.batch;
  const Dtype wide = accumulator(batch.logits.dtype);
  put_scalar(args.loss, wide, kNan);
  put_scalar(args.policy_loss, wide, kNan);
  put_scalar(args.kl, wide, kNan);
  for (int64_t b = 0; b < batch.sequences; ++b) {
    if (args.advantages != nullptr) store_element(args.advantages, wide, b * args.advantages_stride, kNan);
    for (int64_t t = 0; t < batch.tokens; ++t) {
      for (const GrpoTensor* output : {&args.lse, &args.logp, &args.ref_logp}) output->put(b, t, kNan);
    }
  }
}

}  // namespace

int64_t grpo_loss_workspace_bytes(int64_t sequences, int64_t tokens, int64_t vocab) {
  const int64_t numbers = (1 + kSums) * sequences + 3 * sequences * tokens;
  return numbers * 8 + std::max(logp_workspace_bytes(sequences * tokens, vocab), logp_workspace_bytes(tokens, vocab));
}

DataError grpo_loss(const GrpoLossArgs& args, const ParallelFor& hook) {
  const GrpoBatch& batch = args.batch;
  const int64_t rows = batch.sequences * batch.tokens;
  const Dtype wide = accumulator(batch.logits.dtype);
  Scratch scratch(args.workspace);
  double* advantages = scratch.take(batch.sequences);
  if (const DataError of_groups = advantages_of(batch, advantages, hook); of_groups.kind != kNoDataError) {
    put_all_nan(args);
    return of_groups;
  }
  auto* sums = reinterpret_cast<SequenceSums*>(scratch.take(kSums * batch.sequences));
  double *lp = scratch.take(rows), *lr = scratch.take(rows), *lse = scratch.take(rows);
  const bool has_ref = args.ref_logits.present();
  DataError error = token_logp(batch, batch.logits, lp, lse, scratch.rest(), hook);
  if (has_ref) {
    const DataError of_ref = token_logp(batch, args.ref_logits, lr, nullptr, scratch.rest(), hook);
    const bool earlier = of_ref.kind != kNoDataError && of_ref.row < error.row;
    if (error.kind == kNoDataError || earlier) error = of_ref;
  }

  const PolicyParams options = options_of(batch);
  parallel_for(hook, batch.sequences, grain_of(batch), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      sums[b] = {};
      if (args.advantages != nullptr) store_element(args.advantages, wide, b * args.advantages_stride, advantages[b]);
      for (int64_t t = 0; t < batch.tokens; ++t) {
        const int64_t row = b * batch.tokens + t;
        args.lse.put(b, t, load_element(lse, wide, row));
        args.logp.put(b, t, lp[row]);
        args.ref_logp.put(b, t, has_ref ? lr[row] : 0);
        if (!batch.is_active(b, t)) continue;
        sums[b].active += 1;
        sums[b].policy += surrogate(options, lp[row], batch.old_logp.at(b, t), advantages[b]).value;
        if (has_ref) sums[b].kl += kl_term(options, lp[row], lr[row], 1).value;
      }
    }
  });

  SequenceSums total;
  for (int64_t b = 0; b < batch.sequences; ++b) {
    total.active += sums[b].active;
    total.policy += sums[b].policy;
    total.kl += sums[b].kl;
  }
  if (total.active > 0) {
    total.policy /= total.active;
    total.kl /= total.active;
  }
  if (error.kind != kNoDataError) total.policy = total.kl = kNan;
  put_scalar(args.loss, wide, batch.beta != 0 ? total.policy + batch.beta * total.kl : total.policy);
  put_scalar(args.policy_loss, wide, total.policy);
  put_scalar(args.kl, wide, total.kl);
  return error;
}

int64_t grpo_loss_backward_workspace_bytes(int64_t sequences, int64_t tokens) {
  return (2 * sequences + sequences * tokens) * 8 + logp_backward_workspace_bytes(sequences * tokens, false);
}

DataError grpo_loss_backward(const GrpoLossBackwardArgs& args, const ParallelFor& hook) {
  const GrpoBatch& batch = args.batch;
  const GrpoTensor& logits = batch.logits;
  Scratch scratch(args.workspace);
  double *advantages = scratch.take(batch.sequences), *active = scratch.take(batch.sequences);
  if (const DataError error = advantages_of(batch, advantages, hook); error.kind != kNoDataError) {
    for (int64_t row = 0; row < batch.sequences * batch.tokens; ++row) {
      const int64_t at =
          row / batch.tokens * args.grad_logits.strides[0] + row % batch.tokens * args.grad_logits.strides[1];
      for (int64_t v = 0; v < batch.vocab; ++v) {
        store_element(args.grad_logits.data, logits.dtype, at + v * args.grad_logits.strides[2], kNan);
      }
    }
    return error;
  }

  double* gradient = scratch.take(batch.sequences * batch.tokens);
  parallel_for(hook, batch.sequences, grain_of(batch), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      active[b] = 0;
      for (int64_t t = 0; t < batch.tokens; ++t) active[b] += batch.is_active(b, t) ? 1 : 0;
    }
  });
  double n = 0;
  for (int64_t b = 0; b < batch.sequences; ++b) n += active[b];

  const PolicyParams options = options_of(batch);
  const Scores scores = make_scores(logits.dtype, batch.temperature, 0, logits.strides[2], nullptr, 0);
  parallel_for(hook, batch.sequences, grain_of(batch), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      for (int64_t t = 0; t < batch.tokens; ++t) {
        double& g = gradient[b * batch.tokens + t];
        g = 0;
        // An id out of range is logp_backward's to tell.
        if (!batch.is_active(b, t) || batch.id(b, t) < 0 || batch.id(b, t) >= batch.vocab) continue;
        const void* row = element(logits.data, b * logits.strides[0] + t * logits.strides[1], logits.dtype);
        const double lp = score_of(scores, row, batch.id(b, t)) - args.lse.at(b, t);
        g = surrogate(options, lp, batch.old_logp.at(b, t), advantages[b]).d_log_ratio;
        if (batch.beta != 0) g += batch.beta * kl_term(options, lp, args.ref_logp.at(b, t), 1).d_logp;
        g *= args.grad_loss / n;
      }
    }
  });

  const bool one_run = is_one_run(batch, logits.strides, args.lse.strides, args.grad_logits.strides);
  return for_each_run(batch, one_run, [&](int64_t b, int64_t rows) {
    LogpBackwardArgs of_logp;
    of_logp.rows = rows_of(batch, b, rows);
    of_logp.dtype = logits.dtype;
    of_logp.logits = element(logits.data, b * logits.strides[0], logits.dtype);
    of_logp.row_stride = logits.strides[1];
    of_logp.col_stride = logits.strides[2];
    of_logp.lse = element(args.lse.data, b * args.lse.strides[0], args.lse.dtype);
    of_logp.lse_stride = args.lse.strides[1];
    of_logp.grad_logp = gradient + b * batch.tokens;
    of_logp.grad_logp_dtype = Dtype::f64;
    of_logp.grad_logits = element(args.grad_logits.data, b * args.grad_logits.strides[0], logits.dtype);
    of_logp.grad_row_stride = args.grad_logits.strides[1];
    of_logp.grad_col_stride = args.grad_logits.strides[2];
    of_logp.temperature = batch.temperature;
    of_logp.workspace = scratch.rest();
    return logp_backward(of_logp, hook);
  });
}

}  // namespace rlk::cpu
