// 64-bit ids by their words, and the first row in error as the first of the highest score.
#include "ids.hpp"

namespace rlk::cambricon {
namespace {

Operand constant(Calls& c, int n, int32_t value) {
  Operand out = c.scratch(kInt32, {n});
  c.fill(out, value);
  return out;
}
Operand compared(Calls& c, int operation, const Operand& x, const Operand& y) {
  Operand out = c.scratch(kBool, x.dims);
  c.compare(operation, x, y, out);
  return out;
}

// Low words are compared as numbers without a sign: those with the highest bit are the larger.
Operand is_less(Calls& c, const IdWords& id, int64_t number) {
  const int n = id.low.dims[0];
  const auto low = static_cast<int32_t>(number), high = static_cast<int32_t>(number >> 32);
  const Operand zero = constant(c, n, 0), below = compared(c, kLess, id.low, constant(c, n, low));
  const Operand low_less = low >= 0 ? compared(c, kAnd, compared(c, kGreaterEqual, id.low, zero), below)
                                    : compared(c, kOr, compared(c, kGreaterEqual, id.low, zero), below);
  const Operand highs = constant(c, n, high);
  return compared(c, kOr, compared(c, kLess, id.high, highs),
                  compared(c, kAnd, compared(c, kEqual, id.high, highs), low_less));
}

}  // namespace

IdWords words_of(Calls& c, const Operand& ids, bool is_wide) {
  const int n = static_cast<int>(count(ids.dims)) / (is_wide ? 2 : 1);
  if (is_wide) {
    IdWords words{c.scratch(kInt32, {n}), c.scratch(kInt32, {n})};
    c.copy({ids.data, kInt32, {n}, {2}}, words.low);
    c.copy({static_cast<std::byte*>(ids.data) + sizeof(int32_t), kInt32, {n}, {2}}, words.high);
    return words;
  }
  const Operand low = reshaped(ids, {n}), zero = constant(c, n, 0), high = c.scratch(kInt32, {n});
  c.select(compared(c, kLess, low, zero), constant(c, n, -1), zero, high);
  return {low, high};
}

void compare_wide_ids(Calls& c, int operation, const Operand& ids, int64_t number, const Operand& out) {
  const IdWords id = words_of(c, ids, true);
  const int n = id.low.dims[0];
  const Operand flat = reshaped(out, {n});
  if (operation == kLess || operation == kGreaterEqual) {
    // The one is the other's opposite.
    const Operand less = is_less(c, id, number), truth = c.scratch(kBool, {n});
    c.fill_bytes(truth, 1);
    return c.compare(operation == kLess ? kEqual : kNotEqual, less, truth, flat);
  }
  const Operand low = constant(c, n, static_cast<int32_t>(number));
  const Operand high = constant(c, n, static_cast<int32_t>(number >> 32));
  c.compare(operation == kEqual ? kAnd : kOr, compared(c, operation, id.low, low),
            compared(c, operation, id.high, high), flat);
}

void gather_wide_ids(Calls& c, const Operand& ids, const Operand& places, const Operand& out) {
  const IdWords words = words_of(c, ids, true);
  const Operand taken = c.scratch(kInt32, places.dims);
  const int n = static_cast<int>(count(places.dims));
  const auto take = [&](const Operand& word, size_t bytes) {
    c.gather(reshaped(word, {ids.dims[0], ids.dims[1]}), 1, places, taken);
    c.copy(reshaped(taken, {n}), {static_cast<std::byte*>(out.data) + bytes, kInt32, {n}, {2}});
  };
  take(words.low, 0);
  take(words.high, sizeof(int32_t));
}

// The bits of 2^23 with others in their lower half are 2^23 and those: no integer is counted with.
void numbers_of(Calls& c, const Operand& integers, const Operand& out) {
  constexpr float kUnit = 0x1p23F, kHalf = 0x1p16F;
  const int n = static_cast<int>(count(integers.dims));
  const auto half = [&](size_t at) {
    Operand number = c.scratch(kFloat, {n});
    c.fill(number, kUnit);
    c.copy({static_cast<std::byte*>(integers.data) + at * sizeof(int16_t), kInt16, {n}, {2}},
           {number.data, kInt16, {n}, {2}});
    c.affine(number, 1.0F, -kUnit, number);
    return number;
  };
  const Operand low = half(0), high = half(1), below = c.scratch(kFloat, {n}), chosen = c.scratch(kFloat, {n});
  c.affine(high, 1.0F, -kHalf, below);
  c.select(compared(c, kLess, reshaped(integers, {n}), constant(c, n, 0)), below, high, chosen);
  c.scale(chosen, kHalf, high);
  c.add(high, 1, low, 1, reshaped(out, {n}));
}

void record_first_error(Calls& c, const FirstError& error) {
  const Operand best = c.scratch(kFloat, {1}), at = c.scratch(kInt32, {1});
  c.max(error.score, 0, best, &at);

  // The record's fields, of which the column of that row in `told` gives three.
  const Operand candidate = c.scratch(kInt32, {kRecordFields});
  const auto field = [](const Operand& record, int first, int number) { return rows(record, first, number); };
  c.fill(field(candidate, kFound, 1), 1);
  c.fill(field(candidate, kTag, 1), error.tag);
  c.index_select(error.told, 1, at, reshaped(field(candidate, kKind, 3), {3, 1}));
  c.copy_bytes(at, field(candidate, kRow, 1));
  c.fill(field(candidate, kFirstRow, 1), error.first_row);

  const Operand record{error.record, kInt32, {kRecordFields}};
  const Operand bests = c.scratch(kFloat, {kRecordFields}), taken = c.scratch(kInt32, {kRecordFields});
  c.expand(best, bests);
  c.expand(field(record, kFound, 1), taken);
  const Operand zeros = c.scratch(kFloat, {kRecordFields});
  c.fill(zeros, 0.0F);
  const Operand take =
      compared(c, kAnd, compared(c, kGreater, bests, zeros), compared(c, kEqual, taken, constant(c, kRecordFields, 0)));
  const Operand chosen = c.scratch(kInt32, {kRecordFields});
  c.select(take, candidate, record, chosen);
  c.copy_bytes(chosen, record);
}

}  // namespace rlk::cambricon
