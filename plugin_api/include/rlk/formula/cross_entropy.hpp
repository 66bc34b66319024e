// Cross entropy of a row of logits, and the gradient of each: a cap of logits, and what a logit adds to a row.
#if defined(RLK_FORMULA_CROSS_ENTROPY) == \
    defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_CROSS_ENTROPY
#undef RLK_FORMULA_CROSS_ENTROPY
#else
#define RLK_FORMULA_CROSS_ENTROPY
#endif

#include <rlk/formula/cross_entropy_rows.hpp>
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

// w (z - largest), of which a weight of 0 leaves nothing.
template <class D, class V>
RLK_FORMULA V weighted_score(D d, V z, V weight, double largest) {
  return IfThenZeroElse(Eq(weight, Zero(d)), Mul(weight, Sub(z, number(d, largest))));
}

// The gradient of a score is scale (power p - spread w), with p - 1 for p in the part of power that is of_target.
struct CrossEntropySlopes {
  double power, spread, of_target, scale;
};
RLK_FORMULA CrossEntropySlopes cross_entropy_slopes(const formula::CrossEntropyTerms& terms, double of_entropy,
                                                    double of_square, double lse, double weight, double weights,
                                                    double classes) {
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
