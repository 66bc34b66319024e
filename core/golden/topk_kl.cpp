// Forward KL over a teacher's K tokens, and its gradient: the declarations' formulas, fp64.
#include <rlk/sdk/ops/topk_kl.hpp>
#include <rlk/sdk/ops/topk_kl_backward.hpp>

#include "core/golden/distributions.hpp"
#include "core/golden/optional.hpp"

namespace rlk::golden {
namespace {

// At least -bound; 0 is off.
Tracked at_least(const Tracked& x, double bound) {
  return bound > 0 && x.value < -bound ? Tracked(-bound, bound) : x;
}

// The error of an active row; its first bad id comes first.
template <class Call>
DataError error_of(const Call& call, const RowSums& sums, int64_t n) {
  for (int64_t k = 0; k < call.K; ++k) {
    const int64_t id = call.ids.load_int(n, k);
    if (id < 0 || id >= call.V) return {kIdOutOfRange, n, id};
  }
  return sums.is_bad(n) ? DataError{kNoFiniteLogit, n, 0} : DataError{};
}

template <class Call>
Tracked score(const Call& call, int64_t n, int64_t v) {
  return Tracked(call.logits.load(n, v)) / Tracked(call.params.temperature, call.params.temperature);
}

}  // namespace

DataError topk_kl(CallOf<sdk::ops::TopkKl>& call) {
  const RowSums sums(call, call.logits);
  DataError first;
  for (int64_t n = 0; n < call.N; ++n) {
    Tracked loss, student_mass, teacher_mass, lse;
    if (is_kept(call.mask, n)) {
      const DataError error = error_of(call, sums, n);
      keep_first(first, error);
      const bool bad = error.kind != kNoDataError;
      TrackedSum terms, of_student, of_teacher;
      lse = bad ? Tracked(kNan) : sums.lse(n);
      for (int64_t k = 0; k < call.K && !bad; ++k) {
        const Tracked s = score(call, n, call.ids.load_int(n, k)) - lse, t = call.teacher_logp.load(n, k);
        of_student.add(exp(s));
        of_teacher.add(exp(t));
        const Tracked clamped = at_least(t, call.params.logp_clamp);
        terms.add(relative(exp(clamped), clamped, at_least(s, call.params.logp_clamp)));
      }
      loss = bad ? Tracked(kNan) : terms.total();
      student_mass = bad ? Tracked(kNan) : of_student.total();
      teacher_mass = bad ? Tracked(kNan) : of_teacher.total();
    }
    put(call.loss, loss);
    put(call.lse, lse);
    put(call.student_mass, student_mass);
    put(call.teacher_mass, teacher_mass);
  }
  return first;
}

DataError topk_kl_backward(CallOf<sdk::ops::TopkKlBackward>& call) {
  const RowSums sums(call, call.logits);
  const double bound = call.params.logp_clamp > 0 ? call.params.logp_clamp : kInfinity;
  DataError first;
  for (int64_t n = 0; n < call.N; ++n) {
    const bool kept = is_kept(call.mask, n);
    const DataError error = kept ? error_of(call, sums, n) : DataError{};
    keep_first(first, error);
    if (!kept || error.kind != kNoDataError) {
      for (int64_t v = 0; v < call.V; ++v) put(call.grad_logits, kept ? kNan : 0.0);
      continue;
    }
    const Tracked lse = call.lse.load(n);
    std::vector<Tracked> own(static_cast<size_t>(call.V));
    TrackedSum total;
    for (int64_t k = 0; k < call.K; ++k) {
      const int64_t id = call.ids.load_int(n, k);
      const Tracked s = score(call, n, id) - lse;
      const double passes = passed(s.value, -bound, kInfinity, call.params.clamp_gradient);
      Tracked w = exp(at_least(call.teacher_logp.load(n, k), call.params.logp_clamp));
      if (passes < 1) w = Tracked(passes) * w;
      if (std::isnan(s.value)) w = kNan;
      total.add(w);
      own[static_cast<size_t>(id)] = own[static_cast<size_t>(id)] + w;
    }
    for (int64_t v = 0; v < call.V; ++v) {
      Tracked log_p = score(call, n, v) - lse;
      log_p.value = std::min(log_p.value, 1.0 / 64);  // by more than this no rounding passes 0: lse has no digits there
      const Tracked p = exp(log_p);
      put(call.grad_logits, Tracked(call.grad_loss.load(n)) * (p * total.total() - own[static_cast<size_t>(v)]) /
                                Tracked(call.params.temperature, call.params.temperature));
    }
  }
  return first;
}

}  // namespace rlk::golden
