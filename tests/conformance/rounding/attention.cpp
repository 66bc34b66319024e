// attention and its backward, dense, as the fused kernels of the field order them: keys in blocks under a running
// maximum, the weights relative to it as operands of the second product, their sum unrounded.
#include <algorithm>
#include <limits>
#include <vector>

#include "conformance/rounding/arithmetic.hpp"
#include "conformance/rounding/implementations.hpp"

namespace rlk::rounding {
namespace {

constexpr int64_t kBlock = 64;  // keys under one maximum

double dot(const Tensor& a, int64_t a_row, const Tensor& b, int64_t b_row, int64_t size) {
  Sum sum;
  for (int64_t d = 0; d < size; ++d) {
    sum.add(load(a, a_row + d * a.stride(3)) * load(b, b_row + d * b.stride(3)), a.dtype());
  }
  return sum.value();
}

struct Query {
  const Tensor &q, &k, &v;
  int64_t b, i, h, g;  // g: its key head
  double scale;

  int64_t row() const { return q.at(b, i, h, int64_t{0}); }
  double score(int64_t j) const { return scale * dot(q, row(), k, k.at(b, j, g, int64_t{0}), q.size(3)); }
};

void attend(const Query& query, const Tensor& out, const Tensor& lse) {
  const Dtype dtype = query.q.dtype();
  const int64_t keys = query.k.size(1);
  double max = -std::numeric_limits<double>::infinity();
  Sum total;
  std::vector<Sum> sums(static_cast<size_t>(query.q.size(3)));
  std::vector<double> scores;
  for (int64_t first = 0; first < keys; first += kBlock) {
    const int64_t end = std::min(first + kBlock, keys);
    const double before = max;
    scores.clear();
    for (int64_t j = first; j < end; ++j) {
      scores.push_back(query.score(j));
      max = std::max(max, scores.back());
    }
    if (first > 0) {
      total.scale(std::exp(before - max));
      for (Sum& sum : sums) sum.scale(std::exp(before - max));
    }
    for (int64_t j = first; j < end; ++j) {
      if (is_dropped(j)) continue;
      const double weight = std::exp(scores[static_cast<size_t>(j - first)] - max);
      total.add(weight, dtype);
      const double factor = operand(weight, dtype);
      for (int64_t d = 0; d < out.size(3); ++d) {
        sums[static_cast<size_t>(d)].add(factor * load(query.v, query.v.at(query.b, j, query.g, d)), dtype);
      }
    }
  }
  for (int64_t d = 0; d < out.size(3); ++d) {
    const double sum = sums[static_cast<size_t>(d)].value();
    out.store(out.at(query.b, query.i, query.h, d), keys > 0 ? sum / total.value() : 0.0);
  }
  if (lse.given()) lse.store(lse.at(query.b, query.i, query.h), keys > 0 ? max + std::log(total.value()) : max);
}

template <class Each>
void for_each_query(const Tensor& q, const Tensor& k, const Tensor& v, Each&& each) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t i = 0; i < q.size(1); ++i) {
      for (int64_t h = 0; h < q.size(2); ++h) each(Query{q, k, v, b, i, h, h / (q.size(2) / k.size(2)), scale});
    }
  }
}

void attend_all(const sdk::Run& run) {
  const Tensor q(run.input(RLK_ATTENTION_IN_Q)), k(run.input(RLK_ATTENTION_IN_K)), v(run.input(RLK_ATTENTION_IN_V));
  const Tensor out(run.output(RLK_ATTENTION_OUT_OUT)), lse(run.output(RLK_ATTENTION_OUT_LSE));
  for_each_query(q, k, v, [&](const Query& query) { attend(query, out, lse); });
}

// A gradient under construction, by the rows of the tensor it is of.
class Gradient {
public:
  explicit Gradient(const Tensor& out) : out_(out), sums_(static_cast<size_t>(rows() * out.size(3))) {}
  void add(int64_t b, int64_t token, int64_t head, double factor, const Tensor& values, int64_t row) {
    const int64_t first = ((b * out_.size(1) + token) * out_.size(2) + head) * out_.size(3);
    for (int64_t d = 0; d < out_.size(3); ++d) {
      sums_[static_cast<size_t>(first + d)].add(factor * load(values, row + d * values.stride(3)), values.dtype());
    }
  }
  void write(double scale) {
    for (int64_t row = 0; row < rows(); ++row) {
      const int64_t head = row % out_.size(2), token = row / out_.size(2) % out_.size(1);
      const int64_t b = row / out_.size(2) / out_.size(1);
      for (int64_t d = 0; d < out_.size(3); ++d) {
        out_.store(out_.at(b, token, head, d), scale * sums_[static_cast<size_t>(row * out_.size(3) + d)].value());
      }
    }
  }

private:
  int64_t rows() const { return out_.size(0) * out_.size(1) * out_.size(2); }
  const Tensor& out_;
  std::vector<Sum> sums_;
};

void all_gradients(const sdk::Run& run) {
  const Tensor q(run.input(RLK_ATTENTION_BACKWARD_IN_Q)), k(run.input(RLK_ATTENTION_BACKWARD_IN_K)),
      v(run.input(RLK_ATTENTION_BACKWARD_IN_V)), out(run.input(RLK_ATTENTION_BACKWARD_IN_OUT)),
      lse(run.input(RLK_ATTENTION_BACKWARD_IN_LSE)), grad_out(run.input(RLK_ATTENTION_BACKWARD_IN_GRAD_OUT));
  const Tensor grad_q(run.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_Q)),
      grad_k(run.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_K)), grad_v(run.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_V));
  Gradient of_q(grad_q), of_k(grad_k), of_v(grad_v);
  double scale = 1;
  for_each_query(q, k, v, [&](const Query& query) {
    scale = query.scale;
    const int64_t row = query.row(), grad_row = grad_out.at(query.b, query.i, query.h, int64_t{0});
    const double delta = dot(grad_out, grad_row, out, out.at(query.b, query.i, query.h, int64_t{0}), q.size(3));
    for (int64_t j = 0; j < k.size(1); ++j) {
      if (is_dropped(j) || is_dropped(query.i)) continue;
      const int64_t k_row = k.at(query.b, j, query.g, int64_t{0}), v_row = v.at(query.b, j, query.g, int64_t{0});
      const double p = std::exp(query.score(j) - load(lse, lse.at(query.b, query.i, query.h)));
      const double score_gradient = operand(p * (dot(grad_out, grad_row, v, v_row, q.size(3)) - delta), q.dtype());
      of_q.add(query.b, query.i, query.h, score_gradient, k, k_row);
      of_k.add(query.b, j, query.g, score_gradient, q, row);
      of_v.add(query.b, j, query.g, operand(p, q.dtype()), grad_out, grad_row);
    }
  });
  of_q.write(scale);
  of_k.write(scale);
  of_v.write(1);
}

}  // namespace

sdk::Support Attention::query(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  return plain_calls(call, RLK_ATTENTION_PARAMS_INIT, RLK_ATTENTION_IN_CU_SEQLENS_Q);
}
std::unique_ptr<sdk::Plan> Attention::plan(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return std::make_unique<FunctionPlan<Op>>(&attend_all);
}

sdk::Support AttentionBackward::query(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  return plain_calls(call, RLK_ATTENTION_BACKWARD_PARAMS_INIT, RLK_ATTENTION_BACKWARD_IN_GRAD_LSE);
}
std::unique_ptr<sdk::Plan> AttentionBackward::plan(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return std::make_unique<FunctionPlan<Op>>(&all_gradients);
}

}  // namespace rlk::rounding
