// What the tile unit multiplies in a task of attention: queries, a block of keys, weights; for every Highway target.
#if defined(RLK_CPU_ATTENTION_AMX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ATTENTION_AMX_INL
#undef RLK_CPU_ATTENTION_AMX_INL
#else
#define RLK_CPU_ATTENTION_AMX_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/cpu/attention/attention_amx.hpp"
#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/row_products-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The unit multiplies and adds with one rounding, and so must what stands in for it.
#undef RLK_CPU_FEW_VALUES
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define RLK_CPU_FEW_VALUES 1
#else
#define RLK_CPU_FEW_VALUES 0
#endif

// So many numbers of bf16 as they are.
HWY_INLINE void copy_numbers(const void* from, int64_t stride, int64_t size, uint16_t* to) {
  const auto* const numbers = static_cast<const uint16_t*>(from);
  if (stride == 1) {
    std::memcpy(to, numbers, static_cast<size_t>(size) * sizeof(uint16_t));
  } else {
    for (int64_t i = 0; i < size; ++i) to[i] = numbers[i * stride];
  }
}

// Rows [begin, end) of Q as groups of [d / 2][row][2], `width` rows in all; `rows` is room for as many.
inline void pack_queries(const AttentionTask& task, int64_t begin, int64_t end, int64_t width, uint16_t* rows,
                         uint16_t* packed) {
  const int64_t depth = amx_depth(task.head_size);
  std::fill_n(rows, width * depth, uint16_t{0});
  for (int64_t t = 0; t < end - begin; ++t) {
    copy_numbers(task.q.row(begin + t), task.q.d_stride, task.head_size, rows + t * depth);
  }
  for (int64_t group = 0; group < width; group += kAmxRows) {  // pairs are transposed as one number
    const auto row_at = [&](int64_t t) { return reinterpret_cast<const float*>(rows + (group + t) * depth); };
    transpose_rows<float, float>(row_at, kAmxRows, depth / 2, reinterpret_cast<float*>(packed + group * depth),
                                 kAmxRows);
  }
}

// A block of kAmxKeys keys from `block` on, of which [from, to) are there. More are wanted later, up to `end`.
struct AmxKeys {
  int64_t block, from, to, end;
};

// The keys of a block as bf16; those that are not there, and those that are masked, are 0.
struct AmxBlock {
  uint16_t *k_room = nullptr, *v_room = nullptr;  // [key][d]
  uint16_t* columns = nullptr;                    // V as [d][key]
  AmxRows k, v;                                   // where they lie, or in their rooms
  bool masked[kAmxKeys] = {};
  bool has_special = false;  // an infinity or NaN in V: 0 in `columns`, because weights of 0 meet it there
  bool has_columns = false;  // else there is none, and add_few_values takes V as it lies

  // `hidden` says which are masked, from keys.from on; null: none. `rows` will read the block. K is copied where it is
  // read more than once: rows a power of two apart have no room together in L1.
  void load(const AttentionTask& task, const AmxKeys& keys, const bool* hidden, int64_t rows) {
    const int64_t depth = amx_depth(task.head_size);
    std::fill(masked, masked + kAmxKeys, false);
    if (hidden != nullptr) std::copy(hidden, hidden + (keys.to - keys.from), masked + (keys.from - keys.block));
    const bool all_count = hidden == nullptr && task.head_size == depth;
    k = rows_of(task.k, keys, task.head_size, depth, all_count && rows <= 2 * kAmxRows, k_room);
    v = rows_of(task.v, keys, task.head_size, depth, all_count, v_room);
    has_special = false;
    has_columns = !RLK_CPU_FEW_VALUES || rows > kAmxFewRows || find_special(v, depth);
    if (!has_columns) return;
    amx_transpose(v, depth, columns);
    has_special = clear_special(columns, depth * kAmxKeys);
  }

private:
  AmxRows rows_of(const AttentionKeys& in, const AmxKeys& keys, int64_t size, int64_t depth, bool may_stay,
                  uint16_t* room) const {
    const AttentionRows& part = in.part_of(keys.from);
    const bool is_whole = in.piece == 0 && part.d_stride == 1;
    for (int64_t j = keys.from; j < keys.to; ++j) {
      // The next block comes from memory while this one is worked on.
      if (!is_whole || j + kAmxKeys >= keys.end) break;
      const char* const ahead = static_cast<const char*>(in.row(j + kAmxKeys));
      for (int64_t byte = 0; byte < 2 * size; byte += 64) prefetch_far(ahead + byte);
    }
    const bool is_full = keys.from == keys.block && keys.to == keys.block + kAmxKeys;
    if (may_stay && is_whole && is_full && in.even_end(keys.from) >= keys.to) {
      return {static_cast<const uint16_t*>(in.row(keys.from)), part.token_stride};
    }
    copy_rows(in, keys, size, depth, room);
    return {room, depth};
  }

