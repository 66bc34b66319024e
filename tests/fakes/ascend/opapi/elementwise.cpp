// The simulated elementwise operators. 16-bit types are computed in fp32 and rounded once, but for alpha other than 1,
// where the vendor multiplies first and rounds the product.
#include <algorithm>
#include <limits>

#include "aclnn_api.h"
#include "element.h"

using namespace fake_ascend;

namespace {

constexpr Dtypes kReals = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE};
constexpr Dtypes kNumbersAndBool = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16,  ACL_DOUBLE,
                                    ACL_INT32, ACL_INT64,   ACL_UINT8, ACL_BOOL};
constexpr Dtypes kNumbers = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT32, ACL_INT64, ACL_UINT8};
constexpr Dtypes kClampable = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32, ACL_INT64};
constexpr Dtypes kSelectable = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT32,
                                ACL_INT64, ACL_UINT8,   ACL_INT8, ACL_BOOL};
constexpr Dtypes kBool = {ACL_BOOL};
constexpr Dtypes kIntegersAndBool = {ACL_INT8, ACL_UINT8, ACL_INT32, ACL_INT64, ACL_BOOL};

// out[i] = fn(dtype of the inputs, self[i], other[i]); out may have another dtype than the inputs (comparisons).
template <typename Function>
aclnnStatus finish_binary(Phase1& phase, const Tensor& self, const Tensor& other, const Tensor& out, bool in_place,
                          Function fn) {
  bool fits = true;
  const auto dims = broadcast(self.dims, other.dims, &fits);
  phase.require(self.dtype == other.dtype,
                std::string("one dtype, got ") + dtype_name(self.dtype) + " and " + dtype_name(other.dtype));
  phase.require(fits && dims == out.dims, "an output of the broadcast shape of " + shape_text(self.dims) + " and " +
                                              shape_text(other.dims) + ", got " + shape_text(out.dims));
  return phase.finish([fn, in_place](const Operands& operands) {
    const View& target = in_place ? operands.in[0] : operands.out[0];
    visit_compute(operands.in[0].dtype, [&](auto typed) {
      using C = decltype(typed);
      const auto x = load<C>(operands.in[0], target.dims);
      const auto y = load<C>(operands.in[1], target.dims);
      using R = decltype(fn(0, C{}, C{}));
      std::vector<std::conditional_t<std::is_same_v<R, bool>, int64_t, R>> result(x.size());
      for (size_t i = 0; i < x.size(); ++i) result[i] = fn(operands.in[0].dtype, x[i], y[i]);
      store(target, result);
    });
    return 0;
  });
}

template <typename Function>
aclnnStatus binary(Phase1&& phase, const aclTensor* self, const aclTensor* other, const aclTensor* out, Dtypes dtypes,
                   Function fn) {
  const Tensor& a = phase.in("self", self, dtypes);
  const Tensor& b = phase.in("other", other, dtypes);
  const Tensor& c = phase.out("out", out, dtypes);
  phase.require(a.dtype == c.dtype, "out of the dtype of self");
  return finish_binary(phase, a, b, c, false, fn);
}

template <typename Function>
aclnnStatus compare(Phase1&& phase, const aclTensor* self, const aclTensor* other, const aclTensor* out, Function fn) {
  const Tensor& a = phase.in("self", self, kNumbersAndBool);
  const Tensor& b = phase.in("other", other, kNumbersAndBool);
  const Tensor& c = phase.out("out", out, kBool);
  return finish_binary(phase, a, b, c, false, fn);
}

// out[i] = fn(dtype of self, self[i]); out may have another dtype (comparisons).
template <typename Function>
aclnnStatus unary(Phase1&& phase, const aclTensor* self, const aclTensor* out, Dtypes dtypes, Dtypes out_dtypes,
                  Function fn) {
  const Tensor& a = phase.in("self", self, dtypes);
  const Tensor& c = phase.out("out", out, out_dtypes);
  phase.require(a.dims == c.dims, "out of the shape of self");
  phase.require(a.dtype == c.dtype || c.dtype == ACL_BOOL, "out of the dtype of self");
  return phase.finish([fn](const Operands& operands) {
    visit_compute(operands.in[0].dtype, [&](auto typed) {
      using C = decltype(typed);
      const auto x = load<C>(operands.in[0]);
      using R = decltype(fn(0, C{}));
      std::vector<std::conditional_t<std::is_same_v<R, bool>, int64_t, R>> result(x.size());
      for (size_t i = 0; i < x.size(); ++i) result[i] = fn(operands.in[0].dtype, x[i]);
      store(operands.out[0], result);
    });
    return 0;
  });
}

