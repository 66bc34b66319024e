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

#if RLK_CPU_HAS_AMX

namespace {

constexpr int64_t kTileSums = kAmxRows * kAmxRows;
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

// out[block][group][column][row] = sums over `steps` tiles from the panel's step `step` on, of the blocks that begin at
// column `first`. kBlocks and kGroups are 1 or 2.
template <int kBlocks, int kGroups>
RLK_AMX void chain(const AmxPanel& panel, int64_t first, int64_t step, int64_t steps, const AmxGroup* groups,
                   int64_t room, float* out) {
  const int64_t group_step = kAmxRows * room * 2;
  const char* at = panel.data + first / kAmxRows * panel.block_bytes + step * panel.step_bytes;
  const bool fetch_ahead = first + kAmxRows * 2 * kBlocks <= panel.columns_in_memory;
  const uint16_t* rows0 = groups[0].packed + panel.depth * room + step * group_step;
  const uint16_t* rows1 = kGroups > 1 ? groups[1].packed + panel.depth * room + step * group_step : nullptr;
  settle_memory(at);
  _tile_zero(0);
  if constexpr (kGroups > 1) _tile_zero(1);
  if constexpr (kBlocks > 1) _tile_zero(2);
  if constexpr (kBlocks > 1 && kGroups > 1) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, at += panel.step_bytes, rows0 += group_step) {
    _tile_loadd(4, at, panel.row_bytes);
    if constexpr (kBlocks > 1) _tile_loadd(5, at + panel.block_bytes, panel.row_bytes);
    _tile_loadd(6, rows0, 4 * room);
    if constexpr (kGroups > 1) {
      _tile_loadd(7, rows1, 4 * room);
      rows1 += group_step;
    }
    if (fetch_ahead) {
      for (int64_t row = 0; row < kBlocks * kAmxRows; ++row) {
        __builtin_prefetch(at + kBlocks * panel.block_bytes + row * panel.row_bytes);
      }
    }
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kGroups > 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kBlocks > 1) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kBlocks > 1 && kGroups > 1) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 64);
  if constexpr (kGroups > 1) _tile_stored(1, out + kTileSums, 64);
  if constexpr (kBlocks > 1) _tile_stored(2, out + kGroups * kTileSums, 64);
  if constexpr (kBlocks > 1 && kGroups > 1) _tile_stored(3, out + 3 * kTileSums, 64);
}

// The form with a mask: g++ 12 takes the other's register for uninitialised.
RLK_AMX inline __m512d to_fp64(const float* from) {
  return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(from));
}

// sums[column][row] = or += the sum over the chains of from[column][row] of one tile, chains chain_floats apart.
RLK_AMX void add_tile(const float* from, int64_t chains, int64_t chain_floats, int64_t columns, bool is_first,
                      double* sums, int64_t stride) {
  for (int64_t j = 0; j < columns; ++j, from += kAmxRows, sums += stride) {
    __m512d low = is_first ? _mm512_setzero_pd() : _mm512_loadu_pd(sums);
    __m512d high = is_first ? _mm512_setzero_pd() : _mm512_loadu_pd(sums + 8);
    for (int64_t c = 0; c < chains; ++c) {
      low = _mm512_add_pd(low, to_fp64(from + c * chain_floats));
      high = _mm512_add_pd(high, to_fp64(from + c * chain_floats + 8));
    }
    _mm512_storeu_pd(sums, low);
    _mm512_storeu_pd(sums + 8, high);
  }
}

// One or two blocks of columns, from `first` on, with one or two groups.
template <int kBlocks, int kGroups>
RLK_AMX void multiply(const AmxPanel& panel, int64_t first, const AmxGroup* groups, int64_t room, float* out) {
  constexpr int64_t kSteps = kAmxChain / kAmxDepth, kSums = kTileSums * kBlocks * kGroups;
  int64_t chains = 0;
  for (int64_t step = 0; step < panel.steps; step += kSteps, ++chains) {
    chain<kBlocks, kGroups>(panel, first, step, std::min(kSteps, panel.steps - step), groups, room,
                            out + chains * kSums);
  }
  settle_memory(out);
  for (int block = 0; block < kBlocks; ++block) {
    const int64_t column = first + block * kAmxRows, columns = std::min(kAmxRows, panel.columns - column);
    for (int g = 0; g < kGroups; ++g) {
      add_tile(out + (block * kGroups + g) * kTileSums, chains, kSums, columns, panel.depth == 0,
               groups[g].sums + column * groups[g].stride, groups[g].stride);
    }
  }
}

}  // namespace

RLK_AMX void amx_products(const AmxPanel& panel, const AmxGroup* groups, int64_t group_count, int64_t room) {
  alignas(64) float out[kAmxPanelChains * 4 * kTileSums];
  if (room < kAmxRows) std::memset(out, 0, sizeof out);  // tiles leave the lanes behind the room as they are
  configure(room);
  for (int64_t g = 0; g < group_count; g += 2) {
    const bool two_groups = g + 1 < group_count;
    for (int64_t first = 0; first < panel.columns; first += 2 * kAmxRows) {
      const bool two_blocks = first + kAmxRows < panel.columns;
      if (two_blocks && two_groups) multiply<2, 2>(panel, first, groups + g, room, out);
      if (two_blocks && !two_groups) multiply<2, 1>(panel, first, groups + g, room, out);
      if (!two_blocks && two_groups) multiply<1, 2>(panel, first, groups + g, room, out);
      if (!two_blocks && !two_groups) multiply<1, 1>(panel, first, groups + g, room, out);
    }
  }
  _tile_release();
}

#else

void amx_products(const AmxPanel&, const AmxGroup*, int64_t, int64_t) {}

#endif

}  // namespace rlk::cpu