  void copy_rows(const AttentionKeys& in, const AmxKeys& keys, int64_t size, int64_t depth, uint16_t* rows) const {
    std::fill_n(rows, (keys.from - keys.block) * depth, uint16_t{0});
    std::fill_n(rows + (keys.to - keys.block) * depth, (keys.block + kAmxKeys - keys.to) * depth, uint16_t{0});
    for (int64_t j = keys.from; j < keys.to; ++j) {
      uint16_t* const row = rows + (j - keys.block) * depth;
      std::fill_n(row, depth, uint16_t{0});
      if (masked[j - keys.block]) continue;
      const int64_t stride = in.part_of(j).d_stride, piece = in.piece == 0 ? size : in.piece;
      for (int64_t i = 0; i < size; i += piece) {
        copy_numbers(element(in.row(j), i / piece * in.piece_stride, Dtype::bf16), stride, piece, row + i);
      }
    }
  }

  // Whether there is one.
  static bool find_special(AmxRows rows, int64_t depth) {
    const hn::ScalableTag<uint16_t> d;
    const auto special = hn::Set(d, kAmxSpecial);
    auto found = hn::Zero(d);
    for (int64_t key = 0; key < kAmxKeys; ++key) {
      for (int64_t i = 0; i < depth; i += static_cast<int64_t>(hn::Lanes(d))) {
        const auto here = hn::LoadU(d, rows.data + key * rows.stride + i);
        found = hn::Or(found, hn::VecFromMask(d, hn::Eq(hn::And(here, special), special)));
      }
    }
    return !hn::AllTrue(d, hn::Eq(found, hn::Zero(d)));
  }

  // Whether there was one. The count is a multiple of 2048.
  static bool clear_special(uint16_t* numbers, int64_t count) {
    const hn::ScalableTag<uint16_t> d;
    const auto special = hn::Set(d, kAmxSpecial);
    auto found = hn::Zero(d);
    for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
      const auto here = hn::LoadU(d, numbers + i);
      const auto is_special = hn::Eq(hn::And(here, special), special);
      found = hn::Or(found, hn::VecFromMask(d, is_special));
      hn::StoreU(hn::IfThenZeroElse(is_special, here), d, numbers + i);
    }
    return !hn::AllTrue(d, hn::Eq(found, hn::Zero(d)));
  }
};

// Weights [key][row] as the parts of groups (amx_values): what fp32 has in its first sixteen bits, what is left in
// those of the difference, and what is left again. Nothing else is.
template <class D>
HWY_INLINE void pack_weights(D d, const float* weights, int64_t width, uint16_t* packed) {
  const hn::RebindToUnsigned<D> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto top = hn::Set(du, 0xffff0000U);
  for (int64_t row = 0; row < width; row += lanes) {
    auto* const group = reinterpret_cast<uint32_t*>(packed + row / kAmxRows * kAmxWeights) + row % kAmxRows;
    for (int64_t pair = 0; pair < kAmxKeys / 2; ++pair) {
      auto even = hn::LoadU(d, weights + 2 * pair * width + row);
      auto odd = hn::LoadU(d, weights + (2 * pair + 1) * width + row);
      for (int64_t part = 0; part < kAmxParts; ++part) {
        const auto even_top = hn::And(hn::BitCast(du, even), top), odd_top = hn::And(hn::BitCast(du, odd), top);
        hn::StoreU(hn::Or(hn::ShiftRight<16>(even_top), odd_top), du, group + (part * kAmxKeys / 2 + pair) * kAmxRows);
        even = hn::Sub(even, hn::BitCast(d, even_top));
        odd = hn::Sub(odd, hn::BitCast(d, odd_top));
      }
    }
  }
}

