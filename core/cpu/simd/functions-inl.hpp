// Functions of vectors for formulas: exp, exp(x) - 1 and the logistic function, each good to a few ulp for every
// argument.
//
// Other than exp2 of math-inl.hpp these keep their digits where the argument is large: x log2(e) rounded once is off by
// |x| half ulps, so that exp subtracts the multiple of log(2) in two parts.
#if defined(RLK_CPU_FUNCTIONS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_FUNCTIONS_INL
#undef RLK_CPU_FUNCTIONS_INL
#else
#define RLK_CPU_FUNCTIONS_INL
#endif

#include <hwy/highway.h>

#include <limits>

#include "core/cpu/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// log(2) in two parts; products of the first with whole numbers up to 2^11 are exact. kRatio: (e^r - 1) / r for |r| up
// to log(2) / 2, interpolated at Chebyshev nodes, highest power first; off by 2.5e-8 (fp32) and 2e-18.
template <typename T>
struct Exp;
template <>
struct Exp<float> {
  static constexpr float kLog2e = 0x1.715476p+0f, kHigh = 0x1.62ep-1f, kLow = 0x1.0bfbe8p-15f;
  static constexpr float kLowest = -86.6f;           // below it is 0, or right
  static constexpr float kNothing = -106.0f;         // 0 for every rounding
  static constexpr float kHighest = 0x1.62e42ep+6f;  // the last that is finite
  static constexpr float kRatio[6] = {0x1.6d4324p-10f, 0x1.123d90p-7f, 0x1.5554eap-5f, 0x1.55547cp-3f, 0.5f, 1.0f};
};
template <>
struct Exp<double> {
  static constexpr double kLog2e = 0x1.71547652b82fep+0, kHigh = 0x1.62e42fefa2p-1, kLow = 0x1.9ef35793c7673p-41;
  static constexpr double kLowest = -707.7, kNothing = -750;
  static constexpr double kHighest = 0x1.62e42fefa39efp+9;
  static constexpr double kRatio[12] = {0x1.1f7f2776cfaf2p-29,
                                        0x1.af632a0f7e2cep-26,
                                        0x1.27e4d41966f2fp-22,
                                        0x1.71ddf56d8deb5p-19,
                                        0x1.a01a01a9e991bp-16,
                                        0x1.a01a01b1461c5p-13,
                                        0x1.6c16c16c15a68p-10,
                                        0x1.111111110f21ep-7,
                                        0x1.5555555555557p-5,
                                        0x1.555555555555ap-3,
                                        0.5,
                                        1.0};
};

#if RLK_CPU_SCALEF
// 2^(j/16), and (e^r - 1) / r for |r| up to log(2) / 32, as above; r times it is off by 1.4e-17.
struct ExpBySixteenths {
  static constexpr double kRound = 0x1.8p48;  // adding it rounds to sixteenths, held in the low bits
  static constexpr double kRatio[6] = {0x1.6c17ed4cc4834p-10, 0x1.11123cf1dba3ap-7, 0x1.55555554e9468p-5,
                                       0x1.555555547d378p-3,  0x1.0000000000001p-1, 0x1.0000000000003p+0};
  alignas(64) static constexpr double kPowers[16] = {
      0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0,
      0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0,
      0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0,
      0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0};
};
#endif

// exp(x) = 2^k (1 + ratio r) in parts: k as a number and in the low bits of `shifted`. x lies between Exp's limits.
template <class V>
struct ExpParts {
  V shifted, k, r, ratio;
};
template <class D, class V = hn::VFromD<D>>
HWY_INLINE ExpParts<V> exp_parts(D d, V x) {
  using T = hn::TFromD<D>;
  const auto round = hn::Set(d, Exp2<T>::kRound);
  const auto shifted = hn::MulAdd(x, hn::Set(d, Exp<T>::kLog2e), round);
  const auto k = hn::Sub(shifted, round);
  auto r = hn::NegMulAdd(k, hn::Set(d, Exp<T>::kHigh), x);
  r = hn::NegMulAdd(k, hn::Set(d, Exp<T>::kLow), r);
  return {shifted, k, r, polynomial(d, r, Exp<T>::kRatio)};
}
// The bits that multiply a number of [0.5, 2] by 2^k when they are added to its own.
template <class D, class V>
HWY_INLINE auto exponent_bits(D /*d*/, const ExpParts<V>& parts) {
  const hn::RebindToUnsigned<D> du;
  return hn::ShiftLeft<Exp2<hn::TFromD<D>>::kMantissa>(hn::BitCast(du, parts.shifted));
}

