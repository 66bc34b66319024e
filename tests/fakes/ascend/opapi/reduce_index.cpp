// The simulated reductions, gathers and scatters.
#include <algorithm>

#include "aclnn_api.h"
#include "element.h"

using namespace fake_ascend;

namespace {

constexpr Dtypes kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
constexpr Dtypes kReals = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE};
constexpr Dtypes kSummable = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT32, ACL_INT64};
constexpr Dtypes kMovable = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32, ACL_INT64, ACL_UINT8, ACL_BOOL};
constexpr Dtypes kSelectable = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT32,
                                ACL_INT64, ACL_UINT8,   ACL_INT8, ACL_BOOL};
constexpr Dtypes kIndex = {ACL_INT32, ACL_INT64};

// A tensor seen as [outer, size, inner] around one dimension.
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
};

Around around(const std::vector<int64_t>& dims, int64_t dim) {
  Around result;
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    (at < dim ? result.outer : at == dim ? result.size : result.inner) *= dims[i];
  }
  return result;
}

int64_t normalized(int64_t dim, const std::vector<int64_t>& dims) {
  return dim < 0 ? dim + static_cast<int64_t>(dims.size()) : dim;
}

std::vector<int64_t> reduced(const std::vector<int64_t>& dims, const std::vector<int64_t>& over, bool keep) {
  std::vector<int64_t> result;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool gone = std::find(over.begin(), over.end(), static_cast<int64_t>(i)) != over.end();
    if (!gone)
      result.push_back(dims[i]);
    else if (keep)
      result.push_back(1);
  }
  return result;
}

// Hardware reads or writes wherever a bad index points.
int check_index(const char* op, int64_t index, int64_t size) {
  if (index >= 0 && index < size) return 0;
  violation("INDEX_OUT_OF_RANGE", std::string(op) + ": index " + std::to_string(index) + " of " + std::to_string(size));
  return ACL_ERROR_RT_AICORE_EXCEPTION;
}

}  // namespace

