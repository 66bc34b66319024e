// The words that a formula is written in. A formula is a function template over a tag `d` and values of one type V: on
// a CPU a vector of Highway's, whose names these are, on a SIMT device a lane, which is a plain float or double. It
// stands between RLK_FORMULA_BEGIN and RLK_FORMULA_END:
//
//   RLK_FORMULA_BEGIN
//   template <class D, class V>
//   RLK_FORMULA V relu_of(D d, V x) {
//     return at_least(d, 0, x);
//   }
//   RLK_FORMULA_END
//
//   number(d, x)  Zero(d)                       a double, 0, as V; TFromD<D> is the type of one number
//   Add Sub Mul Div (a, b)  Neg Abs Sqrt (a)    each rounded once; no compiler fuses two of them
//   MulAdd(a, b, c)  NegMulAdd(a, b, c)         a b + c and c - a b, rounded once
//   CopySign(a, b)  Inf(d)                      a with the sign of b; infinity
//   Lt Le Gt Ge Eq Ne (a, b)                    a mask
//   IsNaN IsInf IsFinite (a)                    a mask
//   And Or AndNot (m, n)  Not(m)                of masks; AndNot is n without m
//   AllTrue(d, m)                               whether all lanes of a vector are: to leave out what none needs
//   IfThenElse(m, a, b)                         what the mask does not choose may be anything, NaN too
//   IfThenElseZero(m, a)  IfThenZeroElse(m, b)
//   at_least(d, low, x)  at_most(d, high, x)    NaN stays NaN
//   at_least(low, x)                            the same of two values
//   quotient(d, a, b)                           a / b, for results of 16 bits good to a few ulp of fp32; b far from
//                                               the smallest and the largest numbers
//   kIsBrief<D>                                 only results of 16 bits are made of the numbers: a few ulp of fp32 do
//   exp exp2 exp_minus_one sigmoid (d, x)       good to a few ulp everywhere; 0 below the normal numbers, or right
//   natural_log(x)                              the logarithm of a normal number above 0
//   log_of log_one_plus (d, x)                  the natural logarithm of x, 1 + x; of lanes, log_of only of fp64
//   horner(d, x, c0, c1, ...)                   the polynomial with these coefficients, highest power first
//   Two<V>{a, b}  Three<V>{a, b, c}             several results
//
// Code with values of another kind defines RLK_FORMULA_BEGIN and the rest before it includes this. These are the lanes.
#pragma once

#if !defined(RLK_FORMULA_BEGIN)

#include <cmath>

// A program for devices says what its functions begin with.
#if !defined(RLK_FORMULA)
#define RLK_FORMULA inline
#endif
#define RLK_FORMULA_BEGIN namespace rlk::formula {
#define RLK_FORMULA_END }
#define RLK_FORMULA_LANES  // a lane is one number: the tags below are there