#if RLK_CPU_SCALEF
// x becomes exp(x), of several vectors step by step side by side (see exp2_four), where |x| is at most 2^20, or NaN. A
// table of sixteen powers halves the polynomial.
template <size_t kVectors>
HWY_INLINE void exp_of_bounded(hn::Vec512<double> (&x)[kVectors]) {
  using By = ExpBySixteenths;
  const hn::Full512<double> d;
  const auto round = hn::Set(d, By::kRound);
  hn::Vec512<double> shifted[kVectors], sum[kVectors];
  for (size_t i = 0; i < kVectors; ++i) shifted[i] = hn::MulAdd(x[i], hn::Set(d, Exp<double>::kLog2e), round);
  const auto whole = [&](size_t i) HWY_ATTR { return hn::Sub(shifted[i], round); };
  for (size_t i = 0; i < kVectors; ++i) x[i] = hn::NegMulAdd(whole(i), hn::Set(d, Exp<double>::kHigh), x[i]);
  for (size_t i = 0; i < kVectors; ++i) x[i] = hn::NegMulAdd(whole(i), hn::Set(d, Exp<double>::kLow), x[i]);
  for (size_t i = 0; i < kVectors; ++i) sum[i] = hn::MulAdd(hn::Set(d, By::kRatio[0]), x[i], hn::Set(d, By::kRatio[1]));
  for (size_t k = 2; k < 6; ++k) {
    for (size_t i = 0; i < kVectors; ++i) sum[i] = hn::MulAdd(sum[i], x[i], hn::Set(d, By::kRatio[k]));
  }
  for (size_t i = 0; i < kVectors; ++i) {
    const auto power = one_of_sixteen(By::kPowers, shifted[i]);
    x[i] = scale_by_power(hn::MulAdd(hn::Mul(power, x[i]), sum[i], power), whole(i));
  }
}
#endif

// NaN stays NaN; what is below the smallest normal number is right or 0.
template <class D>
HWY_INLINE hn::VFromD<D> exp(D d, hn::VFromD<D> x) {
  using T = hn::TFromD<D>;
#if RLK_CPU_SCALEF
  // Between limits beyond which every result is infinity or 0.
  const auto bounded = at_most(d, Exp<T>::kHighest + 2, at_least(d, Exp<T>::kNothing, x));
  if constexpr (sizeof(T) == 8) {
    hn::VFromD<D> power[1] = {bounded};
    exp_of_bounded(power);
    return power[0];
  } else {
    const auto parts = exp_parts(d, bounded);
    return scale_by_power(hn::MulAdd(parts.ratio, parts.r, hn::Set(d, T{1})), parts.k);
  }
#else
  const auto one = hn::Set(d, T{1});
  const hn::RebindToUnsigned<D> du;
  const auto is_tiny = hn::Lt(x, hn::Set(d, Exp<T>::kLowest));
  const auto is_huge = hn::Gt(x, hn::Set(d, Exp<T>::kHighest));
  const auto parts = exp_parts(d, at_most(d, Exp<T>::kHighest, at_least(d, Exp<T>::kLowest, x)));
  const auto mantissa = hn::BitCast(du, hn::MulAdd(parts.ratio, parts.r, one));
  const auto power = hn::BitCast(d, hn::Add(mantissa, exponent_bits(d, parts)));
  const auto finite = hn::IfThenZeroElse(is_tiny, power);
  return hn::IfThenElse(is_huge, hn::Set(d, std::numeric_limits<T>::infinity()), finite);
#endif
}
#if !RLK_CPU_SCALEF
template <size_t kVectors, class V>
HWY_INLINE void exp_of_bounded(V (&x)[kVectors]) {
  for (V& v : x) v = exp(hn::DFromV<V>(), v);
}
#endif

// exp(x) - 1 = 2^k ratio r + (2^k - 1), with all digits near 0.
template <class D>
HWY_INLINE hn::VFromD<D> exp_minus_one(D d, hn::VFromD<D> x) {
  using T = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  const auto one = hn::Set(d, T{1});
  const auto is_near = hn::Lt(hn::Abs(x), hn::Set(d, T{8}));
  const auto parts = exp_parts(d, hn::IfThenElseZero(is_near, x));
  const auto scale = hn::BitCast(d, hn::Add(hn::BitCast(du, one), exponent_bits(d, parts)));
  const auto near = hn::MulAdd(scale, hn::Mul(parts.ratio, parts.r), hn::Sub(scale, one));
  if (hn::AllTrue(d, is_near)) return near;
  return hn::IfThenElse(is_near, near, hn::Sub(exp(d, x), one));
}

// 1 / (1 + exp(-x))
template <class D>
HWY_INLINE hn::VFromD<D> sigmoid(D d, hn::VFromD<D> x) {
  const auto one = hn::Set(d, hn::TFromD<D>{1});
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
