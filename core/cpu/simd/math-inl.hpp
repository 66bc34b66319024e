// exp2 and tanh on vectors, for every Highway target: short polynomials of our own.
//
// The general exp of a library spends half its time on arguments that a softmax never has. Here the argument is bounded
// by the caller, and base 2 makes rescaling between blocks exact (a power of two). Maximum relative errors, found by
// tests/unit/cpu/math_test.cpp: exp2 1e-7 (fp32) and 2e-16 (fp64), tanh 2.5e-7 and 5e-16.
#if defined(RLK_CPU_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_MATH_INL
#undef RLK_CPU_MATH_INL
#else
#define RLK_CPU_MATH_INL
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
struct Exp2;
template <>
struct Exp2<float> {
  static constexpr float kLowest = -125.0f;     // below, callers treat 2^y as 0
  static constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
  static constexpr float kHighest = 128.0f;     // gives infinity
  static constexpr int kMantissa = 23;
};
template <>
struct Exp2<double> {
  static constexpr double kLowest = -1021.0;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kHighest = 1024.0;
  static constexpr int kMantissa = 52;
};

// 2^f on [-1/2, 1/2], highest power first.
constexpr float kExp2F32[7] = {
    0x1.44138ap-13f, 0x1.5f0890p-10f, 0x1.3b2a54p-7f, 0x1.c6af6cp-5f, 0x1.ebfbe0p-3f, 0x1.62e430p-1f, 1.0f};

// The polynomial with these coefficients, highest power first.
template <class D>
HWY_INLINE hn::VFromD<D> polynomial(D d, hn::VFromD<D> x, const float (&c)[6]) {
  auto sum = hn::MulAdd(hn::Set(d, c[0]), x, hn::Set(d, c[1]));
  for (int i = 2; i < 6; ++i) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}
// In pairs and pairs of pairs: in a chain of eleven products each waits for the one before. The last step stays as in
// the chain, which keeps the sum's error at about one rounding.
template <class D>
HWY_INLINE hn::VFromD<D> polynomial(D d, hn::VFromD<D> x, const double (&c)[12]) {
  const auto pair = [&](int i) HWY_ATTR { return hn::MulAdd(hn::Set(d, c[i]), x, hn::Set(d, c[i + 1])); };
  const auto x2 = hn::Mul(x, x), x4 = hn::Mul(x2, x2);
  const auto high = hn::MulAdd(hn::Set(d, c[0]), x2, pair(1));
  const auto middle = hn::MulAdd(pair(3), x2, pair(5));
  const auto low = hn::MulAdd(pair(7), x2, pair(9));
  const auto rest = hn::MulAdd(hn::MulAdd(high, x4, middle), x4, low);
  return hn::MulAdd(rest, x, hn::Set(d, c[11]));
}

// (2^f - 1) / f on [-1/2, 1/2], interpolated at Chebyshev nodes.
template <typename T>
struct Exp2Ratio;
template <>
struct Exp2Ratio<float> {
  static constexpr float kOf[6] = {kExp2F32[0], kExp2F32[1], kExp2F32[2], kExp2F32[3], kExp2F32[4], kExp2F32[5]};
};
template <>
struct Exp2Ratio<double> {
  static constexpr double kOf[12] = {2.5729324177362305e-11, 4.4558179083360645e-10, 7.0548973041554995e-09,
                                     1.0178057087733941e-07, 1.3215486808705563e-06, 1.5252733841556773e-05,
                                     0.00015403530393370734, 0.001333355814640647,   0.00961812910762848,
                                     0.055504108664821625,   0.24022650695910072,    0.6931471805599453};
};

// max(low, y) and min(high, y), but NaN where y is NaN. x86 and Arm's instructions do that with this order of operands.
template <class V>
HWY_INLINE V at_least(V low, V y) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Max(low, y);
#else
  return hn::IfThenElse(hn::Lt(y, low), low, y);
#endif
}
template <class D>
HWY_INLINE hn::VFromD<D> at_least(D d, hn::TFromD<D> low, hn::VFromD<D> y) {
  return at_least(hn::Set(d, low), y);
}
template <class D>
HWY_INLINE hn::VFromD<D> at_most(D d, hn::TFromD<D> high, hn::VFromD<D> y) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Min(hn::Set(d, high), y);
#else
  return hn::IfThenElse(hn::Gt(y, hn::Set(d, high)), hn::Set(d, high), y);
#endif
}

