// Cross entropy of rows of logits. A row streams through once, with label smoothing twice, and with a softcap as in any
// pass that is rare.
#include "../skeleton/logits.cuh"
#include "../skeleton/rows_all.cuh"

#include <rlk/formula/cross_entropy.hpp>

#if defined(RLK_SIMT_ROWS_ON_DEVICE)
namespace rlk::formula {

struct CrossEntropyRow {
  double entropy, square, lse;
};

// A row's log-sum-exp and its target's logarithm, of capped logits.
template <class Row, int x>
__device__ __forceinline__ simt::LogitRow capped_row(Row& row, simt::RowName<x> logits, double softcap,
                                                     int64_t target) {
  const typename Row::Rare rare{};
  const auto score = [=](auto d, auto v) { return cap_of(d, v, softcap).value; };
  const auto p = row.powers(rare, from(logits), score);
  const bool is_empty = p.sum == 0;
  if (is_empty) row.report(simt::kDataNoFiniteLogit, 0);
  const double log_sum = is_empty ? NAN : p.log_sum();
  simt::LogitRow out{0, p.largest + log_sum, p.largest, log_sum, is_empty};
  out.logp = out.logp_of(score(rare, number(rare, row.get(logits, target))), 1);
  return out;
}

// Of an active row whose target is a column.
template <class Row, int x, int w>
__device__ __forceinline__ CrossEntropyRow cross_entropy_row(Row& row, simt::RowName<x> logits,
                                                             simt::RowName<w> class_weight,
                                                             const CrossEntropyTerms& terms, int64_t target) {
  const simt::LogitRow of = terms.softcap > 0 ? capped_row(row, logits, terms.softcap, target)
                                              : logit_row(row, row.source(logits), target, 1);
  Two<double> of_classes{0, 0};
  if (terms.smoothing > 0) {
    of_classes = row.sums(
        typename Row::Rare(), from(logits, class_weight),
        [=](auto d, auto v, auto weight) {
          return weighted_score(d, terms.softcap > 0 ? cap_of(d, v, terms.softcap).value : v, weight, of.largest);
        },
        [](auto, auto, auto weight) { return weight; });
  }
  const double entropy = cross_entropy_of(terms, of.logp, of.log_sum, row.get(class_weight, target, 1),
                                          of_classes.second, of_classes.first, static_cast<double>(row.columns()));
  return {entropy, terms.square_scale > 0 ? terms.square_scale * of.lse * of.lse : 0, of.lse};
}

}  // namespace rlk::formula
#endif

RLK_SIMT_ROWS_THEN_ALL(CrossEntropy,
                       (streamed(logits), integer_of_row(ids), integer_of_row(mask), or_one(class_weight),
                        of_row(token_loss), of_row(lse), of_call(loss), of_call(z_loss), kept(entropy), kept(square),
                        kept(active), kept(weight)),
                       (CrossEntropyTerms, terms, cross_entropy_terms(call.params, call.class_weight != nullptr)), ({
                         const auto sums = all.sums<4>(all.rows(), [&](int64_t n, double(&term)[4]) {
                           term[0] = all.kept(entropy, n);
                           term[1] = all.kept(square, n);
                           term[2] = all.kept(active, n);
                           term[3] = all.kept(weight, n);
                         });
                         const auto share = cross_entropy_shares(terms, sums.value[3], sums.value[2]);
                         const double of_squares = reduced(terms, sums.value[1], share.square);
                         all.put(loss, reduced(terms, sums.value[0], share.entropy) + of_squares);
                         all.put(z_loss, of_squares);
                       }),
                       {
                         const int64_t target = row.integer(ids, 0);
                         const bool is_active = target != terms.ignore_index && row.integer(mask, 1) != 0;
                         const bool is_column = target >= 0 && target < row.columns();
                         CrossEntropyRow of{0, 0, 0};
                         if (is_active) {
                           if (!is_column) {
                             row.report(simt::kDataIdOutOfRange, target);
                             of = {NAN, terms.square_scale > 0 ? NAN : 0, NAN};
                           } else {
                             of = cross_entropy_row(row, logits, class_weight, terms, target);
                           }
                         }
                         row.put(active, is_active ? 1.0 : 0.0);
                         row.put(weight, is_active && is_column ? row.get(class_weight, target, 1) : 0.0);
                         row.put(entropy, of.entropy);
                         row.put(square, of.square);
                         row.put(token_loss, of.entropy + of.square);
                         row.put(lse, of.lse);
                       })
