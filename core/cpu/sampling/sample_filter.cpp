// Boundaries without a sort. Bins of scores, counted while the weights were made, tell in which of them a boundary
// lies. The few tokens there become integers of the same order; counting the mass (tokens for top_k, weight for top_p)
// of every value of their 11 highest bits tells in which value it lies, and two more passes tell the rest of its bits.
// Equal scores at the boundary are then taken in the order of ids.
#include "core/cpu/sampling/sample_filter.hpp"

#include <algorithm>
#include <bit>

#include "core/cpu/sampling/sample_block.hpp"

namespace rlk::cpu {
namespace {

enum class Mass { tokens, weight };

// The order of fp32 numbers, -0 equal to 0.
uint32_t key_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The active tokens of a bin, by rising id; returns their number.
int64_t list_bin(const SampleRow& row, int bin) {
  constexpr int64_t kStep = 64;
  const auto wanted = static_cast<uint16_t>(bin);
  int64_t count = 0;
  for (int64_t begin = 0; begin < row.vocab; begin += kStep) {
    const int64_t end = std::min(begin + kStep, row.vocab);
    if (end - begin == kStep) {
      uint16_t hits = 0;  // vectorised: most steps have none
      for (int64_t i = 0; i < kStep; ++i) hits |= static_cast<uint16_t>(row.bins[begin + i] == wanted ? 1 : 0);
      if (hits == 0) continue;
    }
    for (int64_t v = begin; v < end; ++v) {
      if (row.bins[v] != wanted || row.x[v] == -std::numeric_limits<float>::infinity()) continue;
      row.list[count++] = static_cast<uint32_t>(v);
    }
  }
  return count;
}

// The key of the listed tokens before which, by falling key, there is less than `limit` of mass, and with which there
// is no less; `above` is the mass before the list, and becomes that before the key.
template <Mass kMass>
uint32_t boundary_key(const SampleRow& row, int64_t count, uint64_t limit, uint64_t* above) {
  uint32_t boundary = 0, known = 0;  // the bits of the boundary's key, and which of them are known
  for (const int shift : {21, 10, 0}) {
    const uint32_t digits = shift == 0 ? 0x3ffu : 0x7ffu;
    uint64_t histogram[0x800] = {};
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t v = row.list[i], key = key_of(row.x[v]);
      if ((key & known) == boundary) histogram[key >> shift & digits] += kMass == Mass::tokens ? 1 : row.w[v];
    }
    uint32_t digit = digits;
    while (*above + histogram[digit] < limit) *above += histogram[digit--];
    boundary |= digit << shift;
    known |= digits << shift;
  }
  return boundary;
}

// Keeps the tokens before which there is less than `limit` of mass; limit is at least 1. *kept becomes their weight,
// which is `all` where there is less mass than limit in the row.
template <Mass kMass>
SampleCut keep_first(const SampleRow& row, uint64_t limit, bool with_ties, uint64_t all, uint64_t* kept) {
  uint64_t above = 0;  // mass of the bins before
  *kept = 0;
  int bin = 0;
  for (; bin < kSampleBins - 1; ++bin) {
    const SampleBin& total = row.totals[bin];
    const uint64_t mass = kMass == Mass::tokens ? total.tokens : total.weight;
    if (above + mass >= limit) break;
    above += mass;
    *kept += total.weight;
  }
  const int64_t count = list_bin(row, bin);
  if (kMass == Mass::tokens && above + static_cast<uint64_t>(count) < limit) {
    *kept = all;
    return {};
  }
  const uint32_t key = boundary_key<kMass>(row, count, limit, &above);
  SampleCut cut;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t v = row.list[i];
    const uint32_t own = key_of(row.x[v]);
    if (own < key) continue;
    if (own == key) {
      if (above >= limit && !with_ties) continue;
      above += kMass == Mass::tokens ? 1 : row.w[v];
      cut = {row.x[v], v};
    }
    *kept += row.w[v];
  }
  return cut;
}

SampleCut shorter(const SampleCut& a, const SampleCut& b) {
  if (a.score != b.score) return a.score > b.score ? a : b;
  return a.last_id < b.last_id ? a : b;
}

}  // namespace

SampleCut sample_cut(const SampleFilter& filter, const SampleRow& row, uint64_t all, uint64_t heavy, uint64_t* kept) {
  SampleCut cut;
  *kept = filter.min_p_last ? all : heavy;
  const uint64_t given = *kept;
  uint64_t of_one = 0;
  if (filter.by_k(row.vocab)) {
    cut = keep_first<Mass::tokens>(row, static_cast<uint64_t>(filter.top_k), filter.top_k_keeps_ties, all, &of_one);
    *kept = std::min(*kept, of_one);
  }
  if (filter.by_p()) {
    uint64_t rest = 0;
    const uint64_t share =
        multiply_high(fixed_point(std::max(filter.top_p, 0.0f)), filter.joint ? given : *kept, &rest);
    const uint64_t limit = share + (filter.top_p_exceeds || rest != 0 ? 1 : 0);
    cut = shorter(cut,
                  keep_first<Mass::weight>(row, std::max<uint64_t>(limit, 1), filter.top_p_keeps_ties, all, &of_one));
    *kept = std::min(*kept, of_one);
  }
  *kept = std::min(*kept, heavy);
  return cut;
}

}  // namespace rlk::cpu