// The largest lane; unspecified when a NaN is among them. MaxOfLanes of the emulated targets knows nothing below the
// lowest finite number, and would make one of -inf.
template <class D>
HWY_INLINE hn::TFromD<D> largest_lane(D d, hn::VFromD<D> v) {
  hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::StoreU(v, d, lanes);
  hn::TFromD<D> largest = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  return largest;
}

// 2^y for y in [Exp2::kLowest, Exp2::kHighest]; NaN stays NaN.
template <class D>
HWY_INLINE hn::VFromD<D> exp2_bounded(D d, hn::VFromD<D> y) {
  using T = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  const auto round = hn::Set(d, Exp2<T>::kRound);
  const auto shifted = hn::Add(y, round);
  const auto f = hn::Sub(y, hn::Sub(shifted, round));
  const auto power = hn::MulAdd(polynomial(d, f, Exp2Ratio<T>::kOf), f, hn::Set(d, T{1}));
  const auto exponent = hn::ShiftLeft<Exp2<T>::kMantissa>(hn::BitCast(du, shifted));
  return hn::BitCast(d, hn::Add(hn::BitCast(du, power), exponent));
}

#undef RLK_CPU_SCALEF
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define RLK_CPU_SCALEF 1
// AVX-512 has the two steps around the polynomial as instructions, right for every argument: y - nearest(y), which is 0
// for infinities, and v * 2^k, which saturates.
HWY_INLINE hn::Vec512<float> distance_to_integer(hn::Vec512<float> y) {
  return hn::Vec512<float>{_mm512_reduce_ps(y.raw, 0)};
}
HWY_INLINE hn::Vec512<double> distance_to_integer(hn::Vec512<double> y) {
  return hn::Vec512<double>{_mm512_reduce_pd(y.raw, 0)};
}
HWY_INLINE hn::Vec512<float> scale_by_power(hn::Vec512<float> v, hn::Vec512<float> k) {
  return hn::Vec512<float>{_mm512_scalef_ps(v.raw, k.raw)};
}
// For k that is no whole number the next below is taken.
HWY_INLINE hn::Vec512<double> scale_by_power(hn::Vec512<double> v, hn::Vec512<double> k) {
  return hn::Vec512<double>{_mm512_scalef_pd(v.raw, k.raw)};
}
// Of sixteen numbers the one that the last four bits of `index` name.
HWY_INLINE hn::Vec512<double> one_of_sixteen(const double* numbers, hn::Vec512<double> index) {
  const hn::Full512<double> d;
  const auto low = hn::Load(d, numbers), high = hn::Load(d, numbers + 8);
  return hn::Vec512<double>{_mm512_permutex2var_pd(low.raw, _mm512_castpd_si512(index.raw), high.raw)};
}
#else
#define RLK_CPU_SCALEF 0
#endif

// 2^y for every y; below Exp2::kLowest the result is right or 0. NaN stays NaN.
template <class D>
HWY_INLINE hn::VFromD<D> exp2(D d, hn::VFromD<D> y) {
  using T = hn::TFromD<D>;
#if RLK_CPU_SCALEF
  const auto f = distance_to_integer(y);
  const auto power = hn::MulAdd(polynomial(d, f, Exp2Ratio<T>::kOf), f, hn::Set(d, T{1}));
  return scale_by_power(power, hn::Sub(y, f));
#else
  const auto is_tiny = hn::Lt(y, hn::Set(d, Exp2<T>::kLowest));
  const auto bounded = at_most(d, Exp2<T>::kHighest, at_least(d, Exp2<T>::kLowest, y));
  return hn::IfThenZeroElse(is_tiny, exp2_bounded(d, bounded));
#endif
}

// The same, but below Exp2::kLowest the result may be anything up to 2^kLowest: for sums with a term near 1.
template <class D>
HWY_INLINE hn::VFromD<D> exp2_for_sum(D d, hn::VFromD<D> y) {
#if RLK_CPU_SCALEF
  return exp2(d, y);
#else
  using T = hn::TFromD<D>;
  return exp2_bounded(d, at_most(d, Exp2<T>::kHighest, at_least(d, Exp2<T>::kLowest, y)));
#endif
}

