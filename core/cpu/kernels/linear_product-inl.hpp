// Matrix products of register tiles, and the scores of a block of the vocabulary; for every Highway target.
//
// One side of a product lies in the lanes of vectors, the other is broadcast number by number, as in attention. Sums
// run in chains of kChain terms in the compute type and then in fp64: many equal terms do not all round the same way,
// and what a row's sum is made of does not depend on the row's company.
#if defined(RLK_CPU_LINEAR_PRODUCT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_LINEAR_PRODUCT_INL
#undef RLK_CPU_LINEAR_PRODUCT_INL
#else
#define RLK_CPU_LINEAR_PRODUCT_INL
#endif

#include <algorithm>

#include "core/cpu/kernels/linear_operands.hpp"
#include "core/cpu/kernels/logp_gather-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

constexpr int64_t kChain = 32;

// The register tile: kBroadcasts * kMaxVecs accumulators and a few more registers than that.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr int kBroadcasts = 8;
#else
constexpr int kBroadcasts = 4;
#endif
// Sizeless vectors cannot be array elements.
#undef RLK_CPU_VECTOR_ARRAYS
#if HWY_ARCH_X86 || HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define RLK_CPU_VECTOR_ARRAYS 1
constexpr int kMaxVecs = 3;
#else
#define RLK_CPU_VECTOR_ARRAYS 0
constexpr int kMaxVecs = 1;
#endif

template <typename T>
HWY_INLINE int64_t lanes_of() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}
template <typename T>
HWY_INLINE int64_t tile_rows_of() {
  return kMaxVecs * lanes_of<T>();
}

// to[lane] += v[lane] in fp64.
template <class D>
HWY_INLINE void add_wide([[maybe_unused]] D d, hn::VFromD<D> v, double* to) {
  const hn::ScalableTag<double> dd;
  const auto add = [&](auto wide, double* at) HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(dd, at), wide), dd, at); };
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    add(v, to);
  } else {
#if HWY_TARGET == HWY_SCALAR
    add(hn::PromoteTo(dd, v), to);
#else
    const hn::Half<D> half;
    add(hn::PromoteTo(dd, hn::LowerHalf(half, v)), to);
    add(hn::PromoteTo(dd, hn::UpperHalf(half, v)), to + hn::Lanes(dd));
#endif
  }
}

// from[lane] + addend, rounded once to the compute type.
template <class D>
HWY_INLINE hn::VFromD<D> load_sum([[maybe_unused]] D d, const double* from, double addend) {
  [[maybe_unused]] const hn::ScalableTag<double> dd;
  [[maybe_unused]] const auto sum = [&](const double* at)
                                        HWY_ATTR { return hn::Add(hn::LoadU(dd, at), hn::Set(dd, addend)); };
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return sum(from);
  } else {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    float lanes[hn::MaxLanes(D())];  // DemoteTo has no infinities here
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<float>(from[i] + addend);
    return hn::LoadU(d, lanes);
#else
    const hn::Half<D> half;
    return hn::Combine(d, hn::DemoteTo(half, sum(from + hn::Lanes(dd))), hn::DemoteTo(half, sum(from)));
#endif
  }
}

