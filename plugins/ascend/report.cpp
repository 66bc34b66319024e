// The first row in error is the one of the highest score.
#include "report.hpp"

#include "tokens.hpp"

namespace rlk::ascend {
namespace {

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
  static_assert(RLK_DATA_ID_OUT_OF_RANGE == 1 && RLK_DATA_NO_FINITE_LOGIT == 2 && RLK_DATA_ROW_OUT_OF_RANGE == 3);
  const int64_t n = element_count(step.in[0].dims);
  const Operand empty = reshaped(step.in[0], {n});
  const auto whole = [&](int64_t number) { return step.constant(sdk::Dtype::i64, static_cast<double>(number)); };
  const Operand none = step.constant(sdk::Dtype::f32, 0);

  // The earlier the row the higher its score; 0 is none.
  const Operand score = b.scratch(kAclFloat, {n}), wrong = b.scratch(kAclFloat, {n});
  b.arange(static_cast<float>(n), 0.0F, -1.0F, score);
  b.where(empty, score, none, wrong);
  for (size_t mask = 1; mask < step.in.size(); mask += 2) b.where(reshaped(step.in[mask], {n}), score, wrong, wrong);
  const Operand best = b.scratch(kAclFloat, {1}), at = b.scratch(kAclInt32, {1});
  b.max(wrong, 0, true, best, at);

  // What is told of each row; so far it is one number for all.
  Operand kind = whole(RLK_DATA_NO_FINITE_LOGIT), value = whole(0);
  const auto tell = [&](const Operand& mask, const Operand& numbers, int64_t told) {
    const Operand is_wrong = reshaped(mask, {n}), kinds = b.scratch(kAclInt64, {n}), values = b.scratch(kAclInt64, {n});
    Operand ids = reshaped(numbers, {n});
    if (ids.dtype != kAclInt64) {
      const Operand wide = b.scratch(kAclInt64, {n});
      b.cast(ids, wide);
      ids = wide;
    }
    b.where(is_wrong, whole(told), kind, kinds);
    b.where(is_wrong, ids, value, values);
    kind = kinds;
    value = values;
  };
  // Of a row with both errors it is the id.
  if (step.in.size() == 5) tell(step.in[3], step.in[4], RLK_DATA_ROW_OUT_OF_RANGE);
  if (step.in.size() >= 3) tell(step.in[1], step.in[2], RLK_DATA_ID_OUT_OF_RANGE);
  const Operand candidate = b.scratch(kAclInt64, {4}), row = shifted(candidate, 2, 1);
  const auto put = [&](const Operand& told, int64_t field) {
    const Operand to = shifted(candidate, field, 1);
    if (told.place == Place::fixed)
      b.add_scalar(told, int64_t{0}, to);
    else
      b.index_select(told, 0, at, to);
  };
  b.fill_with_tag(shifted(candidate, 0, 1));
  put(kind, 1);
  b.cast(at, row);
  if (step.number > 0) b.add_scalar(row, static_cast<int64_t>(step.number), row);
  put(value, 3);
  const Operand found = b.scratch(kAclBool, {1});
  b.less(none, best, found);
  merge_record(b, whole(0), candidate, found);
}

}  // namespace rlk::ascend