// self + alpha other, as the vendor rounds it.
auto scaled_sum(Scalar alpha, int sign) {
  return [alpha, sign]<typename C>(int32_t dtype, C x, C y) {
    const C factor = value_of<C>(alpha);
    const C term = factor == C{1} ? y : round_to(dtype, static_cast<C>(factor * y));
    return static_cast<C>(sign > 0 ? x + term : x - term);
  };
}

// NaN stays NaN.
template <typename C>
C clamp(C value, C low, C high) {
  if (value < low) return low;
  return value > high ? high : value;
}

}  // namespace

aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                                     aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnAdd", bytes, executor);
  const Scalar factor = phase.scalar("alpha", alpha);
  return binary(std::move(phase), self, other, out, kNumbersAndBool, scaled_sum(factor, 1));
}
FAKE_ASCEND_PHASE2(aclnnAdd)

aclnnStatus aclnnInplaceAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                                            uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnInplaceAdd", bytes, executor);
  const Scalar factor = phase.scalar("alpha", alpha);
  const Tensor& a = phase.in_out("selfRef", self, kNumbersAndBool);
  const Tensor& b = phase.in("other", other, kNumbersAndBool);
  return finish_binary(phase, a, b, a, true, scaled_sum(factor, 1));
}
FAKE_ASCEND_PHASE2(aclnnInplaceAdd)

aclnnStatus aclnnAddsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, const aclScalar* alpha,
                                      aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnAdds", bytes, executor);
  const Scalar term = phase.scalar("other", other);
  const Scalar factor = phase.scalar("alpha", alpha);
  return unary(std::move(phase), self, out, kNumbers, kNumbers,
               [=]<typename C>(int32_t dtype, C x) { return scaled_sum(factor, 1)(dtype, x, value_of<C>(term)); });
}
FAKE_ASCEND_PHASE2(aclnnAdds)

aclnnStatus aclnnSubGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                                     aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnSub", bytes, executor);
  const Scalar factor = phase.scalar("alpha", alpha);
  return binary(std::move(phase), self, other, out, kNumbers, scaled_sum(factor, -1));
}
FAKE_ASCEND_PHASE2(aclnnSub)

aclnnStatus aclnnMulGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* bytes,
                                     aclOpExecutor** executor) {
  return binary(Phase1("aclnnMul", bytes, executor), self, other, out, kNumbersAndBool,
                []<typename C>(int32_t, C x, C y) { return static_cast<C>(x * y); });
}
FAKE_ASCEND_PHASE2(aclnnMul)

aclnnStatus aclnnMulsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t* bytes,
                                      aclOpExecutor** executor) {
  Phase1 phase("aclnnMuls", bytes, executor);
  const Scalar factor = phase.scalar("other", other);
  return unary(std::move(phase), self, out, kNumbers, kNumbers,
               [=]<typename C>(int32_t, C x) { return static_cast<C>(x * value_of<C>(factor)); });
}
FAKE_ASCEND_PHASE2(aclnnMuls)

aclnnStatus aclnnDivGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* bytes,
                                     aclOpExecutor** executor) {
  return binary(Phase1("aclnnDiv", bytes, executor), self, other, out, kReals,
                []<typename C>(int32_t, C x, C y) { return static_cast<C>(x / y); });
}
FAKE_ASCEND_PHASE2(aclnnDiv)