namespace rlk::formula {

template <class T>
struct Lane {
  using type = T;
};
// fp32 numbers of which results of 16 bits are made.
struct BriefLane {
  using type = float;
};
// fp64 numbers of which results of fp32 are made.
struct BriefLongLane : Lane<double> {};
template <class D>
constexpr bool kIsBrief = false;
template <>
inline constexpr bool kIsBrief<BriefLane> = true;
template <class D>
using TFromD = typename D::type;
template <class D>
using VFromD = typename D::type;

template <class V>
struct Two {
  V first, second;
};
template <class V>
struct Three {
  V first, second, third;
};

template <class D>
RLK_FORMULA TFromD<D> number(D, double x) {
  return static_cast<TFromD<D>>(x);
}
template <class D>
RLK_FORMULA TFromD<D> Zero(D) {
  return 0;
}

// nvcc fuses what is not written so; other compilers are told not to (-ffp-contract=off).
#if defined(__CUDACC__)
RLK_FORMULA float Add(float a, float b) {
  return __fadd_rn(a, b);
}
RLK_FORMULA double Add(double a, double b) {
  return __dadd_rn(a, b);
}
RLK_FORMULA float Mul(float a, float b) {
  return __fmul_rn(a, b);
}
RLK_FORMULA double Mul(double a, double b) {
  return __dmul_rn(a, b);
}
#else
RLK_FORMULA float Add(float a, float b) {
  return a + b;
}
RLK_FORMULA double Add(double a, double b) {
  return a + b;
}
RLK_FORMULA float Mul(float a, float b) {
  return a * b;
}
RLK_FORMULA double Mul(double a, double b) {
  return a * b;
}
#endif
RLK_FORMULA float MulAdd(float a, float b, float c) {
  return ::fmaf(a, b, c);
}
RLK_FORMULA double MulAdd(double a, double b, double c) {
  return ::fma(a, b, c);
}
template <class V>
RLK_FORMULA V Sub(V a, V b) {
  return Add(a, -b);
}
template <class V>
RLK_FORMULA V Div(V a, V b) {
  return a / b;
}
template <class D, class V>
RLK_FORMULA V quotient(D, V a, V b) {
  return a / b;
}
// NVIDIA's instructions for these flush what is below the normal numbers; a division by way of them has no other cases.
RLK_FORMULA float quotient(BriefLane, float a, float b) {
#if defined(__CUDA_ARCH__)
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return Mul(a, inverse);
#elif defined(__HIP_DEVICE_COMPILE__)
  return __fdividef(a, b);
#else
  return a / b;
#endif
}
template <class V>
RLK_FORMULA V Neg(V a) {
  return -a;
}
RLK_FORMULA float Abs(float a) {
  return ::fabsf(a);
}
RLK_FORMULA double Abs(double a) {
  return ::fabs(a);
}
RLK_FORMULA float Sqrt(float a) {
  return ::sqrtf(a);
}
RLK_FORMULA double Sqrt(double a) {
  return ::sqrt(a);
}
RLK_FORMULA float CopySign(float a, float b) {
  return ::copysignf(a, b);
}
RLK_FORMULA double CopySign(double a, double b) {
  return ::copysign(a, b);
}
template <class D>
RLK_FORMULA TFromD<D> Inf(D) {
  return static_cast<TFromD<D>>(__builtin_huge_val());
}
template <class V>
RLK_FORMULA V NegMulAdd(V a, V b, V c) {
  return MulAdd(-a, b, c);
}

template <class V>
RLK_FORMULA bool Lt(V a, V b) {
  return a < b;
}
template <class V>
RLK_FORMULA bool Le(V a, V b) {
  return a <= b;
}
template <class V>
RLK_FORMULA bool Gt(V a, V b) {
  return a > b;
}
template <class V>
RLK_FORMULA bool Ge(V a, V b) {
  return a >= b;
}
template <class V>
RLK_FORMULA bool Eq(V a, V b) {
  return a == b;
}
template <class V>
RLK_FORMULA bool Ne(V a, V b) {
  return a != b;
}
template <class V>
RLK_FORMULA bool IsNaN(V a) {
  return a != a;  // NOLINT(misc-redundant-expression): only a NaN is not itself
}
template <class V>
RLK_FORMULA bool IsInf(V a) {
  return a == a && a - a != 0;  // NOLINT(misc-redundant-expression)
}
template <class V>
RLK_FORMULA bool IsFinite(V a) {
  return a - a == 0;  // NOLINT(misc-redundant-expression)
}
RLK_FORMULA bool And(bool m, bool n) {
  return m && n;
}
RLK_FORMULA bool Or(bool m, bool n) {
  return m || n;
}
RLK_FORMULA bool AndNot(bool m, bool n) {
  return !m && n;
}
RLK_FORMULA bool Not(bool m) {
  return !m;
}
template <class D>
RLK_FORMULA bool AllTrue(D, bool m) {
  return m;
}
template <class V>
RLK_FORMULA V IfThenElse(bool m, V a, V b) {
  return m ? a : b;
}
template <class V>
RLK_FORMULA V IfThenElseZero(bool m, V a) {
  return m ? a : V(0);
}
template <class V>
RLK_FORMULA V IfThenZeroElse(bool m, V b) {
  return m ? V(0) : b;
}
template <class D, class V>
RLK_FORMULA V at_least(D, TFromD<D> low, V x) {
  return x < low ? low : x;
}
template <class V>
RLK_FORMULA V at_least(V low, V x) {
  return low > x ? low : x;
}
template <class D, class V>
RLK_FORMULA V at_most(D, TFromD<D> high, V x) {
  return x > high ? high : x;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// One instruction, that keeps a NaN.
RLK_FORMULA float at_least(BriefLane, float low, float x) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(low), "f"(x));
  return larger;
}
RLK_FORMULA float at_most(BriefLane, float high, float x) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(high), "f"(x));
  return smaller;
}
#endif

