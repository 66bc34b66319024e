// Boundaries without a sort. Scores become integers of the same order; counting the mass (tokens for top_k, weight for
// top_p) of every value of their 11 highest bits tells in which value the boundary lies, and two more passes tell the
// rest of its bits. Equal scores at the boundary are then taken in the order of ids.
#include "core/cpu/kernels/sample_filter.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace rlk::cpu {
namespace {

// The order of fp32 numbers, -0 equal to 0.
uint32_t key_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

struct Row {
  const float* x;
  const uint64_t* w;
  int64_t vocab;
};

// Of the tokens in `keep`, keeps those before which, by falling score and rising id, there is less than `limit` of
// mass; the mass of all of them is at least limit, and limit at least 1.
template <typename Mass>
void keep_first(const Row& row, uint64_t limit, bool with_ties, uint8_t* keep, const Mass& mass) {
  uint32_t boundary = 0, known = 0;  // the bits of the boundary's key, and which of them are known
  uint64_t above = 0;                // mass of greater keys
  for (const int shift : {21, 10, 0}) {
    const uint32_t digits = shift == 0 ? 0x3ffu : 0x7ffu;
    uint64_t histogram[0x800] = {};
    for (int64_t v = 0; v < row.vocab; ++v) {
      if (keep[v] == 0) continue;
      const uint32_t key = key_of(row.x[v]);
      if ((key & known) == boundary) histogram[key >> shift & digits] += mass(v);
    }
    uint32_t digit = digits;
    while (above + histogram[digit] < limit) above += histogram[digit--];
    boundary |= digit << shift;
    known |= digits << shift;
  }
  for (int64_t v = 0; v < row.vocab; ++v) {
    if (keep[v] == 0) continue;
    const uint32_t key = key_of(row.x[v]);
    if (key > boundary) continue;
    if (key < boundary) {
      keep[v] = 0;
      continue;
    }
    if (above >= limit && !with_ties) keep[v] = 0;
    above += mass(v);
  }
}

void keep_top_k(const SampleFilter& filter, const Row& row, uint8_t* keep) {
  int64_t kept = 0;
  for (int64_t v = 0; v < row.vocab; ++v) kept += keep[v];
  if (kept <= filter.top_k) return;
  keep_first(row, static_cast<uint64_t>(filter.top_k), filter.top_k_keeps_ties, keep,
             [](int64_t) { return uint64_t{1}; });
}

void keep_top_p(const SampleFilter& filter, const Row& row, uint8_t* keep) {
  uint64_t sum = 0, rest = 0;
  for (int64_t v = 0; v < row.vocab; ++v) sum += keep[v] != 0 ? row.w[v] : 0;
  const uint64_t share = multiply_high(fixed_point(std::max(filter.top_p, 0.0f)), sum, &rest);
  const uint64_t limit = share + (filter.top_p_exceeds || rest != 0 ? 1 : 0);
  keep_first(row, std::max<uint64_t>(limit, 1), filter.top_p_keeps_ties, keep, [&](int64_t v) { return row.w[v]; });
}

}  // namespace

bool sample_filter(const SampleFilter& filter, const float* x, const uint64_t* w, int64_t vocab, uint8_t* keep,
                   uint8_t* other) {
  const Row row{x, w, vocab};
  const bool by_min = filter.min_p > 0, by_k = filter.top_k > 0 && filter.top_k < vocab, by_p = filter.top_p < 1;
  if (!by_min && !by_k && !by_p) return false;
  constexpr double kOne = 0x1p40;
  const auto least =
      by_min ? static_cast<uint64_t>(std::min(std::ceil(static_cast<double>(filter.min_p) * kOne), kOne)) : 0;
  for (int64_t v = 0; v < vocab; ++v) {
    keep[v] = x[v] > -std::numeric_limits<float>::infinity() && w[v] >= least ? 1 : 0;
  }
  if (!filter.joint || !by_k || !by_p) {
    if (by_k) keep_top_k(filter, row, keep);
    if (by_p) keep_top_p(filter, row, keep);
    return true;
  }
  std::memcpy(other, keep, static_cast<size_t>(vocab));
  keep_top_k(filter, row, keep);
  keep_top_p(filter, row, other);
  for (int64_t v = 0; v < vocab; ++v) keep[v] &= other[v];
  return true;
}

}  // namespace rlk::cpu