aclnnStatus aclnnDivsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t* bytes,
                                      aclOpExecutor** executor) {
  Phase1 phase("aclnnDivs", bytes, executor);
  const Scalar divisor = phase.scalar("other", other);
  return unary(std::move(phase), self, out, kReals, kReals,
               [=]<typename C>(int32_t, C x) { return static_cast<C>(x / value_of<C>(divisor)); });
}
FAKE_ASCEND_PHASE2(aclnnDivs)

aclnnStatus aclnnExpGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  return unary(Phase1("aclnnExp", bytes, executor), self, out, kReals, kReals,
               []<typename C>(int32_t, C x) { return static_cast<C>(std::exp(x)); });
}
FAKE_ASCEND_PHASE2(aclnnExp)

aclnnStatus aclnnLogGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  return unary(Phase1("aclnnLog", bytes, executor), self, out, kReals, kReals,
               []<typename C>(int32_t, C x) { return static_cast<C>(std::log(x)); });
}
FAKE_ASCEND_PHASE2(aclnnLog)

aclnnStatus aclnnAbsGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  return unary(Phase1("aclnnAbs", bytes, executor), self, out, kNumbersAndBool, kNumbersAndBool,
               []<typename C>(int32_t, C x) { return static_cast<C>(std::abs(x)); });
}
FAKE_ASCEND_PHASE2(aclnnAbs)

aclnnStatus aclnnSqrtGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes,
                                      aclOpExecutor** executor) {
  return unary(Phase1("aclnnSqrt", bytes, executor), self, out, kReals, kReals,
               []<typename C>(int32_t, C x) { return static_cast<C>(std::sqrt(x)); });
}
FAKE_ASCEND_PHASE2(aclnnSqrt)

aclnnStatus aclnnTanhGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes,
                                      aclOpExecutor** executor) {
  return unary(Phase1("aclnnTanh", bytes, executor), self, out, kReals, kReals,
               []<typename C>(int32_t, C x) { return static_cast<C>(std::tanh(x)); });
}
FAKE_ASCEND_PHASE2(aclnnTanh)

aclnnStatus aclnnFloorGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* bytes,
                                       aclOpExecutor** executor) {
  return unary(Phase1("aclnnFloor", bytes, executor), self, out, kReals, kReals,
               []<typename C>(int32_t, C x) { return static_cast<C>(std::floor(x)); });
}
FAKE_ASCEND_PHASE2(aclnnFloor)

