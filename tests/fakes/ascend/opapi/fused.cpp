// The simulated gates and norms, in fp32 whatever they read.
#include "aclnn_api.h"
#include "element.h"

using namespace fake_ascend;

namespace {

constexpr Dtypes kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
constexpr Dtypes kFloat = {ACL_FLOAT};

bool is_dense(const Tensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.dims.size(); i-- > 0; expected *= tensor.dims[i]) {
    if (tensor.dims[i] != 1 && tensor.strides[i] != expected) return false;
  }
  return true;
}

// y = x gamma / root of the mean square. The squares are those of fp32, infinite beyond its range.
void normalize(const Operands& operands, const std::vector<float>& x, size_t gamma, double epsilon) {
  const auto weight = load<float>(operands.in[gamma]);
  const size_t columns = weight.size(), rows = x.size() / columns;
  std::vector<float> y(x.size()), rstd(rows);
  for (size_t n = 0; n < rows; ++n) {
    float squares = 0;
    for (size_t i = 0; i < columns; ++i) squares += x[n * columns + i] * x[n * columns + i];
    rstd[n] = 1 / std::sqrt(squares / static_cast<float>(columns) + static_cast<float>(epsilon));
    for (size_t i = 0; i < columns; ++i) y[n * columns + i] = x[n * columns + i] * rstd[n] * weight[i];
  }
  store(operands.out[0], y);
  store(operands.out[1], rstd);
}

void require_norm(Phase1& phase, const Tensor& x, const Tensor& gamma, const Tensor& y, const Tensor& rstd) {
  phase.require(x.dims.size() == 2 && gamma.dims == std::vector<int64_t>{x.dims[1]},
                "gamma of the last dimension of x (this simulator)");
  phase.require(gamma.dtype == x.dtype && y.dtype == x.dtype && y.dims == x.dims, "gamma and yOut like x");
  if (!phase.failed()) phase.require(rstd.dims == std::vector<int64_t>{x.dims[0], 1}, "rstdOut of [rows, 1]");
}

}  // namespace

aclnnStatus aclnnSwiGluGetWorkspaceSize(const aclTensor* x, int64_t dim, const aclTensor* out, uint64_t* bytes,
                                        aclOpExecutor** executor) {
  Phase1 phase("aclnnSwiGlu", bytes, executor);
  const Tensor& from = phase.in("x", x, kFloats);
  const Tensor& to = phase.out("out", out, kFloats);
  phase.require(is_dense(from) && is_dense(to), "contiguous tensors");
  phase.require(from.dims.size() == 2 && (dim == 1 || dim == -1), "the last of two dimensions (this simulator)");
  if (!phase.failed()) {
    phase.require(from.dims[1] % 2 == 0 && to.dims == std::vector<int64_t>{from.dims[0], from.dims[1] / 2},
                  "out of half of x, got " + shape_text(to.dims));
    phase.require(from.dims[0] > 0 && from.dims[1] > 0, "a tensor that is not empty: older versions take none");
  }
  phase.require(to.dtype == from.dtype, "out of the dtype of x");
  return phase.finish([](const Operands& operands) {
    const auto values = load<float>(operands.in[0]);
    const auto columns = static_cast<size_t>(operands.out[0].dims[1]);
    std::vector<float> result;
    for (size_t row = 0; row < values.size(); row += 2 * columns) {
      for (size_t i = 0; i < columns; ++i) {
        const float gate = values[row + i];
        result.push_back(gate / (1 + std::exp(-gate)) * values[row + columns + i]);
      }
    }
    store(operands.out[0], result);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnSwiGlu)

aclnnStatus aclnnRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* gamma, double epsilon, const aclTensor* y,
                                         const aclTensor* rstd, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnRmsNorm", bytes, executor);
  const Tensor& from = phase.in("x", x, kFloats);
  const Tensor& weight = phase.in("gamma", gamma, kFloats);
  const Tensor& to = phase.out("yOut", y, kFloats);
  const Tensor& roots = phase.out("rstdOut", rstd, kFloat);
  require_norm(phase, from, weight, to, roots);
  return phase.finish([epsilon](const Operands& operands) {
    normalize(operands, load<float>(operands.in[0]), 1, epsilon);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnRmsNorm)

// y is that of the sum as it is, not as xOut keeps it.
aclnnStatus aclnnAddRmsNormGetWorkspaceSize(const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma,
                                            double epsilon, aclTensor* y, aclTensor* rstd, aclTensor* sum,
                                            uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnAddRmsNorm", bytes, executor);
  const Tensor& a = phase.in("x1", x1, kFloats);
  const Tensor& b = phase.in("x2", x2, kFloats);
  const Tensor& weight = phase.in("gamma", gamma, kFloats);
  const Tensor& to = phase.out("yOut", y, kFloats);
  const Tensor& roots = phase.out("rstdOut", rstd, kFloat);
  const Tensor& total = phase.out("xOut", sum, kFloats);
  phase.require(b.dims == a.dims && b.dtype == a.dtype && total.dims == a.dims && total.dtype == a.dtype,
                "x2 and xOut like x1");
  for (const Tensor* tensor : {&a, &b, &weight, &to, &total}) phase.require(is_dense(*tensor), "contiguous tensors");
  require_norm(phase, a, weight, to, roots);
  return phase.finish([epsilon](const Operands& operands) {
    auto x = load<float>(operands.in[0]);
    const auto more = load<float>(operands.in[1]);
    for (size_t i = 0; i < x.size(); ++i) x[i] += more[i];
    normalize(operands, x, 2, epsilon);
    store(operands.out[2], x);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnAddRmsNorm)
