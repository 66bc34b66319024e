// Forward KL over a teacher's K tokens, and the gradient of the student's logits: the kernels of logp, and K numbers a
// row in fp64.
//
// Cost model: the logits are read once, forward and backward, and their gradient written once. A row is one task's.
#include <rlk/formula/topk_kl.hpp>
#include <rlk/sdk/ops/topk_kl.hpp>
#include <rlk/sdk/ops/topk_kl_backward.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/logp/logp_backward_block.hpp"
#include "core/cpu/logp/logp_sums.hpp"
#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::TopkKl>;
using Backward = CallOf<sdk::ops::TopkKlBackward>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kGrainColumns = 32768;  // per task at least

template <class Call>
Scores scores_of(const Call& call) {
  return make_scores(call.logits.dtype, call.params.temperature, 0, call.logits.strides[1]);
}
template <class Call>
const void* row_of(const Call& call, int64_t n) {
  return element(call.logits.data, n * call.logits.strides[0], call.logits.dtype);
}
template <class Call>
DataError bad_id(const Call& call, int64_t n) {
  for (int64_t k = 0; k < call.K; ++k) {
    const int64_t id = call.ids.integer(n, k);
    if (id < 0 || id >= call.V) return {kIdOutOfRange, n, id};
  }
  return {};
}

// Calls function(n), which is false for an active row in error; the error of the lowest one.
template <class Call, typename Function>
DataError for_each_row(const Call& call, const Context& context, Function&& function) {
  FirstBadRow bad;
  const int64_t grain = std::max<int64_t>(1, kGrainColumns / std::max<int64_t>(1, call.V));
  parallel_for(context.parallel, call.N, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (!function(n)) bad.report(n);
    }
  });
  if (!bad.any()) return {};
  const DataError error = bad_id(call, bad.row());
  return error.kind != kNoDataError ? error : DataError{kNoFiniteLogit, bad.row(), 0};
}

DataError topk_kl(const Forward& call, const Context& context) {
  const Scores scores = scores_of(call);
  const formula::TopkKlTerms terms = formula::topk_kl_terms(call.params, call.K);
  return for_each_row(call, context, [&](int64_t n) {
    double lse = 0;
    LongSum loss, student_mass, teacher_mass;
    bool good = true;
    if (call.mask.keeps(n)) {
      RowSums sums(scores);
      good = bad_id(call, n).kind == kNoDataError;
      for (int64_t begin = 0; begin < call.V && good; begin += kLogpBlock) {
        sums.add(block_sums(scores, row_of(call, n), begin, std::min(begin + kLogpBlock, call.V), Sums::plain));
      }
      good = good && !sums.all_masked();
      lse = good ? sums.lse() : kNan;
      for (int64_t k = 0; k < call.K && good; ++k) {
        const double s = sums.logp(capped_logit(scores, row_of(call, n), call.ids.integer(n, k)));
        const double t = call.teacher_logp.get(n, k), term = formula::topk_kl_term(terms, s, t);
        student_mass.add(std::exp(s));
        teacher_mass.add(std::exp(t));
        loss.add(term);
      }
    }
    const auto put = [&](const Array& output, double value) {
      if (output.present()) output.put(n, good ? value : kNan);
    };
    put(call.loss, loss.value());
    put(call.lse, lse);
    put(call.student_mass, student_mass.value());
    put(call.teacher_mass, teacher_mass.value());
    return good;
  });
}

// One of the teacher's tokens.
struct Told {
  int64_t id;
  double weight;
};

// The gradient of one active row without an error of its ids; false when every logit is -inf.
bool row_gradient(const Backward& call, const Scores& scores, int64_t n, Told* told) {
  const void* const row = row_of(call, n);
  void* const gradients = element(call.grad_logits.data, n * call.grad_logits.strides[0], call.logits.dtype);
  const int64_t stride = call.grad_logits.strides[1];
  const double lse = call.lse.get(n), grad = call.grad_loss.get(n);
  const formula::TopkKlTerms terms = formula::topk_kl_gradient_terms(call.params, call.K);
  const auto log_p = [&](int64_t id) {  // above 0 by rounding alone: no more where lse has no digits behind the point
    return std::min(log_probability(scores, capped_logit(scores, row, id), lse), 1.0 / 64);
  };
  LongSum sum;
  for (int64_t k = 0; k < call.K; ++k) {
    const int64_t id = call.ids.integer(n, k);
    told[k] = {id, formula::topk_kl_weight(terms, log_p(id), call.teacher_logp.get(n, k))};
    sum.add(told[k].weight);
  }
  const double total = sum.value();
  bool any = false;
  const RowGradient everywhere = {lse, 0, grad * total, 0, 0, -1};
  for (int64_t begin = 0; begin < call.V; begin += kLogpBlock) {
    any |= gradient_block(scores, row, call.logits.strides[0], begin, std::min(begin + kLogpBlock, call.V), everywhere,
                          {gradients, call.logits.dtype, stride}, nullptr);
  }
  // The K tokens once more: what a rounded gradient would lose is theirs. Those of one id follow each other.
  std::sort(told, told + call.K, [](const Told& a, const Told& b) { return a.id < b.id; });
  for (const Told *first = told, *const end = told + call.K; first != end;) {
    LongSum own;
    const int64_t id = first->id;
    for (; first != end && first->id == id; ++first) own.add(first->weight);
    const double gradient = grad * (std::exp(log_p(id)) * total - own.value()) / scores.temperature;
    store_element(gradients, call.logits.dtype, id * stride, gradient);
  }
  return any;
}

DataError topk_kl_backward(const Backward& call, const Context& context) {
  auto* const told = static_cast<Told*>(context.workspace);
  const Scores scores = scores_of(call);
  return for_each_row(call, context, [&](int64_t n) {
    const bool kept = call.mask.keeps(n);
    const bool good =
        !kept || (bad_id(call, n).kind == kNoDataError && row_gradient(call, scores, n, told + n * call.K));
    if (kept && good) return true;
    void* const gradients = element(call.grad_logits.data, n * call.grad_logits.strides[0], call.logits.dtype);
    for (int64_t v = 0; v < call.V; ++v) {
      store_element(gradients, call.logits.dtype, v * call.grad_logits.strides[1], kept ? kNan : 0);
    }
    return good;
  });
}

int64_t told_bytes(const Backward& call) {
  return call.N * call.K * static_cast<int64_t>(sizeof(Told));
}

template <class Call>
double operations(const Call& call) {
  return static_cast<double>(call.N) * (static_cast<double>(call.V) * 20 + static_cast<double>(call.K) * 3000);
}

}  // namespace

RLK_CPU_KERNEL(TopkKl, .run = topk_kl, .operations = operations<Forward>);
RLK_CPU_KERNEL(TopkKlBackward, .run = topk_kl_backward, .operations = operations<Backward>,
               .workspace_bytes = told_bytes);

}  // namespace rlk::cpu
