// Divergences between a teacher's and a student's distribution over the vocabulary, and the gradient of the student's
// logits.
//
// Cost model: forward, the logits of both models are read twice, once for their log-sum-exps (as logp does) and once
// for the terms; backward once. A row is one task's: the bits depend on the row alone.
#include <rlk/sdk/ops/jsd.hpp>
#include <rlk/sdk/ops/jsd_backward.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/distillation/jsd_block.hpp"
#include "core/cpu/logp/logp.hpp"
#include "core/cpu/logp/logp_sums.hpp"
#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::Jsd>;
using Backward = CallOf<sdk::ops::JsdBackward>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kGrainColumns = 8192;  // per task at least
constexpr int64_t kTermColumns = 256;    // that are added plainly: more would lose digits

// The rows of one model.
struct Model {
  template <class Call>
  Model(const Call& call, const Array& array)
      : logits(array), vocab(call.V), scores(make_scores(array.dtype, call.params.temperature, 0, array.strides[1])) {}

  const void* row(int64_t n) const { return element(logits.data, n * logits.strides[0], logits.dtype); }
  RowSums sums(int64_t n) const {
    RowSums sums(scores);
    for_each_block(kLogpBlock,
                   [&](int64_t begin, int64_t end) { sums.add(block_sums(scores, row(n), begin, end, Sums::plain)); });
    return sums;
  }
  RowScale scale(const RowSums& of_row) const {
    return {of_row.total().max, std::log(of_row.total().sum), scores.temperature};
  }
  // By a log-sum-exp that was rounded: the scores are compared with it as they are.
  RowScale scale(double lse) const { return {lse * scores.temperature, 0, scores.temperature}; }
  bool is_all_masked(int64_t n) const {
    bool masked = true;
    for (int64_t v = 0; v < vocab && masked; ++v) masked = logits.get(n, v) == kAllMasked;
    return masked;
  }
  template <typename Function>
  void for_each_block(int64_t columns, Function&& function) const {
    for (int64_t begin = 0; begin < vocab; begin += columns) function(begin, std::min(begin + columns, vocab));
  }

  const Array& logits;
  int64_t vocab;
  Scores scores;
};

template <class Call, typename Function>
DataError for_each_row(const Call& call, const Context& context, Function&& function) {
  FirstBadRow bad;
  const int64_t grain = std::max<int64_t>(1, kGrainColumns / std::max<int64_t>(1, call.V));
  parallel_for(context.parallel, call.N, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (!function(n)) bad.report(n);
    }
  });
  return bad.any() ? DataError{kNoFiniteLogit, bad.row(), 0} : DataError{};
}

DataError jsd(const Forward& call, const Context& context) {
  const Model student(call, call.logits), teacher(call, call.teacher_logits);
  const double beta = call.params.beta;
  return for_each_row(call, context, [&](int64_t n) {
    if (!call.mask.keeps(n)) {
      put_divergence(call, n, 0, 0, 0, 0);
      return true;
    }
    const RowSums own = student.sums(n), other = teacher.sums(n);
    if (own.all_masked() || other.all_masked()) {
      put_divergence(call, n, kNan, kNan, kNan, kNan);
      return false;
    }
    const double lse = own.lse(), teacher_lse = other.lse();
    if (std::isnan(lse) || std::isnan(teacher_lse)) {
      put_divergence(call, n, kNan, lse, teacher_lse, beta == 0 ? 0 : kNan);
      return true;
    }
    LongSum of_teacher, of_student;
    student.for_each_block(kTermColumns, [&](int64_t begin, int64_t end) {
      const JsdSums sums = jsd_block(student.scores, student.row(n), student.scale(own), teacher.scores, teacher.row(n),
                                     teacher.scale(other), beta, begin, end);
      of_teacher.add(sums.teacher);
      of_student.add(sums.student);
    });
    const JsdSums total{of_teacher.value(), of_student.value()};
    put_divergence(call, n, total.loss(beta), lse, teacher_lse, total.student);
    return true;
  });
}

DataError jsd_backward(const Backward& call, const Context& context) {
  const Model student(call, call.logits), teacher(call, call.teacher_logits);
  return for_each_row(call, context, [&](int64_t n) {
    void* const gradients = element(call.grad_logits.data, n * call.grad_logits.strides[0], call.grad_logits.dtype);
    const int64_t stride = call.grad_logits.strides[1];
    const bool kept = call.mask.keeps(n);
    const bool bad = kept && (student.is_all_masked(n) || teacher.is_all_masked(n));
    if (!kept || bad) {
      for (int64_t v = 0; v < call.V; ++v) store_element(gradients, call.grad_logits.dtype, v * stride, bad ? kNan : 0);
      return !bad;
    }
    student.for_each_block(kLogpBlock, [&](int64_t begin, int64_t end) {
      jsd_gradient_block(student.scores, student.row(n), student.scale(call.lse.get(n)), teacher.scores, teacher.row(n),
                         teacher.scale(call.teacher_lse.get(n)), call.params.beta, call.student_kl.get(n),
                         call.grad_loss.get(n), begin, end, gradients, stride);
    });
    return true;
  });
}

template <class Call, int64_t of_column>
double operations(const Call& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.V) * of_column;
}

}  // namespace

RLK_CPU_KERNEL(Jsd, .run = jsd, .operations = operations<Forward, 900>);
RLK_CPU_KERNEL(JsdBackward, .run = jsd_backward, .operations = operations<Backward, 800>);

}  // namespace rlk::cpu
