// Gradient of logits from that of their cross entropies. A row streams through once; with a softcap, or with label
// smoothing of weighted classes, it is read and written as in any pass that is rare.
#include "../skeleton/logits.cuh"
#include "../skeleton/rows_all.cuh"

#include <rlk/formula/cross_entropy.hpp>

RLK_SIMT_ALL_THEN_ROWS(
    CrossEntropyBackward,
    (narrow_out(grad_logits), streamed(logits), integer_of_row(ids), integer_of_row(mask), of_row(lse),
     of_row(grad_token_loss), or_one(class_weight), of_call(grad_loss), kept_once(of_all)),
    (CrossEntropyTerms, terms, cross_entropy_terms(call.params, call.class_weight != nullptr)), ({
      double weight = 0, rows = 0, weights = 0;
      if (counts_rows(terms)) {
        const auto sums = all.sums<2>(all.rows(), [&](int64_t n, double(&term)[2]) {
          const int64_t target = all.integer(ids, n, 0);
          // Both are read before either is looked at.
          const bool is_unmasked = all.integer(mask, n, 1) != 0;
          const bool is_active = (target != terms.ignore_index) & is_unmasked;
          term[0] = is_active ? 1 : 0;
          term[1] = is_active && target >= 0 && target < all.columns() ? all.get(class_weight, 0, target, 1) : 0;
        });
        rows = sums.value[0];
        weight = sums.value[1];
      }
      if (terms.smoothing > 0) {
        weights =
            all.sums<1>(all.columns(), [&](int64_t v, double(&term)[1]) { term[0] = all.get(class_weight, 0, v, 1); })
                .value[0];
      }
      const auto share = cross_entropy_shares(terms, weight, rows);
      const double grad = all.get(grad_loss, 0);
      all.put(of_all, share.entropy == 0 ? 0 : share.entropy * grad, 0);
      all.put(of_all, share.square == 0 ? 0 : share.square * grad, 1);
      all.put(of_all, weights, 2);
    }),
    {
      const int64_t target = row.integer(ids, 0);
      if (target == terms.ignore_index || row.integer(mask, 1) == 0) {
        row.fill(to(grad_logits), 0);
        return;
      }
      if (target < 0 || target >= row.columns()) {
        row.report(simt::kDataIdOutOfRange, target);
        row.fill(to(grad_logits), NAN);
        return;
      }
      const double of_token = row.get(grad_token_loss), log_sum = row.get(lse);
      const double own_weight = row.get(class_weight, target, 1), at_target = row.get(logits, target);
      const auto slopes =
          cross_entropy_slopes(terms, row.get(of_all, 0) + of_token, row.get(of_all, 1) + of_token, log_sum, own_weight,
                               row.get(of_all, 2), static_cast<double>(row.columns()));
      if (terms.softcap == 0 && slopes.scale == 1 && (slopes.spread == 0 || !row.has(class_weight))) {
        if (is_empty_row(row, logits, log_sum)) {
          row.report(simt::kDataNoFiniteLogit, 0);
          row.fill(to(grad_logits), NAN);
          return;
        }
        using V = typename Row::A;
        const double log_p = simt::log_probability(at_target, 1, log_sum);
        const double of_p = slopes.of_target * ::expm1(log_p) + (slopes.power - slopes.of_target) * ::exp(log_p);
        const V power = static_cast<V>(slopes.power), spread = static_cast<V>(-slopes.spread);
        row.wait();  // grad_logits may be logits
        put_logit_gradients(row, grad_logits, row.source(logits), target,
                            at_target == -INFINITY ? 0 : of_p - slopes.spread, {log_sum, 1},
                            [=](V x, V p) { return x == -V(INFINITY) ? V(0) : MulAdd(power, p, spread); });
        return;
      }
      row.wait();  // as above
      bool has_score = terms.softcap > 0;
      const auto capped = [&](auto d, auto v) {
        return terms.softcap > 0 ? cap_of(d, v, terms.softcap) : Capped<decltype(v)>{v, number(d, 1)};
      };
      const typename Row::Rare rare{};
      const auto own = capped(rare, number(rare, at_target));
      const double slope_at_target =
          cross_entropy_target_slope(rare, slopes, own.value, number(rare, own_weight), log_sum) * own.slope;
      row.map_but(target, rare, to(grad_logits), from(logits, class_weight),
                  [&](auto d, bool is_target, auto v, auto weight) {
                    const auto z = capped(d, v);
                    const bool is_none = Eq(v, Neg(Inf(d)));
                    has_score = has_score || !is_none;
                    const auto slope = Mul(cross_entropy_slope(d, slopes, z.value, weight, log_sum), z.slope);
                    return IfThenZeroElse(is_none,
                                          Mul(is_target ? number(d, slope_at_target) : slope, number(d, slopes.scale)));
                  });
      if (!row.any(has_score)) {
        row.report(simt::kDataNoFiniteLogit, 0);
        row.fill(to(grad_logits), NAN);
      }
    })
