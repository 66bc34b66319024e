// Matrix products of register tiles, and the scores of a block of the vocabulary; for every Highway target.
//
// One side of a product lies in the lanes of vectors, the other is broadcast number by number, as in attention. Sums
// run in chains of kChain terms in the compute type; those of kLinearDepth terms are added in it too, and then in fp64.
// What a row's sum is made of does not depend on the row's company.
#if defined(RLK_CPU_LINEAR_PRODUCT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_LINEAR_PRODUCT_INL
#undef RLK_CPU_LINEAR_PRODUCT_INL
#else
#define RLK_CPU_LINEAR_PRODUCT_INL
#endif

#include <algorithm>

#include "core/cpu/linear/linear_pack-inl.hpp"
#include "core/cpu/logp/logp_gather-inl.hpp"
#include "core/cpu/simd/register_tile-inl.hpp"
#include "core/cpu/simd/row_products-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

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

// Where a chain is among those that are added in the compute type.
struct Chains {
  bool is_first, is_last;

  // chains[lane] += sum[lane], and total[lane] += chains[lane] in fp64 behind the last.
  template <class D>
  HWY_INLINE void add(D d, hn::VFromD<D> sum, hn::TFromD<D>* chains, double* total) const {
    if (!is_first) sum = hn::Add(hn::LoadU(d, chains), sum);
    if (is_last) {
      add_wide(d, sum, total);
    } else {
      hn::StoreU(sum, d, chains);
    }
  }
};

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

template <int kVecs, typename T>
HWY_NOINLINE void add_product_as(const T* a, int64_t rows, int64_t a_row, int64_t a_step, const T* b, int64_t steps,
                                 double* c) {
  const hn::ScalableTag<T> d;
  const int64_t width = kVecs * lanes_of<T>();
  HWY_ALIGN T chains[kBroadcasts * kVecs * hn::MaxLanes(hn::ScalableTag<T>())];
  for (int64_t r = 0; r < rows; r += kBroadcasts) {
    double* const sums = c + r * width;
    for (int64_t t = 0; t < steps; t += kChain) {
      const Chains so_far{t == 0, t + kChain >= steps};
      outer_sums<kVecs, kBroadcasts>(d, a + r * a_row + t * a_step, a_row, a_step, b + t * width,
                                     std::min(kChain, steps - t), [&](int row, int v, auto sum) HWY_ATTR {
                                       const int64_t at = row * width + v * lanes_of<T>();
                                       so_far.add(d, sum, chains + at, sums + at);
                                     });
    }
  }
}

// c[r][.] += sum over t < steps of a[r * a_row + t * a_step] * b[t][.] with rows of `width` numbers; steps are at most
// kLinearDepth. a and c have room for rows rounded up to kBroadcasts.
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

// Room for packed weights: as blocks of the depth, or as a panel for the tile unit.
template <typename T>
constexpr int64_t kPackedWeights = std::max(kLinearBlock* kLinearDepth,
                                            kAmxPanelBytes / static_cast<int64_t>(sizeof(T)));

// ---- few rows ---------------------------------------------------------------------------------------------------

// A batch whose rows fit the broadcast side of a product is packed as [d][row] with so many rows, padded with zeros.
HWY_INLINE int64_t few_rows(int64_t count) {
  return count <= 2 ? count : count <= 4 ? 4 : kBroadcasts;
}
template <typename T>
HWY_INLINE bool has_few_rows(const LinearBatch& batch) {
  return RLK_CPU_VECTOR_ARRAYS && batch.count <= kBroadcasts && kBroadcasts <= tile_rows_of<T>();
}

#if RLK_CPU_VECTOR_ARRAYS
// products[row][lane] of kRows rows with the weights of some columns, the last one repeated in the lanes behind it.
template <int kRows, typename T, typename E>
HWY_NOINLINE void few_products_as(const LinearOperands& operands, const T* hidden, int64_t column, int64_t columns,
                                  double* products) {
  const hn::ScalableTag<T> d;
  const Array& weight = operands.weight;
  const E* rows[kLanes<T>];
  for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
    rows[lane] = static_cast<const E*>(weight.data) + (column + std::min(lane, columns - 1)) * weight.strides[0];
  }
  std::fill(products, products + kRows * kLanes<T>, 0.0);
  HWY_ALIGN T sums[kRows * kLanes<T>];
  int64_t t = 0;
  const auto add = [&](int r, auto sum) HWY_ATTR {
    const int64_t next = t + kChain;
    const Chains so_far{t % kLinearDepth == 0, next % kLinearDepth == 0 || next >= operands.depth};
    so_far.add(d, sum, sums + r * kLanes<T>, products + r * kLanes<T>);
  };
  if constexpr (kWidens<T, E>) {
    const int64_t whole = weight.strides[1] == 1 ? operands.depth / kChain * kChain : 0;
    const int64_t ahead = column + 2 * kLanes<T> <= operands.vocab ? kLanes<T> * weight.strides[0] : 0;
    for (; t < whole; t += kChain) {
      const E* chains[kLanes<T>];
      for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
        chains[lane] = rows[lane] + t;
        constexpr auto kLine = static_cast<int64_t>(64 / sizeof(E));
        for (int64_t i = 0; i < kChain; i += kLine) prefetch_far(chains[lane] + ahead + i);
      }
      row_chain<kRows>(hidden + t * kRows, static_cast<const E* const*>(chains), kChain, add);
    }
  }
  T pieces[kLanes<T> * kChain];
  const T* chains[kLanes<T>];
  for (int64_t lane = 0; lane < kLanes<T>; ++lane) chains[lane] = pieces + lane * kChain;
  for (; t < operands.depth; t += kChain) {
    const int64_t depths = std::min(kChain, operands.depth - t);
    std::fill(pieces, pieces + kLanes<T> * kChain, T{0});
    for (int64_t lane = 0; lane < columns; ++lane) {
      widen(rows[lane] + t * weight.strides[1], operands.dtype(), weight.strides[1], depths, pieces + lane * kChain);
    }
    row_chain<kRows>(hidden + t * kRows, static_cast<const T* const*>(chains), depths, add);
  }
}

