// The operations one by one, in the order in which cuDNN's attention engines expect them.
#include "attention_graph.hpp"

#include <limits>

namespace rlk::cudnn {
namespace {

// After the caller's tensors: what the workspace holds, and values that the host passes.
enum Id : int64_t {
  kTerms = kTensors,  // of the queries: the sum of out * grad_out
  kGradQSum,          // grad_q in fp32, to which blocks of keys add
  kScale,
  kOne,
  kHiddenRight,
  kHiddenLeft,
  kKeys,
  kQueries,
  kShiftRight,
  kShiftLeft,
  kIds
};

// Writes the operations of one direction into a graph.
class Writer {
public:
  Writer(Graph* graph, const Shape& shape) : graph_(*graph), shape_(shape) {}

  void forward();
  void backward();

private:
  Descriptor& of_queries(int64_t id) {
    return graph_.tensor(id, shape_.type, {shape_.batch, shape_.q_heads, shape_.queries, shape_.head_size},
                         shape_.strides[static_cast<size_t>(id)]);
  }
  Descriptor& of_keys(int64_t id) {
    return graph_.tensor(id, shape_.type, {shape_.batch, shape_.kv_heads, shape_.keys, shape_.head_size},
                         shape_.strides[static_cast<size_t>(id)]);
  }
  Descriptor& transposed(int64_t id) {
    const Dims& strides = shape_.strides[static_cast<size_t>(id)];
    return graph_.tensor(id, shape_.type, {shape_.batch, shape_.kv_heads, shape_.head_size, shape_.keys},
                         {strides[0], strides[1], strides[3], strides[2]});
  }
  Dims row_dims() const { return {shape_.batch, shape_.q_heads, shape_.queries, 1}; }
  Descriptor& lse() { return graph_.tensor(kLse, data::kFloat, row_dims(), shape_.strides[kLse]); }
  // Intermediates: the scores of all queries and keys, or one number per query.
  Descriptor& scores(int type = data::kFloat) {
    return graph_.intermediate(type, {shape_.batch, shape_.q_heads, shape_.queries, shape_.keys});
  }
  Descriptor& rows() { return graph_.intermediate(data::kFloat, row_dims()); }

  Descriptor& elementwise(int mode, const Descriptor& x, const Descriptor& b) {
    Descriptor& y = scores();
    graph_.pointwise(mode, data::kFloat, x, &b, y);
    return y;
  }
  Descriptor& index(const Descriptor& scores_of, int64_t axis) {
    Descriptor& y = scores(data::kInt32);
    graph_.pointwise(pointwise::kIndex, data::kFloat, scores_of, nullptr, y, nullptr, axis);
    return y;
  }
  Descriptor& moved(int mode, int type, const Descriptor& indices, int64_t value_id) {
    Descriptor& y = scores(type);
    graph_.pointwise(mode, type, indices, &graph_.value(value_id, type), y);
    return y;
  }
  Descriptor& hide(const Descriptor& score, int comparison, const Descriptor& a, const Descriptor& b,
                   int64_t hidden_id) {
    Descriptor &is_visible = scores(data::kBoolean), &masked = scores();
    graph_.pointwise(comparison, data::kBoolean, a, &b, is_visible);
    graph_.pointwise(pointwise::kSelect, data::kFloat, score, &graph_.value(hidden_id, data::kFloat), masked,
                     &is_visible);
    return masked;
  }
  Descriptor& mask(Descriptor& score);
  // [keys, queries] of the tensors' dtype, of [queries, keys].
  Descriptor& turned(const Descriptor& x) {
    const int64_t size = shape_.queries * shape_.keys;
    Descriptor& y = graph_.intermediate(shape_.type, {shape_.batch, shape_.q_heads, shape_.keys, shape_.queries},
                                        {shape_.q_heads * size, size, 1, shape_.keys});
    graph_.reshape(x, y);
    return y;
  }
  void gradient_of_keys(const Descriptor& turned_weights, const Descriptor& rows_of, int64_t id);

