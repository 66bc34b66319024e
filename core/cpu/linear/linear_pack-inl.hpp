// Operands laid out for products, by vectors, from memory of any strides; for every Highway target.
//
// A side of a product is wanted either as lines (an operand's row, contiguous) or across them (a number of many rows,
// contiguous), and lies in memory either way too. Where both agree lines are copied, where not squares of as many rows
// as a vector has lanes are transposed in registers. What has neither stride 1 is fetched number by number.
#if defined(RLK_CPU_LINEAR_PACK_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_LINEAR_PACK_INL
#undef RLK_CPU_LINEAR_PACK_INL
#else
#define RLK_CPU_LINEAR_PACK_INL
#endif

#include <algorithm>
#include <cstring>

#include "core/cpu/linear/linear_amx.hpp"
#include "core/cpu/linear/linear_operands.hpp"
#include "core/cpu/simd/row_products-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

#if RLK_CPU_VECTOR_ARRAYS

// to[line * to_stride + i] = from[line * from_stride + i] for i < count; zeros up to whole vectors, for which there is
// room.
template <typename T, typename E>
HWY_NOINLINE void copy_lines(const E* from, int64_t from_stride, int64_t lines, int64_t count, T* to,
                             int64_t to_stride) {
  const hn::ScalableTag<T> d;
  for (int64_t line = 0; line < lines; ++line, from += from_stride, to += to_stride) {
    int64_t i = 0;
    for (; i + kLanes<T> <= count; i += kLanes<T>) hn::StoreU(load(d, from + i), d, to + i);
    if (i < count) hn::StoreU(load_some(d, from + i, count - i), d, to + i);
  }
}

#endif  // RLK_CPU_VECTOR_ARRAYS

// Rows [i] of a list that follow one another in memory, too.
HWY_INLINE bool are_neighbours(const int64_t* rows, int64_t count) {
  bool all = true;
  for (int64_t i = 1; i < count && all; ++i) all = rows[i] == rows[0] + i;
  return all;
}

// to[d * width + t] = hidden[rows[t]][d] for t < count, 0 for further t; width is `count` rounded up to whole vectors,
// or as small as count.
template <typename T>
HWY_NOINLINE void pack_rows(const LinearOperands& operands, const int64_t* rows, int64_t count, int64_t width, T* to) {
  const Array& hidden = operands.hidden;
  const int64_t depth = operands.depth;
#if RLK_CPU_VECTOR_ARRAYS
  if (width % kLanes<T> == 0) {
    const bool across = hidden.strides[1] == 1, along = hidden.strides[0] == 1 && are_neighbours(rows, count);
    const bool done = (across || along) && with_vectors_of<T>(operands.dtype(), [&](auto tag) HWY_ATTR {
                        using E = decltype(tag);
                        const E* const first = hidden.as<const E>();
                        if (across) {
                          const auto row_at = [&](int64_t t) { return first + rows[t] * hidden.strides[0]; };
                          transpose_rows<T, E>(row_at, count, depth, to, width);
                        } else {
                          copy_lines<T, E>(first + rows[0], hidden.strides[1], depth, count, to, width);
                        }
                      });
    if (done) return;
  }
#endif
  for (int64_t t = 0; t < width; ++t) {
    for (int64_t d = 0; d < depth; ++d) to[d * width + t] = t < count ? static_cast<T>(hidden.get(rows[t], d)) : T{0};
  }
}

// weight[column .. + columns][depth .. + depths] with rows of kLinearDepth; both sizes padded with zeros to
// kBroadcasts.
template <typename T>
HWY_NOINLINE void pack_weights(const LinearOperands& operands, int64_t column, int64_t columns, int64_t depth,
                               int64_t depths, T* to) {
  Array weight = operands.weight;
  weight.data = element(weight.data, column * weight.strides[0] + depth * weight.strides[1], weight.dtype);
  bool done = false;
#if RLK_CPU_VECTOR_ARRAYS
  const bool along = weight.strides[1] == 1, across = weight.strides[0] == 1;
  done = (along || across) && with_vectors_of<T>(weight.dtype, [&](auto tag) HWY_ATTR {
           using E = decltype(tag);
           const E* const first = weight.as<const E>();
           if (along) {
             copy_lines<T, E>(first, weight.strides[0], columns, depths, to, kLinearDepth);
           } else {
             const auto row_at = [&](int64_t d) { return first + d * weight.strides[1]; };
             transpose_rows<T, E>(row_at, depths, columns, to, kLinearDepth);
           }
         });
#endif
  const int64_t padded = round_up(depths, kBroadcasts);
  for (int64_t j = 0; j < round_up(columns, kBroadcasts); ++j) {
    T* const row = to + j * kLinearDepth;
    if (!done && j < columns) {
      widen(element(weight.data, j * weight.strides[0], weight.dtype), weight.dtype, weight.strides[1], depths, row);
    }
    std::fill(j < columns ? row + depths : row, row + padded, T{0});
  }
}

// ---- pairs of bf16, for the tile unit ---------------------------------------------------------------------------

#if HWY_TARGET == HWY_AVX3

// The neighbours [i] of two lines as pairs: what the first line has is the lower half.
HWY_INLINE hn::VFromD<hn::ScalableTag<float>> load_pairs(const uint16_t* lower, const uint16_t* upper) {
  const hn::ScalableTag<float> d;
  return hn::BitCast(d, hn::Or(load_u16(d, lower), hn::ShiftLeft<16>(load_u16(d, upper))));
}

