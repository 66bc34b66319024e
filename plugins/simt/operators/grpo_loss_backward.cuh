// Gradient of logits from that of GRPO's loss. A row is read and written once.
#include "../skeleton/advantages.cuh"
#include "../skeleton/logits.cuh"

#include <rlk/formula/grpo.hpp>

RLK_SIMT_ALL_THEN_ROWS(GrpoLossBackward,
                       (out(grad_logits), streamed(logits), integer_of_row(ids), integer_of_row(mask), of_row(old_logp),
                        of_block(rewards), of_row(lse), of_call(grad_loss), of_row(ref_logp),
                        integers_of_call(group_boundaries), kept_of_block(advantage), kept_once(of_all)),
                       (GrpoTerms, terms, grpo_gradient_terms(call.params, call.group_boundaries)), ({
                         const bool sound =
                             group_advantages(all, terms, rewards, group_boundaries,
                                              [&](int64_t b, double value) { all.put_of_block(advantage, b, value); });
                         const auto active = all.sums<1>(all.rows(), [&](int64_t n, double(&term)[1]) {
                           term[0] =
                               all.integer(ids, n, 0) != terms.ignore_index && all.integer(mask, n, 1) != 0 ? 1 : 0;
                         });
                         all.put(of_all, sound ? 0 : NAN);
                         all.put(of_all, all.get(grad_loss, 0) / active.value[0], 1);
                       }),
                       {
                         const int64_t target = row.integer(ids, 0);
                         const double none = row.get(of_all);  // NaN where nothing is a number
                         if (none != none || target == terms.ignore_index || row.integer(mask, 1) == 0) {
                           row.fill(to(grad_logits), none);
                           return;
                         }
                         if (target < 0 || target >= row.columns()) {
                           row.report(simt::kDataIdOutOfRange, target);
                           row.fill(to(grad_logits), NAN);
                           return;
                         }
                         const double log_sum = row.get(lse), logit = row.get(logits, target);
                         if (is_empty_row(row, logits, log_sum)) {
                           row.report(simt::kDataNoFiniteLogit, 0);
                           row.fill(to(grad_logits), NAN);
                           return;
                         }
                         const Lane<double> wide;
                         const double own = simt::logp_by_lse(logit, terms.temperature, log_sum);
                         double slope = grpo_surrogate(terms, own, row.get(old_logp), row.get(advantage)).slope;
                         if (terms.beta != 0)
                           slope = Add(slope, Mul(terms.beta, grpo_kl(own, row.get(ref_logp)).slope));
                         put_logit_gradient(row, grad_logits, logits, target, logit, log_sum,
                                            weighted(wide, row.get(of_all, 1), slope), terms.temperature);
                       })