  Graph& graph_;
  const Shape& shape_;
};

// First the keys after a query, then those before it.
Descriptor& Writer::mask(Descriptor& score) {
  Descriptor* masked = &score;
  if (shape_.right != kUnbounded) {
    Descriptor* query = &index(*masked, 2);
    Descriptor& key = index(*masked, 3);
    if (shape_.is_bottom_right) {
      query = &moved(pointwise::kAdd, data::kInt32, *query, kKeys);
      query = &moved(pointwise::kSubtract, data::kInt32, *query, kQueries);
    }
    if (shape_.right != 0) query = &moved(pointwise::kAdd, data::kInt32, *query, kShiftRight);
    masked = &hide(*masked, pointwise::kGreaterOrEqual, *query, key, kHiddenRight);
  }
  if (shape_.left != kUnbounded) {
    Descriptor& query = index(*masked, 2);
    Descriptor& key = moved(pointwise::kAdd, data::kFloat, index(*masked, 3), kShiftLeft);
    masked = &hide(*masked, pointwise::kGreater, key, query, kHiddenLeft);
  }
  return *masked;
}

void Writer::forward() {
  Descriptor &q = of_queries(kQ), &k = transposed(kK), &v = of_keys(kV), &out = of_queries(kOut);
  Descriptor& products = scores();
  graph_.multiply(q, k, products);
  Descriptor& score = mask(elementwise(pointwise::kMultiply, products, graph_.value(kScale, data::kFloat)));
  Descriptor &largest = rows(), &sum = rows();
  Descriptor &shifted = scores(), &exponential = scores();
  Descriptor& weights = scores(shape_.type);  // rounded: the second product takes the tensors' dtype
  graph_.reduce(reduction::kMax, score, largest);
  graph_.pointwise(pointwise::kSubtract, data::kFloat, score, &largest, shifted);
  graph_.pointwise(pointwise::kExp, data::kFloat, shifted, nullptr, exponential);
  graph_.reduce(reduction::kSum, exponential, sum);
  Descriptor& logarithm = rows();
  graph_.pointwise(pointwise::kLog, data::kFloat, sum, nullptr, logarithm);
  graph_.pointwise(pointwise::kAdd, data::kFloat, largest, &logarithm, shape_.has_lse ? lse() : rows());
  graph_.pointwise(pointwise::kDivide, data::kFloat, exponential, &sum, weights);
  graph_.multiply(weights, v, out);
}

// Where several query heads read a key head, each has its product, and their sum is the gradient.
void Writer::gradient_of_keys(const Descriptor& turned_weights, const Descriptor& rows_of, int64_t id) {
  Descriptor& gradient = of_keys(id);
  if (shape_.q_heads == shape_.kv_heads) {
    graph_.multiply(turned_weights, rows_of, gradient);
    return;
  }
  // Of the tensors' dtype: the engines of 9.19 accept fp32 here and compute something else.
  Descriptor& of_heads =
      graph_.intermediate(shape_.type, {shape_.batch, shape_.q_heads, shape_.keys, shape_.head_size});
  graph_.multiply(turned_weights, rows_of, of_heads);
  graph_.reduce(reduction::kSum, of_heads, gradient);
}

void Writer::backward() {
  Descriptor &q = of_queries(kQ), &k = transposed(kK), &v = transposed(kV), &out = of_queries(kOut);
  Descriptor &grad_out = of_queries(kGradOut), &scale = graph_.value(kScale, data::kFloat);
  Descriptor& products_of_rows =
      graph_.intermediate(data::kFloat, {shape_.batch, shape_.q_heads, shape_.queries, shape_.head_size});
  graph_.pointwise(pointwise::kMultiply, data::kFloat, grad_out, &out, products_of_rows);
  Descriptor& sums = rows();
  graph_.reduce(reduction::kSum, products_of_rows, sums);
  Descriptor& terms = graph_.tensor(kTerms, data::kFloat, row_dims(), packed(row_dims()));
  graph_.pointwise(pointwise::kMultiply, data::kFloat, sums, &graph_.value(kOne, data::kFloat), terms);

  Descriptor& products = scores();
  graph_.multiply(q, k, products);
  Descriptor& score = elementwise(pointwise::kMultiply, products, scale);
  Descriptor& logarithm = mask(elementwise(pointwise::kSubtract, score, lse()));
  Descriptor& weights = scores();
  graph_.pointwise(pointwise::kExp, data::kFloat, logarithm, nullptr, weights);
  gradient_of_keys(turned(weights), grad_out, kGradV);

  Descriptor& grad_weights = scores();
  graph_.multiply(grad_out, v, grad_weights);
  Descriptor& centred = elementwise(pointwise::kSubtract, grad_weights, terms);
  Descriptor& grad_scores = elementwise(pointwise::kMultiply, centred, weights);
  Descriptor& grad_products = elementwise(pointwise::kMultiply, grad_scores, scale);
  gradient_of_keys(turned(grad_products), q, kGradK);

  Descriptor& grad_q = of_queries(kGradQ);
  Descriptor& k_rows = graph_.intermediate(shape_.type, {shape_.batch, shape_.kv_heads, shape_.keys, shape_.head_size},
                                           shape_.strides[kK]);
  graph_.reshape(k, k_rows);
  if (shape_.direction == Direction::backward_deterministic) {
    graph_.multiply(grad_products, k_rows, grad_q);
    return;
  }
  const Dims dims = {shape_.batch, shape_.q_heads, shape_.queries, shape_.head_size};
  Descriptor& sum = graph_.tensor(kGradQSum, data::kFloat, dims, packed(dims));
  graph_.multiply(grad_products, k_rows, sum);
  graph_.pointwise(pointwise::kIdentity, data::kFloat, sum, nullptr, grad_q);
}

uint64_t align_256(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// What the graph of gradients keeps in memory, behind cuDNN's own workspace.
struct Kept {
  uint64_t terms = 0, grad_q = 0;
};
Kept kept_of(const Shape& shape) {
  Kept kept;
  if (shape.direction == Direction::forward) return kept;
  const auto rows = static_cast<uint64_t>(shape.batch * shape.q_heads * shape.queries);
  kept.terms = align_256(rows * sizeof(float));
  if (shape.direction == Direction::backward) {
    kept.grad_q = align_256(rows * static_cast<uint64_t>(shape.head_size) * sizeof(float));
  }
  return kept;
}

}  // namespace

AttentionGraph::AttentionGraph(const Target& target, const Shape& shape) : shape_(shape), graph_(target) {
  Writer writer(&graph_, shape_);
  if (shape_.direction == Direction::forward) {
    writer.forward();
  } else {
    writer.backward();
  }
  graph_.find_engines(shape_.direction != Direction::backward);
}

void AttentionGraph::compile() {
  const std::lock_guard<std::mutex> lock(mutex_);
  graph_.compile();
}

uint64_t AttentionGraph::workspace_bytes() const {
  const Kept kept = kept_of(shape_);
  return align_256(graph_.workspace_bytes()) + kept.terms + kept.grad_q;
}

void AttentionGraph::execute(Handle handle, void* const* tensors, float scale, void* workspace) const {
  const float one = 1, hidden = -std::numeric_limits<float>::infinity();
  const auto keys = static_cast<int32_t>(shape_.keys), queries = static_cast<int32_t>(shape_.queries);
  const auto shift_right = static_cast<int32_t>(shape_.right);
  // Of the comparison key + shift > query.
  const auto shift_left = static_cast<float>(shape_.left + 1 - (shape_.is_bottom_right ? keys - queries : 0));
  const void* pointers[kIds] = {};
  for (int64_t i = 0; i < kTensors; ++i) pointers[i] = tensors[i];
  char* const kept = static_cast<char*>(workspace) + align_256(graph_.workspace_bytes());
  pointers[kTerms] = kept;
  pointers[kGradQSum] = kept + kept_of(shape_).terms;
  pointers[kScale] = &scale;
  pointers[kOne] = &one;
  pointers[kHiddenRight] = pointers[kHiddenLeft] = &hidden;
  pointers[kKeys] = &keys;
  pointers[kQueries] = &queries;
  pointers[kShiftRight] = &shift_right;
  pointers[kShiftLeft] = &shift_left;
  const std::lock_guard<std::mutex> lock(mutex_);
  graph_.execute(handle, pointers, workspace);
}

}  // namespace rlk::cudnn
