// GRPO's loss of logits and rewards: the advantages of groups, then each token's row, whose logits are read once for
// each of both models, then the sums over tokens.
#include "../skeleton/advantages.cuh"
#include "../skeleton/logits.cuh"

#include <rlk/formula/grpo.hpp>

#if defined(RLK_SIMT_ROWS_ON_DEVICE)
namespace rlk::formula {

struct GrpoToken {
  double lse, logp, ref_logp, surrogate, kl;
};

// Of an active token whose id is a column.
template <class Row, int x, int r>
__device__ __forceinline__ GrpoToken grpo_token(Row& row, simt::RowName<x> logits, simt::RowName<r> ref_logits,
                                                const GrpoTerms& terms, int64_t target, double old_logp,
                                                double advantage) {
  const simt::LogitRows rows = logit_rows(row, logits, ref_logits, target, terms.temperature);
  const double own = rows.first.logp, reference = rows.second.logp;
  GrpoToken token{rows.first.lse, own, reference, grpo_surrogate(terms, own, old_logp, advantage).value, 0};
  if (row.has(ref_logits)) token.kl = grpo_kl(own, reference).value;
  const bool is_empty = rows.first.is_empty || rows.second.is_empty;
  if (is_empty) token.surrogate = token.kl = NAN;
  return token;
}

}  // namespace rlk::formula
#endif

RLK_SIMT_ROWS_BETWEEN(
    GrpoLoss,
    (streamed(logits), streamed(ref_logits), integer_of_row(ids), integer_of_row(mask), of_row(old_logp),
     of_block(rewards), integers_of_call(group_boundaries), of_call(loss), of_call(policy_loss), of_call(kl),
     of_row(lse), of_row(logp), of_row(ref_logp), of_block(advantages), kept_of_block(advantage), kept(surrogate),
     kept(estimate), kept_once(of_all)),
    (GrpoTerms, terms, grpo_terms(call.params, call.group_boundaries)), ({
      const bool sound = group_advantages(all, terms, rewards, group_boundaries, [&](int64_t b, double value) {
        all.put_of_block(advantage, b, value);
        all.put_of_block(advantages, b, value);
      });
      all.put(of_all, sound ? 0 : NAN);
    }),
    ({
      const auto sums = all.sums<3>(all.rows(), [&](int64_t n, double(&term)[3]) {
        term[0] = all.integer(ids, n, 0) != terms.ignore_index && all.integer(mask, n, 1) != 0 ? 1 : 0;
        term[1] = all.get(surrogate, n);
        term[2] = all.get(estimate, n);
      });
      const double none = all.get(of_all, 0), active = sums.value[0] > 0 ? sums.value[0] : 1;
      const double of_policy = sums.value[1] / active + none, of_kl = sums.value[2] / active + none;
      all.put(loss, terms.beta != 0 ? of_policy + terms.beta * of_kl : of_policy);
      all.put(policy_loss, of_policy);
      all.put(kl, of_kl);
    }),
    {
      const int64_t target = row.integer(ids, 0);
      const double none = row.get(of_all);  // NaN where nothing is a number
      GrpoToken token{none, none, none, none, none};
      if (none == none && target != terms.ignore_index && row.integer(mask, 1) != 0) {
        if (target < 0 || target >= row.columns()) {
          row.report(simt::kDataIdOutOfRange, target);
          token = {NAN, NAN, row.has(ref_logits) ? NAN : 0, NAN, NAN};
        } else {
          token = grpo_token(row, logits, ref_logits, terms, target, row.get(old_logp), row.get(advantage));
        }
      }
      row.put(lse, token.lse);
      row.put(logp, token.logp);
      row.put(ref_logp, token.ref_logp);
      row.put(surrogate, token.surrogate);
      row.put(estimate, token.kl);
    })