// exp2 or exp2_for_sum of four vectors, in place, step by step side by side: one chain of some fifteen dependent steps
// would fill the processor's scheduler before its pipelines.
template <bool kForSum, class D>
HWY_INLINE void exp2_four(D d, hn::VFromD<D>& y0, hn::VFromD<D>& y1, hn::VFromD<D>& y2, hn::VFromD<D>& y3) {
  using V = hn::VFromD<D>;
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 8) {
    y0 = exp2(d, y0), y1 = exp2(d, y1), y2 = exp2(d, y2), y3 = exp2(d, y3);
    return;
  } else {
#if RLK_CPU_SCALEF
    const V f0 = distance_to_integer(y0), f1 = distance_to_integer(y1);
    const V f2 = distance_to_integer(y2), f3 = distance_to_integer(y3);
#else
    const auto low = hn::Set(d, Exp2<T>::kLowest);
    const auto tiny0 = hn::Lt(y0, low), tiny1 = hn::Lt(y1, low), tiny2 = hn::Lt(y2, low), tiny3 = hn::Lt(y3, low);
    const auto bound = [d](V y) HWY_ATTR { return at_most(d, Exp2<T>::kHighest, at_least(d, Exp2<T>::kLowest, y)); };
    y0 = bound(y0), y1 = bound(y1), y2 = bound(y2), y3 = bound(y3);
    const V round = hn::Set(d, Exp2<T>::kRound);
    const V s0 = hn::Add(y0, round), s1 = hn::Add(y1, round), s2 = hn::Add(y2, round), s3 = hn::Add(y3, round);
    const V f0 = hn::Sub(y0, hn::Sub(s0, round)), f1 = hn::Sub(y1, hn::Sub(s1, round));
    const V f2 = hn::Sub(y2, hn::Sub(s2, round)), f3 = hn::Sub(y3, hn::Sub(s3, round));
#endif
    V q0 = hn::Set(d, kExp2F32[0]), q1 = q0, q2 = q0, q3 = q0;
    for (int i = 1; i < 7; ++i) {
      const V c = hn::Set(d, kExp2F32[i]);
      q0 = hn::MulAdd(q0, f0, c), q1 = hn::MulAdd(q1, f1, c), q2 = hn::MulAdd(q2, f2, c), q3 = hn::MulAdd(q3, f3, c);
    }
#if RLK_CPU_SCALEF
    const V k0 = hn::Sub(y0, f0), k1 = hn::Sub(y1, f1), k2 = hn::Sub(y2, f2), k3 = hn::Sub(y3, f3);
    y0 = scale_by_power(q0, k0), y1 = scale_by_power(q1, k1);
    y2 = scale_by_power(q2, k2), y3 = scale_by_power(q3, k3);
#else
    const hn::RebindToUnsigned<D> du;
    const auto scale = [du, d](V v, V shifted) HWY_ATTR {
      return hn::BitCast(d, hn::Add(hn::BitCast(du, v), hn::ShiftLeft<Exp2<T>::kMantissa>(hn::BitCast(du, shifted))));
    };
    y0 = scale(q0, s0), y1 = scale(q1, s1), y2 = scale(q2, s2), y3 = scale(q3, s3);
    if (kForSum) return;
    y0 = hn::IfThenZeroElse(tiny0, y0), y1 = hn::IfThenZeroElse(tiny1, y1);
    y2 = hn::IfThenZeroElse(tiny2, y2), y3 = hn::IfThenZeroElse(tiny3, y3);
#endif
  }
}

// tanh(x) = -w / (2 + w) and its derivative 4 (1 + w) / (2 + w)^2 with w = 2^y - 1 and y = -2 |x| log2(e), kept
// accurate near 0. The caller passes `factor` = 2 log2(e) times whatever scales x.
template <class D>
HWY_INLINE hn::VFromD<D> tanh_scaled(D d, hn::VFromD<D> x, hn::TFromD<D> factor, hn::VFromD<D>& derivative) {
  using T = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  const auto one = hn::Set(d, T{1});
  // 2^-60 is nothing beside 1, also in fp64, and lets infinities in.
  const auto y = at_least(d, T{-60}, hn::Neg(hn::Abs(hn::Mul(x, hn::Set(d, factor)))));
  const auto round = hn::Set(d, Exp2<T>::kRound);
  const auto shifted = hn::Add(y, round);
  const auto f = hn::Sub(y, hn::Sub(shifted, round));
  const auto small = hn::Mul(polynomial(d, f, Exp2Ratio<T>::kOf), f);  // 2^f - 1
  const auto exponent = hn::ShiftLeft<Exp2<T>::kMantissa>(hn::BitCast(du, shifted));
  const auto scale = hn::BitCast(d, hn::Add(hn::BitCast(du, one), exponent));  // 2^k
  const auto w = hn::MulAdd(scale, small, hn::Sub(scale, one));
  const auto sum = hn::Add(hn::Set(d, T{2}), w);
  const auto half_root = hn::Div(hn::Set(d, T{2}), sum);
  derivative = hn::Mul(hn::Add(one, w), hn::Mul(half_root, half_root));
  return hn::CopySign(hn::Div(hn::Neg(w), sum), x);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