#if RLK_CPU_FEW_VALUES

// As the tile unit takes them, as long as this lives.
class SubnormalsAreZero {
public:
  SubnormalsAreZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kResults | kOperands); }
  ~SubnormalsAreZero() { _mm_setcsr(before_); }
  SubnormalsAreZero(const SubnormalsAreZero&) = delete;
  SubnormalsAreZero& operator=(const SubnormalsAreZero&) = delete;

private:
  static constexpr unsigned kResults = 0x8000, kOperands = 0x0040;
  const unsigned before_;
};

// sums[d] = sum over keys of rows[key][d] weights[part][key], in the order of the tile unit and so with its bits: of
// kAmxDepth keys at a time, even ones and odd ones apart, one part of the weights after the other.
template <class D>
HWY_NOINLINE void multiply_few_values(D d, AmxRows rows, int64_t depth, const float (&weights)[kAmxParts][kAmxKeys],
                                      float* sums) {
  using V = hn::VFromD<D>;
  constexpr int kVecs = 2;  // at a time: depth is a multiple of so many
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < depth; i += kVecs * lanes) {
    V sum[kVecs];
    for (V& of_vector : sum) of_vector = hn::Zero(d);
    for (int64_t key = 0; key < kAmxKeys; key += kAmxDepth) {
      V even[kAmxParts][kVecs], odd[kAmxParts][kVecs];
#pragma GCC unroll 3
      for (int64_t part = 0; part < kAmxParts; ++part) {
#pragma GCC unroll 2
        for (int n = 0; n < kVecs; ++n) even[part][n] = odd[part][n] = hn::Zero(d);
      }
      for (int64_t j = key; j < key + kAmxDepth; j += 2) {
        const auto* const first = reinterpret_cast<const Bf16*>(rows.data + j * rows.stride + i);
#pragma GCC unroll 2
        for (int n = 0; n < kVecs; ++n) {
          const V a = load(d, first + n * lanes), b = load(d, first + rows.stride + n * lanes);
#pragma GCC unroll 3
          for (int64_t part = 0; part < kAmxParts; ++part) {
            even[part][n] = hn::MulAdd(a, hn::Set(d, weights[part][j]), even[part][n]);
            odd[part][n] = hn::MulAdd(b, hn::Set(d, weights[part][j + 1]), odd[part][n]);
          }
        }
      }
#pragma GCC unroll 3
      for (int64_t part = kAmxParts - 1; part >= 0; --part) {
#pragma GCC unroll 2
        for (int n = 0; n < kVecs; ++n) sum[n] = hn::Add(sum[n], hn::Add(even[part][n], odd[part][n]));
      }
    }
#pragma GCC unroll 2
    for (int n = 0; n < kVecs; ++n) hn::StoreU(sum[n], d, sums + i + n * lanes);
  }
}

// amx_values for the first `rows` of `width` rows, from weights[key][row] and V as it lies: tiles would be mostly
// empty. `sums` is room for `depth` numbers.
inline void add_few_values(AmxRows v, int64_t depth, int64_t size, const float* weights, int64_t width, int64_t rows,
                           const float* factor, float* sums, float* out) {
  for (int64_t row = 0; row < rows; ++row) {
    float parts[kAmxParts][kAmxKeys];
    for (int64_t key = 0; key < kAmxKeys; ++key) {
      float rest = weights[key * width + row];
      for (auto& part : parts) {
        part[key] = std::bit_cast<float>(std::bit_cast<uint32_t>(rest) & 0xffff0000U);
        rest -= part[key];
      }
    }
    {
      const SubnormalsAreZero as_the_unit;
      multiply_few_values(hn::ScalableTag<float>(), v, depth, parts, sums);
    }
    for (int64_t i = 0; i < size; ++i) {
      out[i * width + row] = std::fma(out[i * width + row], factor[row], sums[i]);
    }
  }
}

#else

inline void add_few_values(AmxRows, int64_t, int64_t, const float*, int64_t, int64_t, const float*, float*, float*) {}

#endif

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
