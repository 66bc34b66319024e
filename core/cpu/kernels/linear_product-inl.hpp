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

#include <hwy/cache_control.h>

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

// c[r][lane] += sum over t of a[r * a_row + t * a_step] * b[t][lane], r < kRows, one chain.
template <int kVecs, int kRows, class D, typename T = hn::TFromD<D>>
HWY_INLINE void add_chain(D d, const T* HWY_RESTRICT a, int64_t a_row, int64_t a_step, const T* HWY_RESTRICT b,
                          int64_t steps, double* HWY_RESTRICT c) {
  using V = hn::VFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kVecs * lanes;
#if !RLK_CPU_VECTOR_ARRAYS
  static_assert(kVecs == 1 && kRows == 4);
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
  V sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int64_t t = 0; t < steps; ++t) {
    V row[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) row[v] = hn::LoadU(d, b + t * width + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V scalar = hn::Set(d, a[r * a_row + t * a_step]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sums[r][v] = hn::MulAdd(scalar, row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) add_wide(d, sums[r][v], c + r * width + v * lanes);
  }
#endif
}

template <int kVecs, int kRows, typename T>
HWY_NOINLINE void add_product_as(const T* a, int64_t rows, int64_t a_row, int64_t a_step, const T* b, int64_t steps,
                                 double* c) {
  const hn::ScalableTag<T> d;
  const int64_t width = kVecs * lanes_of<T>();
  for (int64_t r = 0; r < rows; r += kRows) {
    for (int64_t t = 0; t < steps; t += kChain) {
      add_chain<kVecs, kRows>(d, a + r * a_row + t * a_step, a_row, a_step, b + t * width, std::min(kChain, steps - t),
                              c + r * width);
    }
  }
}

// c[r][.] += sum over t of a[r * a_row + t * a_step] * b[t][.] with rows of `width` numbers. a and c have room for rows
// rounded up to kRows.
template <int kRows = kBroadcasts, typename T>
HWY_INLINE void add_product(const T* a, int64_t rows, int64_t a_row, int64_t a_step, const T* b, int64_t width,
                            int64_t steps, double* c) {
  const int64_t vecs = width / lanes_of<T>();
  if (vecs == 1) return add_product_as<1, kRows>(a, rows, a_row, a_step, b, steps, c);
#if RLK_CPU_VECTOR_ARRAYS
  if (vecs == 2) return add_product_as<2, kRows>(a, rows, a_row, a_step, b, steps, c);
  add_product_as<3, kRows>(a, rows, a_row, a_step, b, steps, c);
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

// ---- few rows ---------------------------------------------------------------------------------------------------

constexpr int64_t kRowsAhead = 8;  // whose memory is asked for early: hardware does not foresee steps of whole rows

// Numbers of a 128-bit vector.
template <typename T>
constexpr int64_t kSide = HWY_TARGET == HWY_SCALAR ? 1 : 16 / static_cast<int64_t>(sizeof(T));

// to[t][j] = from[j][t] for kSide rows of kSide numbers.
template <typename T>
HWY_INLINE void transpose_square(const T* HWY_RESTRICT from, int64_t from_stride, T* HWY_RESTRICT to,
                                 int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  (void)from_stride, (void)to_stride;
  to[0] = from[0];
#else
  const hn::FixedTag<T, static_cast<size_t>(kSide<T>)> d;
  const auto row = [&](int64_t j) HWY_ATTR { return hn::LoadU(d, from + j * from_stride); };
  const auto store = [&](int64_t t, auto v) HWY_ATTR { hn::StoreU(v, d, to + t * to_stride); };
  const auto row0 = row(0), row1 = row(1);
  if constexpr (kSide<T> == 2) {
    store(0, hn::ConcatLowerLower(d, row1, row0));
    store(1, hn::ConcatUpperUpper(d, row1, row0));
  } else {
    const auto row2 = row(2), row3 = row(3);
    const auto lower01 = hn::InterleaveLower(d, row0, row1), upper01 = hn::InterleaveUpper(d, row0, row1);
    const auto lower23 = hn::InterleaveLower(d, row2, row3), upper23 = hn::InterleaveUpper(d, row2, row3);
    store(0, hn::ConcatLowerLower(d, lower23, lower01));
    store(1, hn::ConcatUpperUpper(d, lower23, lower01));
    store(2, hn::ConcatLowerLower(d, upper23, upper01));
    store(3, hn::ConcatUpperUpper(d, upper23, upper01));
  }
#endif
}

// A tile of its own whose rows fit the broadcast side of a product.
template <typename T>
HWY_INLINE bool has_few_rows(const Tiles<T>& tiles) {
  const int64_t rows = tiles.end(tiles.first) - tiles.begin(tiles.first);
  const bool has_room = tiles.width(tiles.first) >= kBroadcasts && tile_rows_of<T>() <= kLinearBlock;
  return tiles.last - tiles.first == 1 && rows <= kBroadcasts && has_room;
}

// add_product with no more broadcasts than rows ask for. Rows of hidden are row_width apart in depth.
template <typename T>
HWY_INLINE void add_few(const T* hidden, int64_t rows, int64_t row_width, const T* lanes, int64_t width, int64_t steps,
                        double* c) {
#if RLK_CPU_VECTOR_ARRAYS
  if (rows == 1) return add_product<1>(hidden, rows, 1, row_width, lanes, width, steps, c);
  if (rows == 2) return add_product<2>(hidden, rows, 1, row_width, lanes, width, steps, c);
  if (rows <= 4) return add_product<4>(hidden, rows, 1, row_width, lanes, width, steps, c);
#endif
  add_product(hidden, rows, 1, row_width, lanes, width, steps, c);
}

// weight[column .. + columns][depth .. + depths] with columns in lanes: to[depth][column] with rows of `width`, both
// sizes padded with zeros.
template <typename T>
HWY_NOINLINE void pack_transposed(const LinearOperands& operands, int64_t column, int64_t columns, int64_t depth,
                                  int64_t depths, int64_t width, T* to) {
  const LinearMatrix& weight = operands.weight;
  const int64_t padded = round_up(depths, kSide<T>);
  T pieces[kSide<T> * kLinearDepth];
  for (int64_t j = 0; j < width; ++j) {
    T* const piece = pieces + j % kSide<T> * kLinearDepth;
    const int64_t filled = j < columns ? depths : 0;
    if (filled > 0) {
      const int64_t from = (column + j) * weight.row_stride + depth * weight.col_stride;
      const bool has_ahead = weight.col_stride == 1 && column + j + kRowsAhead < operands.vocab;
      const int64_t bytes = has_ahead ? depths * size_of(operands.dtype) : 0;
      for (int64_t byte = 0; byte < bytes; byte += 64) {
        const void* ahead = element(weight.data, from + kRowsAhead * weight.row_stride, operands.dtype);
        hwy::Prefetch(static_cast<const char*>(ahead) + byte);
      }
      widen(element(weight.data, from, operands.dtype), operands.dtype, weight.col_stride, depths, piece);
    }
    std::fill(piece + filled, piece + padded, T{0});
    if ((j + 1) % kSide<T> != 0) continue;
    T* const square = to + j + 1 - kSide<T>;
    for (int64_t t = 0; t < padded; t += kSide<T>) {
      transpose_square(static_cast<const T*>(pieces) + t, kLinearDepth, square + t * width, width);
    }
  }
}

// As block_products for few rows, which would leave most lanes idle: the sides change places, the weights lie in the
// lanes, transposed. The terms of each sum and their order are the same, and so are its bits.
template <typename T>
HWY_NOINLINE void few_products(const Tiles<T>& tiles, int64_t column, int64_t columns, T* weights, double* sums) {
  const int64_t rows = tiles.end(tiles.first) - tiles.begin(tiles.first), row_width = tiles.width(tiles.first);
  const int64_t depth = tiles.operands.depth, most = tile_rows_of<T>();
  double products[kBroadcasts * kMaxVecs * hn::MaxLanes(hn::ScalableTag<T>())];  // [row][column]
  for (int64_t first = 0; first < columns; first += most) {
    const int64_t count = std::min(most, columns - first), width = round_up(count, lanes_of<T>());
    std::fill(products, products + kBroadcasts * width, 0.0);
    for (int64_t d = 0; d < depth; d += kLinearDepth) {
      const int64_t depths = std::min(kLinearDepth, depth - d);
      pack_transposed(tiles.operands, column + first, count, d, depths, width, weights);
      add_few<T>(tiles.packed(tiles.first) + d * row_width, rows, row_width, weights, width, depths, products);
    }
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t r = 0; r < rows; ++r) sums[(first + j) * row_width + r] = products[r * width + j];
    }
  }
}

// ---- any number of rows -----------------------------------------------------------------------------------------

// The products of one block of the vocabulary with every row of the tiles. sums: [tile][column][row] in fp64, a tile
// every kLinearBlock * tile_rows. weights: kPackedWeights of scratch.
template <typename T>
HWY_NOINLINE void block_products(const Tiles<T>& tiles, int64_t column, int64_t columns, T* weights, double* sums) {
  const int64_t per_tile = kLinearBlock * tile_rows_of<T>();
  std::fill(sums, sums + (tiles.last - tiles.first) * per_tile, 0.0);
  if (has_few_rows(tiles)) return few_products(tiles, column, columns, weights, sums);
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