// c[r][lane] += sum over t of a[r * a_row + t * a_step] * b[t][lane], r < kBroadcasts, one chain.
template <int kVecs, class D, typename T = hn::TFromD<D>>
HWY_INLINE void add_chain(D d, const T* HWY_RESTRICT a, int64_t a_row, int64_t a_step, const T* HWY_RESTRICT b,
                          int64_t steps, double* HWY_RESTRICT c) {
  using V = hn::VFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kVecs * lanes;
#if !RLK_CPU_VECTOR_ARRAYS
  static_assert(kVecs == 1 && kBroadcasts == 4);
  V sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (int64_t t = 0; t < steps; ++t) {
    const V row = hn::LoadU(d, b + t * width);
    const T* column = a + t * a_step;
    sum0 = hn::MulAdd(hn::Set(d, column[0]), row, sum0);
    sum1 = hn::MulAdd(hn::Set(d, column[a_row]), row, sum1);
    sum2 = hn::MulAdd(hn::Set(d, column[2 * a_row]), row, sum2);
    sum3 = hn::MulAdd(hn::Set(d, column[3 * a_row]), row, sum3);
  }
  add_wide(d, sum0, c);
  add_wide(d, sum1, c + width);
  add_wide(d, sum2, c + 2 * width);
  add_wide(d, sum3, c + 3 * width);
#else
  V sums[kBroadcasts][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kBroadcasts; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t t = 0; t < steps; ++t) {
    V row[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) row[v] = hn::LoadU(d, b + t * width + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kBroadcasts; ++r) {
      const V scalar = hn::Set(d, a[r * a_row + t * a_step]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(scalar, row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kBroadcasts; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) add_wide(d, sums[r][v], c + r * width + v * lanes);
  }
#endif
}

template <int kVecs, typename T>
HWY_NOINLINE void add_product_as(const T* a, int64_t rows, int64_t a_row, int64_t a_step, const T* b, int64_t steps,
                                 double* c) {
  const hn::ScalableTag<T> d;
  const int64_t width = kVecs * lanes_of<T>();
  for (int64_t r = 0; r < rows; r += kBroadcasts) {
    for (int64_t t = 0; t < steps; t += kChain) {
      add_chain<kVecs>(d, a + r * a_row + t * a_step, a_row, a_step, b + t * width, std::min(kChain, steps - t),
                       c + r * width);
    }
  }
}

// c[r][.] += sum over t of a[r * a_row + t * a_step] * b[t][.] with rows of `width` numbers. a and c have room for rows
// rounded up to kBroadcasts.
template <typename T>
HWY_INLINE void add_product(const T* a, int64_t rows, int64_t a_row, int64_t a_step, const T* b, int64_t width,
                            int64_t steps, double* c) {
  const int64_t vecs = width / lanes_of<T>();
  if (vecs == 1) return add_product_as<1>(a, rows, a_row, a_step, b, steps, c);
#if RLK_CPU_VECTOR_ARRAYS
  if (vecs == 2) return add_product_as<2>(a, rows, a_row, a_step, b, steps, c);
  add_product_as<3>(a, rows, a_row, a_step, b, steps, c);
#endif
}

// The tiles [first, last) of a batch, and what a thread needs to work on them.
template <typename T>
struct Tiles {
  const LinearOperands& operands;
  const LinearBatch& batch;
  int64_t first, last;

  int64_t begin(int64_t tile) const { return tile * tile_rows_of<T>(); }
  int64_t end(int64_t tile) const { return std::min(begin(tile) + tile_rows_of<T>(), batch.count); }
  int64_t width(int64_t tile) const { return round_up(end(tile) - begin(tile), lanes_of<T>()); }
  const T* packed(int64_t tile) const { return static_cast<const T*>(batch.packed) + begin(tile) * operands.depth; }
};

constexpr int64_t kPackedWeights = kLinearBlock * kLinearDepth;

// weight[column .. + columns][depth .. + depths] with rows of kLinearDepth; both sizes padded with zeros to
// kBroadcasts.
template <typename T>
HWY_INLINE void pack_weights(const LinearOperands& operands, int64_t column, int64_t columns, int64_t depth,
                             int64_t depths, T* to) {
  const LinearMatrix& weight = operands.weight;
  const int64_t padded = round_up(depths, kBroadcasts);
  for (int64_t j = 0; j < columns; ++j) {
    T* const row = to + j * kLinearDepth;
    const int64_t from = (column + j) * weight.row_stride + depth * weight.col_stride;
    widen(element(weight.data, from, operands.dtype), operands.dtype, weight.col_stride, depths, row);
    std::fill(row + depths, row + padded, T{0});
  }
  for (int64_t j = columns; j < round_up(columns, kBroadcasts); ++j) {
    std::fill(to + j * kLinearDepth, to + j * kLinearDepth + padded, T{0});
  }
}

// The products of one block of the vocabulary with every row of the tiles. sums: [tile][column][row] in fp64, a tile
// every kLinearBlock * tile_rows. weights: kPackedWeights of scratch.
template <typename T>
HWY_NOINLINE void block_products(const Tiles<T>& tiles, int64_t column, int64_t columns, T* weights, double* sums) {
  const int64_t per_tile = kLinearBlock * tile_rows_of<T>();
  std::fill(sums, sums + (tiles.last - tiles.first) * per_tile, 0.0);
  const int64_t depth = tiles.operands.depth;
  for (int64_t d = 0; d < depth; d += kLinearDepth) {
    const int64_t depths = std::min(kLinearDepth, depth - d);
    pack_weights(tiles.operands, column, columns, d, depths, weights);
    for (int64_t tile = tiles.first; tile < tiles.last; ++tile) {
      const int64_t width = tiles.width(tile);
      add_product(static_cast<const T*>(weights), columns, kLinearDepth, 1, tiles.packed(tile) + d * width, width,
                  depths, sums + (tile - tiles.first) * per_tile);
    }
  }
}

// The bias of a block; 0 without one.
HWY_INLINE void load_bias(const LinearOperands& operands, int64_t column, int64_t columns, double* bias) {
  const Scores& scores = operands.scores;
  for (int64_t j = 0; j < columns; ++j) {
    bias[j] = scores.bias == nullptr ? 0 : load_element(scores.bias, operands.dtype, (column + j) * scores.bias_stride);
  }
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
