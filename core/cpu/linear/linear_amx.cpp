#include "core/cpu/linear/linear_amx.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__) && defined(__linux__)
#define RLK_CPU_HAS_AMX 1
#include <immintrin.h>
#endif

#include "core/cpu/simd/amx.hpp"

namespace rlk::cpu {

bool takes_amx(const LinearOperands& operands) {
  return operands.dtype() == Dtype::bf16 && operands.depth >= kAmxDepth && has_amx();
}

void amx_pack_group(const LinearOperands& operands, const int64_t* rows, int64_t count, int64_t room, uint16_t* to) {
  const Array& hidden = operands.hidden;
  std::memset(to, 0, static_cast<size_t>(amx_packed_numbers(operands.depth, room)) * sizeof(uint16_t));
  for (int64_t r = 0; r < count; ++r) {
    const auto* row = static_cast<const uint16_t*>(hidden.data) + rows[r] * hidden.strides[0];
    for (int64_t d = 0; d < operands.depth; ++d) to[(d / 2 * room + r) * 2 + d % 2] = row[d * hidden.strides[1]];
  }
}

#if RLK_CPU_HAS_AMX

namespace {

constexpr int64_t kTileBytes = 1024;  // 16 rows of 64 bytes
#define RLK_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw")))

// The shapes of tiles 0 to 3 (sums), 4 and 5 (weights), 6 and 7 (rows).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  std::array<uint8_t, 15> reserved{};
  std::array<uint16_t, 16> bytes{};  // of a row
  std::array<uint8_t, 16> rows{};
};
static_assert(sizeof(TileConfig) == 64);

// Compilers are not told what the intrinsics read: what was written before is in memory from here on.
inline void settle_memory(const void* written) {
  asm volatile("" : : "r"(written) : "memory");
}

RLK_AMX void configure(int64_t room) {
  TileConfig config;
  for (size_t tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.bytes[tile] = static_cast<uint16_t>(tile == 4 || tile == 5 ? 64 : 4 * room);
  }
  settle_memory(&config);
  _tile_loadconfig(&config);
}

// Weights as tiles: their rows are row_bytes apart, those of the next kAmxDepth numbers step_bytes, those of the next
// sixteen columns block_bytes.
struct WeightTiles {
  const char* data;
  int64_t row_bytes, step_bytes, block_bytes;
  bool fetch_ahead;  // the next block of columns comes from memory
};

// out[block][group][column][row] = sums over `steps` tiles. kBlocks and kGroups are 1 or 2.
template <int kBlocks, int kGroups>
RLK_AMX void chain(const WeightTiles& weights, const uint16_t* rows0, const uint16_t* rows1, int64_t steps,
                   int64_t room, float* out) {
  const int64_t group_step = 16 * room * 2;
  settle_memory(weights.data);
  _tile_zero(0);
  if constexpr (kGroups > 1) _tile_zero(1);
  if constexpr (kBlocks > 1) _tile_zero(2);
  if constexpr (kBlocks > 1 && kGroups > 1) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s) {
    const char* const at = weights.data + s * weights.step_bytes;
    _tile_loadd(4, at, weights.row_bytes);
    if constexpr (kBlocks > 1) _tile_loadd(5, at + weights.block_bytes, weights.row_bytes);
    _tile_loadd(6, rows0 + s * group_step, 4 * room);
    if constexpr (kGroups > 1) _tile_loadd(7, rows1 + s * group_step, 4 * room);
    if (weights.fetch_ahead) {
      for (int64_t row = 0; row < kBlocks * kAmxRows; ++row) {
        __builtin_prefetch(at + kBlocks * weights.block_bytes + row * weights.row_bytes);
      }
    }
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kGroups > 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kBlocks > 1) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kBlocks > 1 && kGroups > 1) _tile_dpbf16ps(3, 5, 7);
  }
  constexpr int64_t kSums = kAmxRows * kAmxRows;
  _tile_stored(0, out, 64);
  if constexpr (kGroups > 1) _tile_stored(1, out + kSums, 64);
  if constexpr (kBlocks > 1) _tile_stored(2, out + kGroups * kSums, 64);
  if constexpr (kBlocks > 1 && kGroups > 1) _tile_stored(3, out + 3 * kSums, 64);
}

// The form with a mask: g++ 12 takes the other's register for uninitialised.
RLK_AMX inline __m512d to_fp64(const float* from) {
  return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(from));
}