aclnnStatus aclnnReduceSumGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, bool keep, int32_t dtype,
                                           aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnReduceSum", bytes, executor);
  const Tensor& from = phase.in("self", self, kSummable);
  const auto over = phase.ints("dims", dims);
  const Tensor& to = phase.out("out", out, kSummable);
  const int64_t dim = over.size() == 1 ? normalized(over[0], from.dims) : -1;
  phase.require(dim >= 0 && dim < static_cast<int64_t>(from.dims.size()), "one dimension of self (this simulator)");
  phase.require(to.dtype == dtype && to.dims == reduced(from.dims, {dim}, keep),
                "out of the dtype named and of the reduced shape, got " + shape_text(to.dims));
  return phase.finish([dim](const Operands& operands) {
    const auto reduce = [&](auto typed) {
      using C = decltype(typed);
      const auto values = load<C>(operands.in[0]);
      const Around shape = around(operands.in[0].dims, dim);
      std::vector<C> sums;
      for (int64_t o = 0; o < shape.outer; ++o) {
        for (int64_t i = 0; i < shape.inner; ++i) {
          sums.push_back(vector_sum(values.data() + o * shape.size * shape.inner + i, shape.size, shape.inner));
        }
      }
      store(operands.out[0], sums);
    };
    visit_compute(operands.in[0].dtype, reduce);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnReduceSum)

// A NaN is the largest.
aclnnStatus aclnnAmaxGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, bool keep, aclTensor* out,
                                      uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnAmax", bytes, executor);
  const Tensor& from = phase.in("self", self, kReals);
  const auto over = phase.ints("dim", dims);
  const Tensor& to = phase.out("out", out, kReals);
  const int64_t dim = over.size() == 1 ? normalized(over[0], from.dims) : -1;
  phase.require(dim >= 0 && dim < static_cast<int64_t>(from.dims.size()), "one dimension of self (this simulator)");
  phase.require(to.dtype == from.dtype && to.dims == reduced(from.dims, {dim}, keep),
                "out of the dtype of self and of the reduced shape, got " + shape_text(to.dims));
  phase.require(around(from.dims, dim).size > 0, "a dimension that is not empty");
  return phase.finish([dim](const Operands& operands) {
    const auto values = load<double>(operands.in[0]);
    const Around shape = around(operands.in[0].dims, dim);
    std::vector<double> best;
    for (int64_t o = 0; o < shape.outer; ++o) {
      for (int64_t i = 0; i < shape.inner; ++i) {
        const double* column = values.data() + o * shape.size * shape.inner + i;
        double champion = column[0];
        for (int64_t k = 1; k < shape.size; ++k) {
          const double value = column[k * shape.inner];
          if (!std::isnan(champion) && (std::isnan(value) || value > champion)) champion = value;
        }
        best.push_back(champion);
      }
    }
    store(operands.out[0], best);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnAmax)

aclnnStatus aclnnMaxDimGetWorkspaceSize(const aclTensor* self, int64_t dim, bool keep, aclTensor* out,
                                        aclTensor* indices, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnMaxDim", bytes, executor);
  const Tensor& from = phase.in("self", self, kFloats);
  const Tensor& to = phase.out("out", out, kFloats);
  const Tensor& at = phase.out("indices", indices, kIndex);
  const int64_t over = normalized(dim, from.dims);
  const auto expected = reduced(from.dims, {over}, keep);
  phase.require(over >= 0 && over < static_cast<int64_t>(from.dims.size()), "dim of self");
  phase.require(to.dtype == from.dtype && to.dims == expected && at.dims == expected,
                "out and indices of the reduced shape " + shape_text(expected));
  phase.require(around(from.dims, over).size > 0, "a dimension that is not empty");
  return phase.finish([over](const Operands& operands) {
    const auto values = load<float>(operands.in[0]);
    const Around shape = around(operands.in[0].dims, over);
    std::vector<float> best;
    std::vector<int64_t> where;
    for (int64_t o = 0; o < shape.outer; ++o) {
      for (int64_t i = 0; i < shape.inner; ++i) {
        const float* column = values.data() + o * shape.size * shape.inner + i;
        int64_t winner = 0;
        for (int64_t k = 1; k < shape.size; ++k) {
          const float value = column[k * shape.inner];
          const float champion = column[winner * shape.inner];
          if (!std::isnan(champion) && (std::isnan(value) || value > champion)) winner = k;
        }
        best.push_back(column[winner * shape.inner]);
        where.push_back(winner);
      }
    }
    store(operands.out[0], best);
    store(operands.out[1], where);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnMaxDim)

// out[i][j][k] = self[i][index[i][j][k]][k]
aclnnStatus aclnnGatherGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                        uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnGather", bytes, executor);
  const Tensor& from = phase.in("self", self, kSelectable);
  const Tensor& at = phase.in("index", index, kIndex);
  const Tensor& to = phase.out("out", out, kSelectable);
  const int64_t axis = normalized(dim, from.dims);
  phase.require(axis >= 0 && axis < static_cast<int64_t>(from.dims.size()) && at.dims.size() == from.dims.size(),
                "dim of self, index of the same rank");
  for (size_t i = 0; !phase.failed() && i < at.dims.size(); ++i) {
    phase.require(static_cast<int64_t>(i) == axis || at.dims[i] == from.dims[i],
                  "index as large as self (this simulator) outside dim");
  }
  phase.require(to.dims == at.dims && to.dtype == from.dtype, "out of the shape of index and the dtype of self");
  return phase.finish([axis](const Operands& operands) {
    const Around shape = around(operands.in[0].dims, axis);
    const int64_t picked = around(operands.in[1].dims, axis).size;
    const auto index_values = load<int64_t>(operands.in[1]);
    int code = 0;
    visit_compute(operands.in[0].dtype, [&](auto typed) {
      using C = decltype(typed);
      const auto values = load<C>(operands.in[0]);
      std::vector<C> result(index_values.size());
      for (size_t i = 0; i < result.size() && code == 0; ++i) {
        const auto flat = static_cast<int64_t>(i);
        const int64_t o = flat / (picked * shape.inner);
        if ((code = check_index("aclnnGather", index_values[i], shape.size)) != 0) return;
        result[i] = values[static_cast<size_t>((o * shape.size + index_values[i]) * shape.inner + flat % shape.inner)];
      }
      store(operands.out[0], result);
    });
    return code;
  });
}
FAKE_ASCEND_PHASE2(aclnnGather)

// out[i][j][k] = self[i][index[j]][k]
aclnnStatus aclnnIndexSelectGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                             uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnIndexSelect", bytes, executor);
  const Tensor& from = phase.in("self", self, kSelectable);
  const Tensor& at = phase.in("index", index, kIndex);
  const Tensor& to = phase.out("out", out, kSelectable);
  const int64_t axis = normalized(dim, from.dims);
  phase.require(axis >= 0 && axis < static_cast<int64_t>(from.dims.size()) && at.dims.size() == 1,
                "dim of self, index of one dimension");
  if (!phase.failed()) {
    auto expected = from.dims;
    expected[static_cast<size_t>(axis)] = at.dims[0];
    phase.require(to.dims == expected && to.dtype == from.dtype, "out of shape " + shape_text(expected));
  }
  return phase.finish([axis](const Operands& operands) {
    const Around shape = around(operands.in[0].dims, axis);
    const auto index_values = load<int64_t>(operands.in[1]);
    for (const int64_t picked : index_values) {
      if (const int code = check_index("aclnnIndexSelect", picked, shape.size)) return code;
    }
    visit_compute(operands.in[0].dtype, [&](auto typed) {
      using C = decltype(typed);
      const auto values = load<C>(operands.in[0]);
      std::vector<C> result;
      result.reserve(static_cast<size_t>(element_count(operands.out[0].dims)));
      for (int64_t o = 0; o < shape.outer; ++o) {
        for (const int64_t picked : index_values) {
          const auto first = values.begin() + (o * shape.size + picked) * shape.inner;
          result.insert(result.end(), first, first + shape.inner);
        }
      }
      store(operands.out[0], result);
    });
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnIndexSelect)

// self[i][index[j]][k] = source[i][j][k]; which of several writes to one place wins is not defined.
aclnnStatus aclnnInplaceIndexCopyGetWorkspaceSize(aclTensor* self, int64_t dim, const aclTensor* index,
                                                  const aclTensor* source, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnInplaceIndexCopy", bytes, executor);
  const Tensor& to = phase.in_out("selfRef", self, kMovable);
  const Tensor& at = phase.in("index", index, kIndex);
  const Tensor& from = phase.in("source", source, kMovable);
  const int64_t axis = normalized(dim, to.dims);
  phase.require(axis >= 0 && axis < static_cast<int64_t>(to.dims.size()) && at.dims.size() == 1,
                "dim of selfRef, index of one dimension");
  if (!phase.failed()) {
    auto expected = to.dims;
    expected[static_cast<size_t>(axis)] = at.dims[0];
    phase.require(from.dims == expected && from.dtype == to.dtype, "source of shape " + shape_text(expected));
  }
  return phase.finish([axis](const Operands& operands) {
    const View& target = operands.in[0];
    const Around shape = around(target.dims, axis);
    const auto index_values = load<int64_t>(operands.in[1]);
    const auto rows = static_cast<int64_t>(index_values.size());
    int code = 0;
    visit_compute(target.dtype, [&](auto typed) {
      using C = decltype(typed);
      auto values = load<C>(target);
      const auto updates = load<C>(operands.in[2]);
      for (int64_t o = 0; o < shape.outer; ++o) {
        for (int64_t j = 0; j < rows; ++j) {
          const int64_t place = index_values[static_cast<size_t>(j)];
          if ((code = check_index("aclnnInplaceIndexCopy", place, shape.size)) != 0) return;
          for (int64_t i = 0; i < shape.inner; ++i) {
            values[static_cast<size_t>((o * shape.size + place) * shape.inner + i)] =
                updates[static_cast<size_t>((o * rows + j) * shape.inner + i)];
          }
        }
      }
      store(target, values);
    });
    return code;
  });
}
FAKE_ASCEND_PHASE2(aclnnInplaceIndexCopy)
