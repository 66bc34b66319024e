// The first row in error is the one of the highest score, as in tokens.cpp.
#include "report.hpp"

#include "tokens.hpp"

namespace rlk::ascend {
namespace {

template <class T>
Operand filled(Builder& b, int32_t dtype, int64_t n, T value) {
  Operand made = b.scratch(dtype, {n});
  b.fill(made, value);
  return made;
}

const std::string& lacking() {
  static const std::string names = [] {
    const Runtime& r = runtime();
    return missing(r.MaxDim, r.Arange, r.SWhere, r.InplaceFillScalar, r.IndexSelect, r.Cast, r.Adds, r.LtTensor,
                   r.EqTensor, r.Mul);
  }();
  return names;
}

}  // namespace

bool reports() {
  return lacking().empty();
}

const char* report_functions() {
  return reports() ? "aclnnMaxDim" : lacking().c_str();
}

void report(Builder& b, const ComposedStep& step) {
  static_assert(RLK_DATA_ID_OUT_OF_RANGE == 1 && RLK_DATA_NO_FINITE_LOGIT == 2);
  const int64_t n = element_count(step.in[0].dims);
  const Operand empty = reshaped(step.in[0], {n});
  const bool has_ids = step.in.size() == 3;
  const Operand unknown = has_ids ? reshaped(step.in[1], {n}) : Operand::absent();

  // The earlier the row the higher its score; 0 is none.
  const Operand score = b.scratch(kAclFloat, {n}), none = filled(b, kAclFloat, 1, 0.0F);
  b.arange(static_cast<float>(n), 0.0F, -1.0F, score);
  const Operand wrong = b.scratch(kAclFloat, {n});
  b.where(empty, score, none, wrong);
  if (has_ids) b.where(unknown, score, wrong, wrong);
  const Operand best = b.scratch(kAclFloat, {1}), at = b.scratch(kAclInt32, {1});
  b.max(wrong, 0, true, best, at);

  const Operand kind = filled(b, kAclInt64, n, int64_t{RLK_DATA_NO_FINITE_LOGIT});
  const Operand value = filled(b, kAclInt64, n, int64_t{0});
  if (has_ids) {
    b.where(unknown, filled(b, kAclInt64, 1, int64_t{RLK_DATA_ID_OUT_OF_RANGE}), kind, kind);
    Operand ids = reshaped(step.in[2], {n});
    if (ids.dtype != kAclInt64) {
      const Operand wide = b.scratch(kAclInt64, {n});
      b.cast(ids, wide);
      ids = wide;
    }
    b.where(unknown, ids, value, value);
  }
  const Operand candidate = b.scratch(kAclInt64, {4}), row = shifted(candidate, 2, 1);
  b.fill_with_tag(shifted(candidate, 0, 1));
  b.index_select(kind, 0, at, shifted(candidate, 1, 1));
  b.cast(at, row);
  if (step.number > 0) b.add_scalar(row, static_cast<int64_t>(step.number), row);
  b.index_select(value, 0, at, shifted(candidate, 3, 1));
  const Operand found = b.scratch(kAclBool, {1});
  b.less(none, best, found);
  merge_record(b, filled(b, kAclInt64, 1, int64_t{0}), candidate, found);
}

}  // namespace rlk::ascend