template <class D>
RLK_FORMULA float exp(D, float x) {
  return ::expf(x);
}
template <class D>
RLK_FORMULA double exp(D, double x) {
  return ::exp(x);
}
template <class D>
RLK_FORMULA float exp2(D, float x) {
  return ::exp2f(x);
}
template <class D>
RLK_FORMULA double exp2(D, double x) {
  return ::exp2(x);
}
RLK_FORMULA float exp2(BriefLane, float x) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return ::exp2f(x);
#endif
}
RLK_FORMULA float exp(BriefLane, float x) {
#if defined(__CUDA_ARCH__)
  return exp2(BriefLane(), Mul(x, 1.44269504f));
#elif defined(__HIP_DEVICE_COMPILE__)
  return __expf(x);
#else
  return ::expf(x);
#endif
}
RLK_FORMULA float natural_log(float x) {
  return ::logf(x);
}
RLK_FORMULA double natural_log(double x) {
  return ::log(x);
}
// log(x), -inf at 0; NaN for what is below 0, and for a NaN.
RLK_FORMULA double log_of(Lane<double>, double x) {
  return ::log(x);
}
template <class D>
RLK_FORMULA float log_one_plus(D, float x) {
  return ::log1pf(x);
}
template <class D>
RLK_FORMULA double log_one_plus(D, double x) {
  return ::log1p(x);
}
template <class D>
RLK_FORMULA float exp_minus_one(D, float x) {
  return ::expm1f(x);
}
template <class D>
RLK_FORMULA double exp_minus_one(D, double x) {
  return ::expm1(x);
}
template <class D, class V, class... Coefficients>
RLK_FORMULA V horner(D d, V x, double highest, Coefficients... rest) {
  V sum = number(d, highest);
  ((sum = MulAdd(sum, x, number(d, rest))), ...);
  return sum;
}

// Good to 2^-28. Beyond 700, where no number of fp32 brings it back, it is 0 or infinite.
RLK_FORMULA double exp(BriefLongLane d, double x) {
  const double log2_e = 1.4426950408889634, to_integer = 6755399441055744.0;  // 1.5 2^52: the sum's low bits are n
  const double shifted = MulAdd(x, log2_e, to_integer), n = Sub(shifted, to_integer);
  const double power = horner(d, MulAdd(x, log2_e, -n), 0.00015353361833551037, 0.0013398874441770924,
                              0.009618437358200147, 0.055503324710386034, 0.24022647913620948, 0.693147202855121, 1.0);
#if defined(__CUDA_ARCH__)
  const double scaled =
      __hiloint2double(__double2hiint(power) + (__double2loint(shifted) << 20), __double2loint(power));
#else
  unsigned long long low = 0, bits = 0;
  double scaled = 0;
  __builtin_memcpy(&low, &shifted, sizeof(low));
  __builtin_memcpy(&bits, &power, sizeof(bits));
  bits += low << 52;
  __builtin_memcpy(&scaled, &bits, sizeof(scaled));
#endif
  return ::fabs(x) < 700 ? scaled : x < 0 ? 0 : x + __builtin_huge_val();
}
template <class D, class V>
RLK_FORMULA V sigmoid(D d, V x) {
  return quotient(d, V(1), Add(V(1), exp(d, -x)));
}

}  // namespace rlk::formula

#endif
