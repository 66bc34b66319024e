// Cross entropy of a row of logits, and the gradient of each: a cap of logits, what the reduction divides by, and what
// is made of a row's log-sum-exp.
#if defined(RLK_FORMULA_CROSS_ENTROPY) == \
    defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_CROSS_ENTROPY
#undef RLK_FORMULA_CROSS_ENTROPY
#else
#define RLK_FORMULA_CROSS_ENTROPY
#endif

#include <rlk/formula/vocabulary.hpp>

RLK_FORMULA_BEGIN

// softcap tanh(x / softcap), and its slope, from the power that is at most 1.
template <class V>
struct Capped {
  V value, slope;
};
template <class D, class V>
RLK_FORMULA Capped<V> cap_of(D d, V x, double softcap) {
  const V u = Div(x, number(d, softcap)), two = number(d, 2.0);
  const V power = exp_minus_one(d, Mul(number(d, -2.0), Abs(u)));
  const V t = Div(Neg(power), Add(two, power));
  return {CopySign(Mul(number(d, softcap), t), x), Sub(number(d, 1.0), Mul(t, t))};
}

// What the parameters of a call say.
struct CrossEntropyTerms {
  enum class Reduction { mean, sum, none };
  double smoothing, square_scale, softcap, denominator;
  long long ignore_index;
  Reduction reduction;
  bool is_weighted;

  bool asks_f64() const { return softcap > 0 && (softcap < 0x1p-60 || softcap > 0x1p60); }
};
template <class Params>
RLK_FORMULA CrossEntropyTerms cross_entropy_terms(const Params& params, bool is_weighted) {
  using Reduction = decltype(params.reduction);
  CrossEntropyTerms terms{};
  terms.smoothing = params.label_smoothing;
  terms.square_scale = params.lse_square_scale;
  terms.softcap = params.softcap;
  terms.denominator = params.denominator;
  terms.ignore_index = params.ignore_index;
  terms.reduction = params.reduction == Reduction::mean  ? CrossEntropyTerms::Reduction::mean
                    : params.reduction == Reduction::sum ? CrossEntropyTerms::Reduction::sum
                                                         : CrossEntropyTerms::Reduction::none;
  terms.is_weighted = is_weighted;
  return terms;
}

// 1 / D and 1 / Z of the declaration; 0 where nothing is divided. weight and rows: of the active rows.
struct CrossEntropyShares {
  double entropy, square;
};
RLK_FORMULA bool counts_rows(const CrossEntropyTerms& terms) {
  return terms.reduction == CrossEntropyTerms::Reduction::mean && !(terms.denominator > 0);
}
RLK_FORMULA CrossEntropyShares cross_entropy_shares(const CrossEntropyTerms& terms, double weight, double rows) {
  if (terms.reduction == CrossEntropyTerms::Reduction::none) return {0, 0};
  if (terms.denominator > 0) return {1 / terms.denominator, 1 / terms.denominator};
  if (terms.reduction == CrossEntropyTerms::Reduction::sum) return {1, 1};
  const double own = terms.is_weighted ? weight : rows;
  return {own == 0 ? 0 : 1 / own, rows == 0 ? 0 : 1 / rows};
}
// Without a weight a mean is 0, but not where a row is no number.
RLK_FORMULA double reduced(const CrossEntropyTerms& terms, double sum, double share) {
  const bool is_none = terms.reduction == CrossEntropyTerms::Reduction::none;
  return is_none || (share == 0 && sum == sum) ? 0 : sum * share;
}

// w (z - largest), of which a weight of 0 leaves nothing.
template <class D, class V>
RLK_FORMULA V weighted_score(D d, V z, V weight, double largest) {
  return IfThenZeroElse(Eq(weight, Zero(d)), Mul(weight, Sub(z, number(d, largest))));
}

// A row's own numbers; weights: the sum of the classes', score_sum: of weighted_score.
RLK_FORMULA double cross_entropy_of(const CrossEntropyTerms& terms, double logp, double log_sum, double weight,
                                    double weights, double score_sum, double classes) {
  const double own = (1 - terms.smoothing) * weight;
  double loss = own == 0 && logp - logp != 0 && logp == logp ? 0 : own * -logp;
  if (terms.smoothing > 0) loss += terms.smoothing / classes * (weights * log_sum - score_sum);
  return loss;
}

// The gradient of a score is scale (power p - spread w), with p - 1 for p in the part of power that is of_target.
struct CrossEntropySlopes {
  double power, spread, of_target, scale;
};
RLK_FORMULA CrossEntropySlopes cross_entropy_slopes(const CrossEntropyTerms& terms, double of_entropy, double of_square,
                                                    double lse, double weight, double weights, double classes) {
  CrossEntropySlopes slopes{0, 0, (1 - terms.smoothing) * weight * of_entropy, 1};
  slopes.power = slopes.of_target;
  if (terms.smoothing > 0) {
    slopes.spread = terms.smoothing / classes * of_entropy;
    slopes.power += slopes.spread * weights;
  }
  if (terms.square_scale > 0) slopes.power += 2 * terms.square_scale * lse * of_square;
  // Large slopes times small probabilities are within the range of fp32.
  const double most = Abs(slopes.power) + Abs(slopes.spread) + Abs(slopes.of_target);
  if (most > 0x1p100 && IsFinite(most)) {
    slopes.power *= 0x1p-100;
    slopes.spread *= 0x1p-100;
    slopes.of_target *= 0x1p-100;
    slopes.scale = 0x1p100;
  }
  return slopes;
}
template <class D, class V>
RLK_FORMULA V cross_entropy_slope(D d, const CrossEntropySlopes& slopes, V z, V weight, double lse) {
  const V power = Mul(number(d, slopes.power), exp(d, Sub(z, number(d, lse))));
  return slopes.spread == 0 ? power : NegMulAdd(number(d, slopes.spread), weight, power);
}
// Of the target.
template <class D, class V>
RLK_FORMULA V cross_entropy_target_slope(D d, const CrossEntropySlopes& slopes, V z, V weight, double lse) {
  const V log_p = Sub(z, number(d, lse)), missed = exp_minus_one(d, log_p);
  const V others = Mul(number(d, slopes.power - slopes.of_target), exp(d, log_p));
  const V power = MulAdd(number(d, slopes.of_target), missed, others);
  return slopes.spread == 0 ? power : NegMulAdd(number(d, slopes.spread), weight, power);
}

RLK_FORMULA_END
#endif
