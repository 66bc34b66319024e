// The simulated softmax of rows, its logarithm and their gradients, and the rotary embedding: in fp32 whatever they
// read, rounded once.
#include <algorithm>
#include <limits>

#include "aclnn_api.h"
#include "element.h"

using namespace fake_ascend;

namespace {

constexpr Dtypes kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

bool is_last(const Tensor& tensor, int64_t dim) {
  return tensor.dims.size() == 2 && (dim == 1 || dim == -1);
}

aclnnStatus softmax(const char* name, const aclTensor* self, int64_t dim, const aclTensor* out, bool logarithm,
                    uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase(name, bytes, executor);
  const Tensor& from = phase.in("self", self, kFloats);
  const Tensor& to = phase.out("out", out, kFloats);
  phase.require(is_last(from, dim), "the last of two dimensions (this simulator)");
  phase.require(to.dims == from.dims && to.dtype == from.dtype, "out like self");
  return phase.finish([logarithm](const Operands& operands) {
    auto x = load<float>(operands.in[0]);
    const auto columns = static_cast<size_t>(operands.in[0].dims[1]);
    for (size_t row = 0; row < x.size(); row += columns) {
      float* const first = x.data() + row;
      float largest = -std::numeric_limits<float>::infinity();
      for (size_t i = 0; i < columns; ++i) largest = std::max(largest, first[i]);  // a NaN reaches the sum
      std::vector<float> powers;
      for (size_t i = 0; i < columns; ++i) powers.push_back(std::exp(first[i] - largest));
      const float sum = vector_sum(powers.data(), static_cast<int64_t>(columns), 1);
      for (size_t i = 0; i < columns; ++i) first[i] = logarithm ? first[i] - largest - std::log(sum) : powers[i] / sum;
    }
    store(operands.out[0], x);
    return 0;
  });
}

aclnnStatus softmax_backward(const char* name, const aclTensor* grad, const aclTensor* output, int64_t dim,
                             const aclTensor* out, bool logarithm, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase(name, bytes, executor);
  const Tensor& from = phase.in("gradOutput", grad, kFloats);
  const Tensor& result = phase.in("output", output, kFloats);
  const Tensor& to = phase.out("out", out, kFloats);
  phase.require(is_last(from, dim), "the last of two dimensions (this simulator)");
  phase.require(
      result.dims == from.dims && result.dtype == from.dtype && to.dims == from.dims && to.dtype == from.dtype,
      "output and out like gradOutput");
  return phase.finish([logarithm](const Operands& operands) {
    auto g = load<float>(operands.in[0]);
    const auto y = load<float>(operands.in[1]);
    const auto columns = static_cast<size_t>(operands.in[0].dims[1]);
    for (size_t row = 0; row < g.size(); row += columns) {
      std::vector<float> terms;
      for (size_t i = row; i < row + columns; ++i) terms.push_back(logarithm ? g[i] : g[i] * y[i]);
      const float sum = vector_sum(terms.data(), static_cast<int64_t>(columns), 1);
      for (size_t i = row; i < row + columns; ++i)
        g[i] = logarithm ? g[i] - sum * std::exp(y[i]) : g[i] * y[i] - sum * y[i];
    }
    store(operands.out[0], g);
    return 0;
  });
}

}  // namespace

aclnnStatus aclnnSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* bytes,
                                         aclOpExecutor** executor) {
  return softmax("aclnnSoftmax", self, dim, out, false, bytes, executor);
}
FAKE_ASCEND_PHASE2(aclnnSoftmax)

aclnnStatus aclnnLogSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* bytes,
                                            aclOpExecutor** executor) {
  return softmax("aclnnLogSoftmax", self, dim, out, true, bytes, executor);
}
FAKE_ASCEND_PHASE2(aclnnLogSoftmax)

aclnnStatus aclnnSoftmaxBackwardGetWorkspaceSize(const aclTensor* grad, const aclTensor* output, int64_t dim,
                                                 aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  return softmax_backward("aclnnSoftmaxBackward", grad, output, dim, out, false, bytes, executor);
}
FAKE_ASCEND_PHASE2(aclnnSoftmaxBackward)

aclnnStatus aclnnLogSoftmaxBackwardGetWorkspaceSize(const aclTensor* grad, const aclTensor* output, int64_t dim,
                                                    aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  return softmax_backward("aclnnLogSoftmaxBackward", grad, output, dim, out, true, bytes, executor);
}
FAKE_ASCEND_PHASE2(aclnnLogSoftmaxBackward)

// x of [batch, tokens, heads, D], cos and sin of [1, tokens, 1, D]: of the vendor's layouts the one that both modes
// take.
aclnnStatus aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor* x, const aclTensor* cos, const aclTensor* sin,
                                                         int64_t mode, aclTensor* out, uint64_t* bytes,
                                                         aclOpExecutor** executor) {
  Phase1 phase("aclnnRotaryPositionEmbedding", bytes, executor);
  const std::string soc = aclrtGetSocName();
  if (!is_atlas_a2_or_a3(soc))
    return fail(ACLNN_ERR_INNER_FIND_KERNEL_ERROR, "aclnnRotaryPositionEmbedding: no kernel for " + soc);
  const Tensor& from = phase.in("x", x, kFloats);
  const Tensor& cosines = phase.in("cos", cos, kFloats);
  const Tensor& sines = phase.in("sin", sin, kFloats);
  const Tensor& to = phase.out("out", out, kFloats);
  phase.require(from.dims.size() == 4 && to.dims == from.dims && to.dtype == from.dtype, "out like x, of 4 dimensions");
  if (phase.failed()) return phase.finish(nullptr);
  const int64_t batch = from.dims[0], tokens = from.dims[1], heads = from.dims[2], size = from.dims[3];
  phase.require(cosines.dims == std::vector<int64_t>{1, tokens, 1, size} && sines.dims == cosines.dims &&
                    cosines.dtype == from.dtype && sines.dtype == from.dtype,
                "cos and sin of [1, S, 1, D] and the dtype of x (this simulator)");
  phase.require(mode == 0 || mode == 1, "mode 0 or 1");
  phase.require(size > 0 && size % 2 == 0 && size < 896, "D even and below 896");
  phase.require(mode == 0 ? batch < 1000 && heads < 1000 : batch * heads < 1000, "fewer than 1000 batches and heads");
  phase.require(is_contiguous(to), "a contiguous out");
  return phase.finish([mode, heads, size](const Operands& operands) {
    const auto values = load<float>(operands.in[0]);
    const auto c = load<float>(operands.in[1]), s = load<float>(operands.in[2]);
    std::vector<float> result(values.size());
    for (size_t at = 0; at < values.size(); ++at) {
      const auto d = static_cast<int64_t>(at) % size;
      const size_t angle =
          at / static_cast<size_t>(heads * size) * static_cast<size_t>(size) % c.size() + static_cast<size_t>(d);
      const bool is_first = mode == 0 ? d < size / 2 : d % 2 == 0;
      const int64_t away = mode == 0 ? size / 2 : 1;
      const float other = values[static_cast<size_t>(static_cast<int64_t>(at) + (is_first ? away : -away))];
      const float straight = values[at] * c[angle], across = (is_first ? -other : other) * s[angle];
      result[at] = straight + across;
    }
    store(operands.out[0], result);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnRotaryPositionEmbedding)
