// Importance ratio and KL estimate of every token from logits, each read once.
#include "../skeleton/logits.cuh"

#include <rlk/formula/logits_ratio_kl.hpp>

RLK_SIMT_ROWS_BY(LogitsRatioKl,
                 (streamed(logits), streamed(ref_logits), integer_of_row(ids), integer_of_row(mask), of_row(old_logp),
                  of_row(ratio), of_row(kl), of_row(logp), of_row(lse), of_row(ref_logp)),
                 (LogitsRatioKlTerms, terms,
                  logits_ratio_kl_terms(call.params, call.old_logp != nullptr, call.kl != nullptr)),
                 {
                   const Lane<double> wide;
                   const int64_t target = row.integer(ids, 0);
                   const bool is_active = target != terms.ignore_index && row.integer(mask, 1) != 0;
                   double own = 0, own_lse = 0, reference = 0, estimate = 0;
                   if (is_active && (target < 0 || target >= row.columns())) {
                     row.report(simt::kDataIdOutOfRange, target);
                     own = own_lse = NAN;
                     reference = row.has(ref_logits) ? NAN : 0;
                   } else if (is_active) {
                     const simt::LogitRows rows = logit_rows(row, logits, ref_logits, target, terms.temperature);
                     own = rows.first.logp;
                     own_lse = rows.first.lse;
                     reference = rows.second.logp;
                   }
                   const double old = row.get(old_logp), is_kept = is_active ? 1 : 0;
                   if (terms.of_tokens.has_kl) estimate = kl_of(wide, terms.of_tokens, own, old, reference, is_kept);
                   row.put(ratio, ratio_of(wide, terms.of_tokens, own, old, is_kept));
                   row.put(kl, estimate);
                   row.put(logp, own);
                   row.put(lse, own_lse);
                   row.put(ref_logp, reference);
                 })
