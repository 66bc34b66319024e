// The simulated products of matrices, as the cube unit makes them: 16 products at a time are added up in fp32, one such
// block behind the other, and the sum is rounded once to the dtype of the output.
#include <algorithm>

#include "aclnn_api.h"
#include "element.h"

using namespace fake_ascend;

namespace {

constexpr int8_t kKeepDtype = 0, kAllowDownPrecision = 1, kUseHf32 = 3;
constexpr int64_t kBlock = 16;
constexpr Dtypes kNewer = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}, kOlder = {ACL_FLOAT, ACL_FLOAT16};

// HFLOAT32 keeps 11 bits of the mantissa.
float hf32_of(float value) {
  if (!std::isfinite(value)) return value;
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7ff + ((bits >> 12) & 1)) & ~uint32_t{0xfff});
}

// Of a matrix of rows (`step` apart) and a vector of `size`.
float dot(const float* x, const float* y, int64_t size, int64_t step) {
  float sum = 0;
  for (int64_t first = 0; first < size; first += kBlock) {
    float block = 0;
    for (int64_t k = first; k < std::min(size, first + kBlock); ++k) block += x[k] * y[k * step];
    sum += block;
  }
  return sum;
}

}  // namespace

aclnnStatus aclnnMatmulGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out,
                                        int8_t cube_math_type, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnMatmul", bytes, executor);
  const std::string soc = aclrtGetSocName();
  const bool is_newer = is_atlas_a2_or_a3(soc) || soc.rfind("Ascend950", 0) == 0;
  const Dtypes dtypes = is_newer ? kNewer : kOlder;
  const Tensor& a = phase.in("self", self, dtypes);
  const Tensor& b = phase.in("mat2", mat2, dtypes);
  const Tensor& to = phase.out("out", out, dtypes);
  if (phase.failed()) return phase.finish(nullptr);
  phase.require(a.dtype == b.dtype && to.dtype == a.dtype, "one dtype (this simulator)");
  phase.require(cube_math_type == kKeepDtype || cube_math_type == kAllowDownPrecision || cube_math_type == kUseHf32,
                "cubeMathType 0, 1 or 3 (this simulator)");
  phase.require(is_newer || a.dtype != ACL_FLOAT || cube_math_type != kKeepDtype,
                "another cubeMathType than 0 of FLOAT on " + soc);
  const size_t rank = a.dims.size();
  phase.require(rank >= 2 && rank <= 6 && b.dims.size() == rank && to.dims.size() == rank,
                "2 to 6 dimensions, of all as many (this simulator)");
  if (phase.failed()) return phase.finish(nullptr);
  const auto batch_of = [rank](const Tensor& tensor) {
    return std::vector<int64_t>(tensor.dims.begin(), tensor.dims.begin() + static_cast<int64_t>(rank) - 2);
  };
  const int64_t rows = a.dims[rank - 2], size = a.dims[rank - 1], columns = b.dims[rank - 1];
  bool fits = true;
  std::vector<int64_t> dims = broadcast(batch_of(a), batch_of(b), &fits);
  const int64_t batches = element_count(dims);
  dims.insert(dims.end(), {rows, columns});
  phase.require(fits && b.dims[rank - 2] == size && to.dims == dims,
                "a product of " + shape_text(a.dims) + " and " + shape_text(b.dims));
  phase.require(is_contiguous(to), "a contiguous out");
  const bool is_rounded = a.dtype == ACL_FLOAT && cube_math_type != kKeepDtype;
  return phase.finish([=](const Operands& operands) {
    const auto whole = [&](const View& view, int64_t first, int64_t second) {
      std::vector<int64_t> of = dims;
      of[rank - 2] = first, of[rank - 1] = second;
      auto values = load<float>(view, of);
      if (is_rounded) std::transform(values.begin(), values.end(), values.begin(), hf32_of);
      return values;
    };
    const auto x = whole(operands.in[0], rows, size), y = whole(operands.in[1], size, columns);
    std::vector<float> result;
    for (int64_t row = 0; row < batches * rows; ++row) {
      for (int64_t column = 0; column < columns; ++column)
        result.push_back(dot(x.data() + row * size, y.data() + row / rows * size * columns + column, size, columns));
    }
    store(operands.out[0], result);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnMatmul)