// As block_products for few rows, which would leave most lanes idle: the sides change places, the weights lie in the
// lanes. The terms of each sum and their order are the same, and so are its bits.
template <int kRows, typename T>
HWY_INLINE void few_block(const Tiles<T>& tiles, int64_t column, int64_t columns, double* sums) {
  const int64_t rows = tiles.batch.count, row_width = tiles.width(0);
  double products[kRows * kLanes<T>];
  for (int64_t first = 0; first < columns; first += kLanes<T>) {
    const int64_t count = std::min<int64_t>(kLanes<T>, columns - first);
    with_element(tiles.operands.dtype(), [&](auto tag) HWY_ATTR {
      few_products_as<kRows, T, decltype(tag)>(tiles.operands, tiles.packed(0), column + first, count,
                                               static_cast<double*>(products));
    });
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t r = 0; r < rows; ++r) sums[(first + j) * row_width + r] = products[r * kLanes<T> + j];
    }
  }
}
#endif

template <typename T>
HWY_NOINLINE void few_products([[maybe_unused]] const Tiles<T>& tiles, [[maybe_unused]] int64_t column,
                               [[maybe_unused]] int64_t columns, [[maybe_unused]] double* sums) {
#if RLK_CPU_VECTOR_ARRAYS
  const int64_t rows = few_rows(tiles.batch.count);
  if (rows == 1) return few_block<1>(tiles, column, columns, sums);
  if (rows == 2) return few_block<2>(tiles, column, columns, sums);
  if (rows == 4) return few_block<4>(tiles, column, columns, sums);
  few_block<kBroadcasts>(tiles, column, columns, sums);
#endif
}

// ---- any number of rows -----------------------------------------------------------------------------------------

// By tiles of bf16, where AVX-512 is the instruction set in use.
template <typename T>
HWY_INLINE bool by_amx([[maybe_unused]] const LinearOperands& operands) {
  return HWY_TARGET == HWY_AVX3 && sizeof(T) == 4 && takes_amx(operands);
}
// Of the rows of a batch: its groups have room for so many.
HWY_INLINE int64_t amx_room(const LinearBatch& batch) {
  return std::min(kAmxRows, batch.count);
}
// Group g of a tile, from the tile's place in the batch.
template <typename T>
HWY_INLINE uint16_t* amx_group(const Tiles<T>& tiles, int64_t tile, int64_t g) {
  auto* const at = reinterpret_cast<uint16_t*>(const_cast<T*>(tiles.packed(tile)));
  return at + g * amx_packed_numbers(tiles.operands.depth, amx_room(tiles.batch));
}
template <typename T>
HWY_INLINE int64_t amx_groups(const Tiles<T>& tiles, int64_t tile) {
  return (tiles.end(tile) - tiles.begin(tile) + kAmxRows - 1) / kAmxRows;
}

// Writes the sums of all groups.
template <typename T>
HWY_NOINLINE void amx_block([[maybe_unused]] const Tiles<T>& tiles, [[maybe_unused]] int64_t column,
                            [[maybe_unused]] int64_t columns, [[maybe_unused]] T* weights,
                            [[maybe_unused]] double* sums) {
#if HWY_TARGET == HWY_AVX3
  const LinearOperands& operands = tiles.operands;
  AmxGroup groups[kLinearTilesPerTask * kMaxVecs];
  int64_t count = 0;
  for (int64_t tile = tiles.first; tile < tiles.last; ++tile) {
    double* const of_tile = sums + (tile - tiles.first) * kLinearBlock * tile_rows_of<T>();
    for (int64_t g = 0; g < amx_groups(tiles, tile); ++g) {
      groups[count++] = {amx_group(tiles, tile, g), of_tile + g * kAmxRows, tiles.width(tile)};
    }
  }
  AmxPanel panel;
  panel.columns = columns;
  for (; panel.depth < operands.depth; panel.depth += kAmxPanelDepth) {
    const int64_t depths = std::min(kAmxPanelDepth, operands.depth - panel.depth);
    panel.steps = round_up(depths, kAmxDepth) / kAmxDepth;
    if (!panel.lies_in(operands, column, count)) {
      auto* const packed = reinterpret_cast<uint16_t*>(weights);
      pack_tiles(operands, column, columns, panel.depth, panel.steps, packed);
      panel.is_packed_at(packed);
    }
    amx_products(panel, groups, count, amx_room(tiles.batch));
  }
#endif
}

// The products of one block of the vocabulary with every row of the tiles. sums: [tile][column][row] in fp64, a tile
// every kLinearBlock * tile_rows. weights: kPackedWeights of scratch.
template <typename T>
HWY_NOINLINE void block_products(const Tiles<T>& tiles, int64_t column, int64_t columns, T* weights, double* sums) {
  if (by_amx<T>(tiles.operands)) return amx_block(tiles, column, columns, weights, sums);
  const int64_t per_tile = kLinearBlock * tile_rows_of<T>();
  std::fill(sums, sums + (tiles.last - tiles.first) * per_tile, 0.0);
  if (has_few_rows<T>(tiles.batch)) return few_products(tiles, column, columns, sums);
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
    bias[j] =
        scores.bias == nullptr ? 0 : load_element(scores.bias, operands.dtype(), (column + j) * scores.bias_stride);
  }
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
