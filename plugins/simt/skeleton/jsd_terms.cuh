// Terms of divergences of logits in fp32, by the device's binary logarithms: a third of the instructions of
// formula/jsd.hpp's. A logarithm is off by some 2^-21, about what rounding one of fp32 does to it.
#pragma once

#include "logits.cuh"

#if defined(RLK_SIMT_ROWS_ON_DEVICE)

#include <rlk/formula/jsd.hpp>

namespace rlk::simt {

constexpr float kLn2 = 0.693147181f;
constexpr float kSmallestNormal = 0x1p-126f;
constexpr float kNoPower = -150.0f;  // 2 to it is 0

// Of a normal number, within 2^-21 and 2 ulp.
__device__ __forceinline__ float log2_fast(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return ::log2f(x);
#endif
}

// log2 of the probability of a logit: the difference comes first.
struct Log2Scale {
  float high, scale, low;

  __device__ __forceinline__ float of(float logit) const {
    return formula::MulAdd(formula::Sub(logit, high), scale, -low);
  }
};
__device__ __forceinline__ Log2Scale log2_scale_of_powers(const LogitRow& row, double temperature) {
  return {static_cast<float>(row.largest), static_cast<float>(kLogitsLog2e / temperature),
          static_cast<float>(row.log_sum * kLogitsLog2e)};
}

// x log(x / y) + y - x, not below 0 but by rounding of numbers below the normal ones. Where x and y are near each other
// it is a series, of binary logarithms as they are, good to 2^-23.
__device__ __forceinline__ float divergence_of_log2(float x, float log2_x, float y, float log2_y) {
  const formula::Lane<float> d;
  const float difference = formula::Sub(log2_y, log2_x), product = formula::Mul(x, difference);
  const float far = formula::MulAdd(product, -kLn2, formula::Sub(y, x));
  const float series = formula::horner(d, difference, 0.0013338519489555717, 0.009623139773062407, 0.055504106647894666,
                                       0.24022648658916454);
  const float near = formula::Mul(product, formula::Mul(difference, series));
  return formula::Abs(difference) < 0.18033688f ? near : far;
}

// What a token of both models is compared with, and both of them; of impossible tokens the logarithms are finite.
struct Mixture {
  float log2_q, log2_p, q, p, m, log2_m;

  __device__ __forceinline__ Mixture(float student, float teacher, float beta, float rest)
      : log2_q(larger_number(student, kNoPower)),
        log2_p(larger_number(teacher, kNoPower)),
        q(exp2_fast(log2_q)),
        p(exp2_fast(log2_p)),
        m(formula::MulAdd(beta, p, formula::Mul(rest, q))),
        log2_m(log2_fast(larger_number(m, kSmallestNormal))) {}
};

// The sums of p log(p / m) and of q log(q / m).
template <class Row>
__device__ __forceinline__ formula::Two<double> mixture_sums(Row& row, const typename Row::Source& logits,
                                                             const typename Row::Source& teacher_logits,
                                                             const Log2Scale& student, const Log2Scale& teacher,
                                                             double beta) {
  constexpr int kSize = Row::kSize;
  using Packed = Pack<typename Row::Element>;
  const auto of_p = static_cast<float>(beta), of_q = static_cast<float>(1 - beta);
  RowSumList<false, 2> sums;
  each_logit_pair(row, logits, teacher_logits, [&](int64_t, const Packed& own, const Packed& other) {
    float x[kSize], y[kSize];
    unpack(own, x);
    unpack(other, y);
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      const Mixture token(student.of(x[e]), teacher.of(y[e]), of_p, of_q);
      x[e] = divergence_of_log2(token.q, token.log2_q, token.m, token.log2_m);
      y[e] = divergence_of_log2(token.p, token.log2_p, token.m, token.log2_m);
    }
    row.add_terms(sums.of[0], y);
    row.add_terms(sums.of[1], x);
  });
  sums = row.reduce(sums);
  return {sums.of[0].value(), sums.of[1].value()};
}
// sum x log(x / y).
template <class Row>
__device__ __forceinline__ double relative_sum(Row& row, const typename Row::Source& of_x,
                                               const typename Row::Source& of_y, const Log2Scale& scale_x,
                                               const Log2Scale& scale_y) {
  constexpr int kSize = Row::kSize;
  using Packed = Pack<typename Row::Element>;
  RowSum<false> sum;
  each_logit_pair(row, of_x, of_y, [&](int64_t, const Packed& first, const Packed& second) {
    float x[kSize], y[kSize];
    unpack(first, x);
    unpack(second, y);
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      const float log2_x = scale_x.of(x[e]), log2_y = scale_y.of(y[e]);
      const float p = exp2_fast(log2_x), q = exp2_fast(log2_y);
      const float term = divergence_of_log2(p, log2_x, q, log2_y);
      x[e] = p == 0 ? q : term;
    }
    row.add_terms(sum, x);
  });
  return row.reduce(sum).value();
}

// The slopes of the student's logits, of a loss whose own is `factor`.
template <class Row, int g>
__device__ __forceinline__ void put_jsd_slopes(Row& row, RowName<g>, const typename Row::Source& logits,
                                               const typename Row::Source& teacher_logits,
                                               const LogitBase<float>& student, const LogitBase<float>& teacher,
                                               double beta, float factor, float student_kl) {
  constexpr int kSize = Row::kSize;
  const formula::BriefLane d;  // whose comparisons keep a NaN in one instruction
  using Packed = Pack<typename Row::Element>;
  const auto of_p = static_cast<float>(beta), of_q = static_cast<float>(1 - beta);
  const auto put = [&](const auto& slope) {
    each_logit_pair(row, logits, teacher_logits, [&](int64_t pack, const Packed& own, const Packed& other) {
      if (pack >= row.packs()) return;
      float x[kSize], y[kSize];
      unpack(own, x);
      unpack(other, y);
#pragma unroll
      for (int e = 0; e < kSize; ++e) {
        const float log2_q = at_most(d, 0, student.log2_of(x[e])), log2_p = at_most(d, 0, teacher.log2_of(y[e]));
        x[e] = formula::Mul(factor, slope(log2_q, log2_p, exp2_fast(log2_q), exp2_fast(log2_p)));
      }
      row.store(g, pack, row.count_of(pack), x);
    });
  };
  // Of a token that is less probable than m.
  const auto by_log = [=](float q, float log2_q, float log2_m) {
    const float slope = formula::Mul(q, formula::MulAdd(formula::Sub(log2_q, log2_m), kLn2, -student_kl));
    return q == 0 ? 0.0f : slope;
  };
  if (beta == 0) {
    put([](float, float, float q, float p) { return formula::Sub(q, p); });
  } else if (beta == 1) {
    put([=](float log2_q, float log2_p, float q, float) { return by_log(q, log2_q, log2_p); });
  } else {
    put([=](float log2_q, float log2_p, float q, float p) {
      const float m = formula::MulAdd(of_p, p, formula::Mul(of_q, q));
      const float log2_m = log2_fast(at_least(d, kSmallestNormal, m));
      return by_log(q, log2_q, log2_p == log2_q ? log2_p : log2_m);  // no rounding parts the equal
    });
  }
}

}  // namespace rlk::simt

#endif
