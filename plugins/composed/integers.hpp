// integers: numbers of i64, of which a vendor documents sums, products, "and" and "xor" to the last bit. No sum or
// product here leaves the 63 bits of a number and its sign: where a formula has more, its words of 32 bits are
// multiplied. What is divided by 2^32 is its upper word. Shifts and cumulative sums of i64 stay out: CANN runs them on
// the AI CPU.
#pragma once

#include "scans.hpp"
#include "scores.hpp"

namespace rlk::composed {

inline Value integer(Recorder& recorder, int64_t x) {
  return {&recorder, recorder.id_number(x)};
}
// A whole number of fp32 (Word::whole), and as a place in a row.
inline Value as_integer(Value whole) {
  return {whole.recorder, whole.recorder->whole(whole.node)};
}
inline Value as_place(Value whole) {
  return index_of(as_integer(whole));
}

// One's word `at` and byte `at`, the lowest being 0, as a number of this dtype. A word has its sign.
inline Value word_at(Value x, int64_t at, sdk::Dtype dtype) {
  return {x.recorder, x.recorder->cast(x.recorder->bits(x.node, sdk::Dtype::i32, at), dtype)};
}
inline Value byte_at(Value x, int64_t at, sdk::Dtype dtype) {
  return {x.recorder, x.recorder->cast(x.recorder->bits(x.node, sdk::Dtype::u8, at), dtype)};
}
inline Value bit_and(Value a, Value b) {
  return detail::made(Word::bit_and, a, b);
}
inline Value bit_xor(Value a, Value b) {
  return detail::made(Word::bit_xor, a, b);
}

// floor(x / 2^32) and what is left, from 0 on.
inline Value high_word(Value x) {
  return word_at(x, 1, sdk::Dtype::i64);
}
inline Value low_word(Value x) {
  return bit_and(x, detail::beside(x, 0xffffffffu));
}
// 64 bits without a sign.
struct Words {
  Value high, low;
};
inline Words words_of(Value x) {
  return {low_word(high_word(x)), low_word(x)};
}

// floor(u w / 2^64) of w from 0 on, below 2^63 - 2^31, and whether that has dropped something. The lower word of w is
// taken with its sign, so that products of words stay within 63 bits.
struct Share {
  Value whole;
  Mask has_rest;

  Share(const Words& u, Value w) : whole(w), has_rest{w.recorder, -1} {
    const Value low = word_at(w, 0, sdk::Dtype::i64), high = high_word(Add(w, detail::beside(w, 0x1p31)));
    const Value a = Mul(low, u.high), b = Mul(high, u.low), c = Mul(low, u.low);
    const Value middle = Add(Add(low_word(a), low_word(b)), high_word(c));
    whole = Add(Add(Mul(high, u.high), Add(high_word(a), high_word(b))), high_word(middle));
    has_rest = Ne(Add(low_word(middle), low_word(c)), detail::beside(w, 0));
  }
};

// Of numbers of [0, 1) in fp32 so many digits of `bits` bits behind the point, and what is left of the last: as a power
// of two is a factor, nothing is rounded.
struct Digits {
  std::vector<Value> digits;
  Value rest;

  Digits(Value share, int count, int bits) : rest(share) {
    for (int i = 0; i < count; ++i) {
      const Value scaled = Mul(rest, detail::beside(rest, static_cast<double>(int64_t{1} << bits)));
      digits.push_back(Floor(scaled));
      rest = Sub(scaled, digits.back());
    }
  }
  // Two digits as one integer.
  Value pair(size_t first, int bits) const {
    const Value upper = as_integer(digits[first]);
    return Add(Mul(upper, detail::beside(upper, static_cast<double>(int64_t{1} << bits))),
               as_integer(digits[first + 1]));
  }
};
inline Words fixed_point_of(Value share) {
  const Digits digits(share, 4, 16);
  return {digits.pair(0, 16), digits.pair(2, 16)};
}
inline Words words_of(Recorder& recorder, uint64_t x) {
  return {integer(recorder, static_cast<int64_t>(x >> 32)), integer(recorder, static_cast<int64_t>(x & 0xffffffffu))};
}

// Sums of the beginnings of rows of integers, or of whole numbers of fp32 that stay below 2^24.
inline Value whole_sums_along(Value x) {
  for (int64_t by = 1; by < row_length(x); by *= 2) x = Add(x, shifted(x, -by));
  return x;
}

// The place of the first of those sums that is not below a limit, of numbers from 0 on; the last place where there is
// none. [rows, 1] in fp32. First the block is found, then the place within it.
template <class D>
Value place_of_sum(D d, Value x, Value limit) {
  const int64_t rows = dims_of(x)[0], columns = row_length(x);
  int64_t size = 1;
  while (size * size < columns) size *= 2;
  const int64_t blocks = (columns + size - 1) / size, missing = blocks * size - columns;
  if (missing > 0) {
    const Value some = some_columns(x, 0, missing);
    x = joined(x, Sub(some, some));
  }
  const Value sums = reshaped(row_sum(reshaped(x, {rows, blocks, size})), {rows, blocks});
  const Mask is_below = Lt(whole_sums_along(sums), limit);
  const Value first = Mul(at_most(d, static_cast<double>(blocks - 1), row_sum(ones_of(d, is_below))),
                          number(d, static_cast<double>(size)));
  const Value own = at_column(x, as_place(Add(first, positions_of(d, {size}))));
  const Value left = Sub(limit, row_sum(IfThenElseZero(is_below, sums)));
  const Value below = Add(first, row_sum(ones_of(d, Lt(whole_sums_along(own), left))));
  return at_most(d, static_cast<double>(columns - 1), below);
}

}  // namespace rlk::composed