// Of a group of `count` rows, as [depth / 2][room][2], the depths [begin, end): number by number, zeros behind the
// depth and behind the rows. begin is even, end a multiple of kAmxDepth.
HWY_INLINE void pack_numbers(const LinearOperands& operands, const int64_t* rows, int64_t count, int64_t room,
                             int64_t begin, int64_t end, uint16_t* to) {
  const Array& hidden = operands.hidden;
  std::fill(to + begin * room, to + end * room, uint16_t{0});
  for (int64_t t = 0; t < count; ++t) {
    const uint16_t* const row = hidden.as<const uint16_t>() + rows[t] * hidden.strides[0];
    for (int64_t d = begin; d < std::min(end, operands.depth); ++d) {
      to[(d / 2 * room + t) * 2 + d % 2] = row[d * hidden.strides[1]];
    }
  }
}

// A group of `count` rows; room is kAmxRows, or count in a batch of fewer rows than that.
HWY_INLINE void pack_group(const LinearOperands& operands, const int64_t* rows, int64_t count, int64_t room,
                           uint16_t* to) {
  static_assert(kLanes<float> == kAmxRows);
  const Array& hidden = operands.hidden;
  int64_t done = 0;
  if (room == kAmxRows && hidden.strides[1] == 1) {
    const auto row_at = [&](int64_t t) {
      return reinterpret_cast<const float*>(hidden.as<const uint16_t>() + rows[t] * hidden.strides[0]);
    };
    done = operands.depth / 2 * 2;
    transpose_rows<float, float>(row_at, count, done / 2, reinterpret_cast<float*>(to), room);
  }
  pack_numbers(operands, rows, count, room, done, round_up(operands.depth, kAmxDepth), to);
}

// The depths [begin, end) of all groups of neighbouring rows, which lie in memory as lines of one depth. Group g goes
// to to(g).
template <class To>
HWY_INLINE void pack_slice(const LinearOperands& operands, const int64_t* rows, int64_t count, int64_t begin,
                           int64_t end, const To& to) {
  const hn::ScalableTag<float> d;
  const Array& hidden = operands.hidden;
  const int64_t groups = count / kAmxRows, stride = hidden.strides[1];
  int64_t depth = begin;
  for (; depth + 2 <= std::min(end, operands.depth); depth += 2) {
    const uint16_t* const from = hidden.as<const uint16_t>() + rows[0] + depth * stride;
    for (int64_t g = 0; g < groups; ++g) {
      const uint16_t* const pairs = from + g * kAmxRows;
      hn::StoreU(load_pairs(pairs, pairs + stride), d, reinterpret_cast<float*>(to(g) + depth * kAmxRows));
    }
  }
  for (int64_t g = 0; depth < end && g < groups; ++g) {
    pack_numbers(operands, rows + g * kAmxRows, kAmxRows, kAmxRows, depth, end, to(g));
  }
  if (count % kAmxRows != 0) {
    pack_numbers(operands, rows + groups * kAmxRows, count % kAmxRows, kAmxRows, begin, end, to(groups));
  }
}

// The tile of 16 columns and the depths [d, d + kAmxDepth) that begins at `from`, as rows of 64 bytes.
HWY_INLINE void pack_across(const uint16_t* from, int64_t stride, uint16_t* to) {
  const hn::ScalableTag<float> d;
  hn::VFromD<decltype(d)> square[kAmxRows];
#pragma GCC unroll 16
  for (int i = 0; i < kAmxRows; ++i) square[i] = load_pairs(from + 2 * i * stride, from + (2 * i + 1) * stride);
  transpose_square<float>(square);
#pragma GCC unroll 16
  for (int i = 0; i < kAmxRows; ++i) hn::StoreU(square[i], d, reinterpret_cast<float*>(to + i * kAmxDepth));
}

// Columns [column, column + columns) of the weights, and their depths from `depth` on, as tiles: those of sixteen
// columns one after the other, zeros where there is no weight.
HWY_INLINE void pack_tiles(const LinearOperands& operands, int64_t column, int64_t columns, int64_t depth,
                           int64_t steps, uint16_t* to) {
  const Array& weight = operands.weight;
  constexpr int64_t kTile = kAmxRows * kAmxDepth;
  const int64_t whole = std::min(steps, (operands.depth - depth) / kAmxDepth);  // steps that are full
  for (int64_t block = 0; block < columns; block += kAmxRows, to += steps * kTile) {
    const int64_t here = std::min(kAmxRows, columns - block);
    const uint16_t* const from =
        weight.as<const uint16_t>() + (column + block) * weight.strides[0] + depth * weight.strides[1];
    const bool across = here == kAmxRows && weight.strides[0] == 1, along = weight.strides[1] == 1;
    for (int64_t s = 0; s < whole && across; ++s) {
      pack_across(from + s * kAmxDepth * weight.strides[1], weight.strides[1], to + s * kTile);
    }
    for (int64_t j = 0; j < kAmxRows; ++j) {
      const uint16_t* const numbers = from + j * weight.strides[0];
      uint16_t* const row = to + j * kAmxDepth;
      int64_t s = across ? whole : 0;
      for (; s < whole && along && j < here; ++s) {
        std::memcpy(row + s * kTile, numbers + s * kAmxDepth, kAmxDepth * sizeof(uint16_t));
      }
      for (; s < steps; ++s) {
        const int64_t depths = j < here ? std::min(kAmxDepth, operands.depth - depth - s * kAmxDepth) : 0;
        for (int64_t i = 0; i < kAmxDepth; ++i) {
          row[s * kTile + i] = i < depths ? numbers[(s * kAmxDepth + i) * weight.strides[1]] : uint16_t{0};
        }
      }
    }
  }
}

#endif  // HWY_AVX3

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
