// Terms of divergences and their gradients over a block of a row, in fp64 whatever the logits are, for every
// instruction set. Logarithms are Highway's own.
#include "core/cpu/distillation/jsd_block.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/distillation/jsd_block.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "core/cpu/logp/logp_gather-inl.hpp"
#include "core/cpu/simd/above_tangent-inl.hpp"
#include "core/cpu/simd/functions-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

using D = hn::ScalableTag<double>;
using V = hn::VFromD<D>;

HWY_INLINE V log_probability(V x, const RowScale& scale) {
  const D d;
  const V difference = hn::Sub(x, hn::Set(d, scale.max));
  const V score = scale.temperature == 1 ? difference : hn::Div(difference, hn::Set(d, scale.temperature));
  const V y = hn::Sub(score, hn::Set(d, scale.log_sum));
  return at_most(d, 0, y);  // no probability is above 1, however lse was rounded
}

struct Terms {
  V log_q, log_p, q, p, m, log_m;  // m: what is compared with
};
HWY_INLINE Terms terms_of(V x, V y, const RowScale& of_student, const RowScale& of_teacher, double beta) {
  const D d;
  Terms terms{log_probability(x, of_student), log_probability(y, of_teacher), x, y, x, x};
  V powers[] = {at_least(d, -2000, terms.log_q), at_least(d, -2000, terms.log_p)};  // side by side
  exp_of_bounded(powers);
  terms.q = powers[0];
  terms.p = powers[1];
  terms.m = beta == 0 ? terms.q : terms.p;
  terms.log_m = beta == 0 ? terms.log_q : terms.log_p;
  if (beta > 0 && beta < 1) {
    const V m = hn::MulAdd(hn::Set(d, beta), terms.p, hn::Mul(hn::Set(d, 1 - beta), terms.q));
    const V tiny = hn::Set(d, 0x1p-1000);  // nothing below is multiplied by a probability that is not 0
    const V log_m = hn::IfThenElse(hn::IsNaN(m), m, hn::Log(d, hn::Max(m, tiny)));
    terms.m = m;
    terms.log_m = hn::IfThenElse(hn::Eq(terms.log_p, terms.log_q), terms.log_p, log_m);  // no rounding parts the equal
  }
  return terms;
}

JsdSums sums_of(const Scores& student, const void* row, const RowScale& of_student, const Scores& teacher,
                const void* teacher_row, const RowScale& of_teacher, double beta, int64_t begin, int64_t end) {
  const D d;
  HWY_ALIGN double xs[kGatherBuffer];
  HWY_ALIGN double ys[kGatherBuffer];
  gather(student, row, begin, end, static_cast<double*>(xs));
  gather(teacher, teacher_row, begin, end, static_cast<double*>(ys));
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V of_p = hn::Zero(d), of_q = hn::Zero(d);
  for (int64_t i = 0; i < end - begin; i += lanes) {
    const Terms terms = terms_of(hn::Load(d, xs + i), hn::Load(d, ys + i), of_student, of_teacher, beta);
    const auto here = hn::FirstN(d, static_cast<size_t>(std::min(lanes, end - begin - i)));
    if (beta < 1) {
      of_p = hn::Add(of_p, hn::IfThenElseZero(here, divergence_term(d, terms.p, terms.log_p, terms.m, terms.log_m)));
    }
    if (beta > 0) {
      of_q = hn::Add(of_q, hn::IfThenElseZero(here, divergence_term(d, terms.q, terms.log_q, terms.m, terms.log_m)));
    }
  }
  return {hn::GetLane(hn::SumOfLanes(d, of_p)), hn::GetLane(hn::SumOfLanes(d, of_q))};
}

void gradients_of(const Scores& student, const void* row, const RowScale& of_student, const Scores& teacher,
                  const void* teacher_row, const RowScale& of_teacher, double beta, double student_kl, double grad_loss,
                  int64_t begin, int64_t end, void* grad_row, int64_t grad_stride) {
  const D d;
  HWY_ALIGN double xs[kGatherBuffer];
  HWY_ALIGN double ys[kGatherBuffer];
  gather(student, row, begin, end, static_cast<double*>(xs));
  gather(teacher, teacher_row, begin, end, static_cast<double*>(ys));
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V kl = hn::Set(d, student_kl);
  const V factor = hn::Set(d, (beta == 0 || beta == 1 ? 1 : 1 - beta) * grad_loss / of_student.temperature);
  for (int64_t i = 0; i < end - begin; i += lanes) {
    const Terms terms = terms_of(hn::Load(d, xs + i), hn::Load(d, ys + i), of_student, of_teacher, beta);
    const V slope = hn::Mul(terms.q, hn::Sub(hn::Sub(terms.log_q, terms.log_m), kl));
    const V h = beta == 0 ? hn::Sub(terms.q, terms.p) : hn::IfThenZeroElse(hn::Eq(terms.q, hn::Zero(d)), slope);
    hn::Store(hn::Mul(factor, h), d, xs + i);
  }
  narrow(static_cast<const double*>(xs), end - begin, element(grad_row, begin * grad_stride, student.dtype),
         student.dtype, grad_stride);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(sums_of);
HWY_EXPORT(gradients_of);

JsdSums jsd_block(const Scores& student, const void* row, const RowScale& of_student, const Scores& teacher,
                  const void* teacher_row, const RowScale& of_teacher, double beta, int64_t begin, int64_t end) {
  return HWY_DYNAMIC_DISPATCH(sums_of)(student, row, of_student, teacher, teacher_row, of_teacher, beta, begin, end);
}
void jsd_gradient_block(const Scores& student, const void* row, const RowScale& of_student, const Scores& teacher,
                        const void* teacher_row, const RowScale& of_teacher, double beta, double student_kl,
                        double grad_loss, int64_t begin, int64_t end, void* grad_row, int64_t grad_stride) {
  HWY_DYNAMIC_DISPATCH(gradients_of)
  (student, row, of_student, teacher, teacher_row, of_teacher, beta, student_kl, grad_loss, begin, end, grad_row,
   grad_stride);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
