// The simulated operators that copy, convert and fill.
#include "aclnn_api.h"
#include "element.h"

using namespace fake_ascend;

namespace {

constexpr Dtypes kAll = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16,  ACL_DOUBLE, ACL_INT8,
                         ACL_INT32, ACL_INT64,   ACL_UINT8, ACL_BOOL};
constexpr Dtypes kMaskable = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32, ACL_INT64, ACL_BOOL};
constexpr Dtypes kRange = {ACL_FLOAT, ACL_INT32, ACL_INT64};
constexpr Dtypes kBool = {ACL_BOOL};

// Truncates toward zero from floating point to integers; not 0 becomes true.
void convert(const View& from, const View& to) {
  visit_compute(from.dtype, [&](auto typed) { store(to, load<decltype(typed)>(from, to.dims)); });
}

// From FLOAT to INT64 CANN speaks for numbers between -2^31 and 2147483583 alone, and not of fractions: those become
// what no program can use.
void convert_to_integers(const View& from, const View& to) {
  std::vector<int64_t> whole;
  for (const float x : load<float>(from, to.dims)) {
    const auto number = static_cast<double>(x);
    const bool is_exact = number > -2147483648.0 && number < 2147483583.0 && number == std::floor(number);
    whole.push_back(is_exact ? static_cast<int64_t>(x) : -77777777777);
  }
  store(to, whole);
}

void fill(const View& target, const Scalar& value) {
  visit_compute(target.dtype, [&](auto typed) {
    using C = decltype(typed);
    store(target, std::vector<C>(static_cast<size_t>(element_count(target.dims)), value_of<C>(value)));
  });
}

}  // namespace

aclnnStatus aclnnCastGetWorkspaceSize(const aclTensor* self, int32_t dtype, aclTensor* out, uint64_t* bytes,
                                      aclOpExecutor** executor) {
  Phase1 phase("aclnnCast", bytes, executor);
  const Tensor& from = phase.in("self", self, kAll);
  const Tensor& to = phase.out("out", out, kAll);
  phase.require(from.dims == to.dims && to.dtype == dtype, "out of the shape of self and of the dtype named");
  const bool is_to_integers = from.dtype == ACL_FLOAT && to.dtype == ACL_INT64;
  return phase.finish([is_to_integers](const Operands& operands) {
    (is_to_integers ? convert_to_integers : convert)(operands.in[0], operands.out[0]);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnCast)

aclnnStatus aclnnInplaceCopyGetWorkspaceSize(aclTensor* self, const aclTensor* src, uint64_t* bytes,
                                             aclOpExecutor** executor) {
  Phase1 phase("aclnnInplaceCopy", bytes, executor);
  const Tensor& to = phase.in_out("selfRef", self, kAll);
  const Tensor& from = phase.in("src", src, kAll);
  bool fits = true;
  const auto dims = broadcast(to.dims, from.dims, &fits);
  phase.require(fits && dims == to.dims, "src that broadcasts to selfRef " + shape_text(to.dims));
  return phase.finish([](const Operands& operands) {
    convert(operands.in[1], operands.in[0]);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnInplaceCopy)

aclnnStatus aclnnInplaceZeroGetWorkspaceSize(aclTensor* self, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnInplaceZero", bytes, executor);
  phase.in_out("selfRef", self, kAll);
  return phase.finish([](const Operands& operands) {
    fill(operands.in[0], Scalar{});
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnInplaceZero)

aclnnStatus aclnnInplaceFillScalarGetWorkspaceSize(aclTensor* self, const aclScalar* value, uint64_t* bytes,
                                                   aclOpExecutor** executor) {
  Phase1 phase("aclnnInplaceFillScalar", bytes, executor);
  phase.in_out("selfRef", self, kAll);
  const Scalar constant = phase.scalar("value", value);
  return phase.finish([constant](const Operands& operands) {
    fill(operands.in[0], constant);
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnInplaceFillScalar)

aclnnStatus aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor* self, const aclTensor* mask, const aclScalar* value,
                                                         uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnInplaceMaskedFillScalar", bytes, executor);
  const Tensor& target = phase.in_out("selfRef", self, kMaskable);
  const Tensor& selected = phase.in("mask", mask, kBool);
  const Scalar constant = phase.scalar("value", value);
  bool fits = true;
  const auto dims = broadcast(target.dims, selected.dims, &fits);
  phase.require(fits && dims == target.dims, "mask that broadcasts to selfRef " + shape_text(target.dims));
  return phase.finish([constant](const Operands& operands) {
    const View& out = operands.in[0];
    visit_compute(out.dtype, [&](auto typed) {
      using C = decltype(typed);
      auto values = load<C>(out);
      const auto chosen = load<int64_t>(operands.in[1], out.dims);
      for (size_t i = 0; i < values.size(); ++i) {
        if (chosen[i] != 0) values[i] = value_of<C>(constant);
      }
      store(out, values);
    });
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnInplaceMaskedFillScalar)

aclnnStatus aclnnArangeGetWorkspaceSize(const aclScalar* start, const aclScalar* end, const aclScalar* step,
                                        aclTensor* out, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnArange", bytes, executor);
  const Scalar first = phase.scalar("start", start);
  const Scalar last = phase.scalar("end", end);
  const Scalar stride = phase.scalar("step", step);
  const Tensor& target = phase.out("out", out, kRange);
  const auto real = [](const Scalar& value) {
    return value.dtype == ACL_FLOAT || value.dtype == ACL_DOUBLE ? value.real : static_cast<double>(value.integer);
  };
  const double count = std::ceil((real(last) - real(first)) / real(stride));
  phase.require(target.dims.size() == 1 && static_cast<double>(target.dims[0]) == count,
                "an output of ceil((end - start) / step) elements, got " + shape_text(target.dims));
  return phase.finish([=](const Operands& operands) {
    visit_compute(operands.out[0].dtype, [&](auto typed) {
      using C = decltype(typed);
      std::vector<C> values(static_cast<size_t>(operands.out[0].dims[0]));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<C>(real(first) + static_cast<double>(i) * real(stride));
      }
      store(operands.out[0], values);
    });
    return 0;
  });
}
FAKE_ASCEND_PHASE2(aclnnArange)