// sums[column][row] += from[column][row] of one tile.
RLK_AMX void add_tile(const float* from, int64_t columns, double* sums, int64_t stride) {
  for (int64_t j = 0; j < columns; ++j, from += kAmxRows, sums += stride) {
    const __m512d low = to_fp64(from), high = to_fp64(from + 8);
    _mm512_storeu_pd(sums, _mm512_add_pd(_mm512_loadu_pd(sums), low));
    _mm512_storeu_pd(sums + 8, _mm512_add_pd(_mm512_loadu_pd(sums + 8), high));
  }
}

// Tiles of up to 32 columns at a depth, one after the other, zeros where there is no weight.
void pack_weights(const LinearOperands& operands, int64_t column, int64_t columns, int64_t depth, int64_t steps,
                  uint16_t* to) {
  const Array& weight = operands.weight;
  const int64_t blocks = (columns + kAmxRows - 1) / kAmxRows;
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t row = 0; row < kAmxRows; ++row) {
      const int64_t j = block * kAmxRows + row;
      uint16_t* at = to + block * steps * kTileBytes / 2 + row * kAmxDepth;
      const auto* from =
          static_cast<const uint16_t*>(weight.data) + (column + j) * weight.strides[0] + depth * weight.strides[1];
      for (int64_t s = 0; s < steps; ++s, at += kTileBytes / 2) {
        const int64_t here =
            j < columns ? std::clamp<int64_t>(operands.depth - depth - s * kAmxDepth, 0, kAmxDepth) : 0;
        if (here == kAmxDepth && weight.strides[1] == 1) {
          std::memcpy(at, from + s * kAmxDepth, kAmxDepth * sizeof(uint16_t));
          continue;
        }
        for (int64_t i = 0; i < here; ++i) at[i] = from[(s * kAmxDepth + i) * weight.strides[1]];
        std::fill(at + here, at + kAmxDepth, uint16_t{0});
      }
    }
  }
}

}  // namespace

RLK_AMX void amx_products(const LinearOperands& operands, int64_t column, int64_t columns, const AmxGroup* groups,
                          int64_t group_count, int64_t room, void* scratch) {
  configure(room);
  alignas(64) float out[4 * kAmxRows * kAmxRows] = {};  // lanes behind the room stay 0
  const Array& weight = operands.weight;
  for (int64_t first = 0; first < columns; first += 2 * kAmxRows) {
    const int64_t here = std::min(2 * kAmxRows, columns - first);
    for (int64_t d = 0; d < operands.depth; d += kAmxChain) {
      const int64_t depths = std::min(kAmxChain, operands.depth - d);
      const int64_t steps = (depths + kAmxDepth - 1) / kAmxDepth;
      // Read in place where they are read once or twice and nothing sticks out.
      const bool in_place =
          group_count <= 2 && here % kAmxRows == 0 && depths % kAmxDepth == 0 && weight.strides[1] == 1;
      WeightTiles tiles{static_cast<const char*>(scratch), 64, kTileBytes, steps * kTileBytes, false};
      if (in_place) {
        const int64_t row_bytes = weight.strides[0] * 2;
        tiles = {static_cast<const char*>(weight.data) + (column + first) * row_bytes + d * 2, row_bytes, 64,
                 kAmxRows * row_bytes, column + first + 2 * here <= operands.vocab};
      } else {
        pack_weights(operands, column + first, here, d, steps, static_cast<uint16_t*>(scratch));
      }
      for (int64_t g = 0; g < group_count; g += 2) {
        const bool two_blocks = here > kAmxRows, two_groups = g + 1 < group_count;
        const uint16_t* const rows0 = groups[g].packed + d * room;
        const uint16_t* const rows1 = two_groups ? groups[g + 1].packed + d * room : nullptr;
        if (two_blocks && two_groups) chain<2, 2>(tiles, rows0, rows1, steps, room, out);
        if (two_blocks && !two_groups) chain<2, 1>(tiles, rows0, rows1, steps, room, out);
        if (!two_blocks && two_groups) chain<1, 2>(tiles, rows0, rows1, steps, room, out);
        if (!two_blocks && !two_groups) chain<1, 1>(tiles, rows0, rows1, steps, room, out);
        const float* from = out;
        for (int64_t block = 0; block < here; block += kAmxRows) {
          for (int64_t k = g; k < std::min(g + 2, group_count); ++k, from += kAmxRows * kAmxRows) {
            add_tile(from, std::min(kAmxRows, here - block), groups[k].sums + (first + block) * groups[k].stride,
                     groups[k].stride);
          }
        }
      }
    }
  }
  _tile_release();
}

#else

void amx_products(const LinearOperands&, int64_t, int64_t, const AmxGroup*, int64_t, int64_t, void*) {}

#endif

}  // namespace rlk::cpu