#define FAKE_ASCEND_BITS(name, operation)                                                                            \
  aclnnStatus name##GetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* bytes, \
                                     aclOpExecutor** executor) {                                                     \
    return binary(Phase1(#name, bytes, executor), self, other, out, kIntegersAndBool,                                \
                  []<typename C>(int32_t, C x, C y) {                                                                \
                    return static_cast<C>(static_cast<int64_t>(x) operation static_cast<int64_t>(y));                \
                  });                                                                                                \
  }                                                                                                                  \
  FAKE_ASCEND_PHASE2(name)
FAKE_ASCEND_BITS(aclnnBitwiseAndTensor, &)
FAKE_ASCEND_BITS(aclnnBitwiseXorTensor, ^)

aclnnStatus aclnnClampGetWorkspaceSize(const aclTensor* self, const aclScalar* low, const aclScalar* high,
                                       aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnClamp", bytes, executor);
  const Scalar from = phase.scalar("clipValueMin", low);
  const Scalar to = phase.scalar("clipValueMax", high);
  return unary(std::move(phase), self, out, kClampable, kClampable,
               [=]<typename C>(int32_t, C x) { return clamp(x, value_of<C>(from), value_of<C>(to)); });
}
FAKE_ASCEND_PHASE2(aclnnClamp)

aclnnStatus aclnnClampMinGetWorkspaceSize(const aclTensor* self, const aclScalar* low, aclTensor* out, uint64_t* bytes,
                                          aclOpExecutor** executor) {
  Phase1 phase("aclnnClampMin", bytes, executor);
  const Scalar from = phase.scalar("clipValueMin", low);
  return unary(std::move(phase), self, out, kClampable, kClampable,
               [=]<typename C>(int32_t, C x) { return clamp(x, value_of<C>(from), x); });
}
FAKE_ASCEND_PHASE2(aclnnClampMin)

#define FAKE_ASCEND_COMPARE_TENSORS(name, comparison)                                                                \
  aclnnStatus name##GetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* bytes, \
                                     aclOpExecutor** executor) {                                                     \
    return compare(Phase1(#name, bytes, executor), self, other, out,                                                 \
                   [](int32_t, auto x, auto y) { return x comparison y; });                                          \
  }                                                                                                                  \
  FAKE_ASCEND_PHASE2(name)
FAKE_ASCEND_COMPARE_TENSORS(aclnnEqTensor, ==)
FAKE_ASCEND_COMPARE_TENSORS(aclnnNeTensor, !=)
FAKE_ASCEND_COMPARE_TENSORS(aclnnLtTensor, <)
FAKE_ASCEND_COMPARE_TENSORS(aclnnLeTensor, <=)

#define FAKE_ASCEND_COMPARE_SCALAR(name, comparison)                                                                 \
  aclnnStatus name##GetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t* bytes, \
                                     aclOpExecutor** executor) {                                                     \
    Phase1 phase(#name, bytes, executor);                                                                            \
    const Scalar bound = phase.scalar("other", other);                                                               \
    return unary(std::move(phase), self, out, kNumbers, kBool,                                                       \
                 [=]<typename C>(int32_t, C x) { return x comparison value_of<C>(bound); });                         \
  }                                                                                                                  \
  FAKE_ASCEND_PHASE2(name)
FAKE_ASCEND_COMPARE_SCALAR(aclnnEqScalar, ==)
FAKE_ASCEND_COMPARE_SCALAR(aclnnNeScalar, !=)
FAKE_ASCEND_COMPARE_SCALAR(aclnnLtScalar, <)
FAKE_ASCEND_COMPARE_SCALAR(aclnnLeScalar, <=)
FAKE_ASCEND_COMPARE_SCALAR(aclnnGtScalar, >)
FAKE_ASCEND_COMPARE_SCALAR(aclnnGeScalar, >=)

// Of numbers too, as in C: what is not 0 is true.
aclnnStatus aclnnLogicalAndGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                            uint64_t* bytes, aclOpExecutor** executor) {
  return compare(Phase1("aclnnLogicalAnd", bytes, executor), self, other, out,
                 []<typename C>(int32_t, C x, C y) { return x != C{0} && y != C{0}; });
}
FAKE_ASCEND_PHASE2(aclnnLogicalAnd)

aclnnStatus aclnnLogicalOrGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                           uint64_t* bytes, aclOpExecutor** executor) {
  return compare(Phase1("aclnnLogicalOr", bytes, executor), self, other, out,
                 []<typename C>(int32_t, C x, C y) { return x != C{0} || y != C{0}; });
}
FAKE_ASCEND_PHASE2(aclnnLogicalOr)

aclnnStatus aclnnSWhereGetWorkspaceSize(const aclTensor* condition, const aclTensor* self, const aclTensor* other,
                                        aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnSWhere", bytes, executor);
  const Tensor& c = phase.in("condition", condition, kBool);
  const Tensor& a = phase.in("self", self, kSelectable);
  const Tensor& b = phase.in("other", other, kSelectable);
  const Tensor& result = phase.out("out", out, kSelectable);
  bool fits = true;
  const auto dims = broadcast(broadcast(a.dims, b.dims, &fits), c.dims, &fits);
  phase.require(fits && dims == result.dims, "out of the broadcast shape, got " + shape_text(result.dims));
  phase.require(a.dtype == b.dtype && a.dtype == result.dtype, "self, other and out of one dtype");
  return phase.finish([](const Operands& operands) {
    const View& target = operands.out[0];
    visit_compute(target.dtype, [&](auto typed) {
      using C = decltype(typed);
      const auto chosen = load<int64_t>(operands.in[0], target.dims);
      auto x = load<C>(operands.in[1], target.dims);
      const auto y = load<C>(operands.in[2], target.dims);
      for (size_t i = 0; i < x.size(); ++i) x[i] = chosen[i] != 0 ? x[i] : y[i];
      store(target, x);
    });
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnSWhere)
