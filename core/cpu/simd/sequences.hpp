// Sequences of tokens: the rows of dense tensors [B, L], or one after the other in packed tensors [N].
#pragma once

#include <algorithm>

#include "core/cpu/simd/walk.hpp"

namespace rlk::cpu {

// Whether count + 1 numbers cut [0, total) into ranges that follow each other.
inline DataError check_seqlens(const IntArray& cu_seqlens, int64_t count, int64_t total) {
  int64_t previous = 0;
  for (int64_t position = 0; position <= count; ++position) {
    const int64_t content = cu_seqlens.get(position);
    const bool starts_wrong = position == 0 && content != 0;
    const bool ends_wrong = position == count && content != total;
    if (starts_wrong || content < previous || ends_wrong) return {kBadSeqlens, position, content};
    previous = content;
  }
  return {};
}

struct Sequences {
  int64_t count = 0;
  bool packed = false;
  int64_t length = 0;   // of every dense sequence; of all packed ones together
  IntArray cu_seqlens;  // packed: [count + 1]

  DataError error() const { return packed ? check_seqlens(cu_seqlens, count, length) : DataError{}; }
  int64_t elements() const { return packed ? length : count * length; }
  int64_t tokens(int64_t b) const { return packed ? cu_seqlens.get(b + 1) - cu_seqlens.get(b) : length; }
  Position at(int64_t b, int64_t t) const { return packed ? Position{cu_seqlens.get(b) + t, 0} : Position{b, t}; }
};

// Of a call: packed when it has cu_seqlens. Asks for no data but that of cu_seqlens, when it is used.
inline Sequences sequences_of(const Array& tokens, const Array& cu_seqlens) {
  if (!cu_seqlens.given()) return {tokens.shape[0], false, tokens.shape[1], {}};
  return {cu_seqlens.shape[0] - 1, true, tokens.shape[0], cu_seqlens.integers()};
}

// The tokens of one sequence in a tensor; absent where that is.
inline Line line_of(const Sequences& sequences, const Array& array, int64_t b) {
  if (!array.present()) return {};
  const int64_t first = sequences.packed ? sequences.cu_seqlens.get(b) : b;
  return {element(array.data, first * array.strides[0], array.dtype), array.dtype,
          array.strides[sequences.packed ? 0 : 1], array.exceeds_caches};
}

// Calls function(b) for every sequence, so many tokens per task.
template <typename Function>
void for_each_sequence(const Sequences& sequences, const ParallelFor& hook, Function&& function,
                       int64_t tokens_of_task = kGrainElements) {
  const int64_t tokens = sequences.packed ? sequences.length / std::max<int64_t>(1, sequences.count) : sequences.length;
  const int64_t grain = std::max<int64_t>(1, tokens_of_task / std::max<int64_t>(1, tokens));
  parallel_for(hook, sequences.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) function(b);
  });
}

}  // namespace rlk::cpu
