// Functions of vectors for formulas: exp, exp(x) - 1, the logistic function, each good to a few ulp for every argument,
// and erf, good to 1e-7 (fp32) and 3e-16 (fp64) beside 1.
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
  static constexpr float kLowest = -86.6f;           // below it is 0
  static constexpr float kHighest = 0x1.62e42ep+6f;  // the last that is finite
  static constexpr float kRatio[6] = {0x1.6d4324p-10f, 0x1.123d90p-7f, 0x1.5554eap-5f, 0x1.55547cp-3f, 0.5f, 1.0f};
};
template <>
struct Exp<double> {
  static constexpr double kLog2e = 0x1.71547652b82fep+0, kHigh = 0x1.62e42fefa2p-1, kLow = 0x1.9ef35793c7673p-41;
  static constexpr double kLowest = -707.7;
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

// exp(x) = 2^k (1 + small): the two parts. x lies between Exp's limits.
template <class D>
HWY_INLINE void exp_parts(D d, hn::VFromD<D> x, hn::VFromD<D>& scale_bits, hn::VFromD<D>& small) {
  using T = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  const auto round = hn::Set(d, Exp2<T>::kRound);
  const auto shifted = hn::MulAdd(x, hn::Set(d, Exp<T>::kLog2e), round);
  const auto k = hn::Sub(shifted, round);
  auto r = hn::NegMulAdd(k, hn::Set(d, Exp<T>::kHigh), x);
  r = hn::NegMulAdd(k, hn::Set(d, Exp<T>::kLow), r);
  small = hn::Mul(polynomial(d, r, Exp<T>::kRatio), r);
  scale_bits = hn::BitCast(d, hn::ShiftLeft<Exp2<T>::kMantissa>(hn::BitCast(du, shifted)));
}

// NaN stays NaN; what is below the smallest normal number is 0.
template <class D>
HWY_INLINE hn::VFromD<D> exp(D d, hn::VFromD<D> x) {
  using T = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  const auto is_tiny = hn::Lt(x, hn::Set(d, Exp<T>::kLowest));
  const auto is_huge = hn::Gt(x, hn::Set(d, Exp<T>::kHighest));
  auto bits = hn::Zero(d), small = bits;
  exp_parts(d, at_most(d, Exp<T>::kHighest, at_least(d, Exp<T>::kLowest, x)), bits, small);
  const auto mantissa = hn::BitCast(du, hn::Add(hn::Set(d, T{1}), small));
  const auto power = hn::BitCast(d, hn::Add(mantissa, hn::BitCast(du, bits)));
  const auto finite = hn::IfThenZeroElse(is_tiny, power);
  return hn::IfThenElse(is_huge, hn::Set(d, std::numeric_limits<T>::infinity()), finite);
}

// exp(x) - 1 = 2^k small + (2^k - 1), with all digits near 0.
template <class D>
HWY_INLINE hn::VFromD<D> exp_minus_one(D d, hn::VFromD<D> x) {
  using T = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  const auto one = hn::Set(d, T{1});
  const auto is_near = hn::Lt(hn::Abs(x), hn::Set(d, T{8}));
  auto bits = hn::Zero(d), small = bits;
  exp_parts(d, hn::IfThenElseZero(is_near, x), bits, small);
  const auto scale = hn::BitCast(d, hn::Add(hn::BitCast(du, one), hn::BitCast(du, bits)));
  const auto near = hn::MulAdd(scale, small, hn::Sub(scale, one));
  if (hn::AllTrue(d, is_near)) return near;
  return hn::IfThenElse(is_near, near, hn::Sub(exp(d, x), one));
}

// 1 / (1 + exp(-x))
template <class D>
HWY_INLINE hn::VFromD<D> sigmoid(D d, hn::VFromD<D> x) {
  const auto one = hn::Set(d, hn::TFromD<D>{1});
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}

// erfc(x) exp(x^2) for x >= 0 as a polynomial of t = (x - k) / (x + k), highest power first: interpolated at Chebyshev
// nodes, off by 1.4e-8 (k = 2) and 5e-17 (k = 3).
constexpr float kErfF32[11] = {3.76202652e-06f,  1.09845154e-04f,  6.31604676e-05f, -9.21546963e-04f,
                               -8.54943012e-04f, 6.97187973e-03f,  3.73421912e-03f, -7.89740899e-02f,
                               2.41658129e-01f,  -4.27186070e-01f, 2.55395676e-01f};
constexpr double kErfF64[23] = {
    6.643453056687051e-10,  -8.094526670814713e-11, -7.13545624922474e-09,  -1.736801007668219e-09,
    4.442333689876872e-08,  3.2416490857268025e-08, -2.324602315004507e-07, -2.973197304864827e-07,
    1.2512303414399659e-06, 2.121889158013071e-06,  -7.977654048876724e-06, -1.2861183668613251e-05,
    6.405644001950549e-05,  4.525546089582922e-05,  -0.0005970619314950936, 0.0007077464152211896,
    0.004269136331436637,   -0.024392499316733204,  0.07166583719803174,    -0.15011593650085095,
    0.24560380171233026,    -0.3262335600430364,    0.17900115118138996};

template <class D>
HWY_INLINE hn::VFromD<D> erf(D d, hn::VFromD<D> x) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1}), k = hn::Set(d, sizeof(T) == 4 ? T{2} : T{3});
  const auto magnitude = at_most(d, T{30}, hn::Abs(x));  // from there it is 1
  const auto t = hn::Div(hn::Sub(magnitude, k), hn::Add(magnitude, k));
  auto polynomial = hn::Zero(d);
  if constexpr (sizeof(T) == 4) {
    for (const float c : kErfF32) polynomial = hn::MulAdd(polynomial, t, hn::Set(d, c));
  } else {
    for (const double c : kErfF64) polynomial = hn::MulAdd(polynomial, t, hn::Set(d, c));
  }
  const auto power = exp(d, hn::Neg(hn::Mul(magnitude, magnitude)));
  return hn::CopySign(hn::NegMulAdd(polynomial, power, one), x);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
