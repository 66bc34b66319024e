#include "core/cpu/linear/linear_amx.hpp"

#include <algorithm>
#include <cstring>

#include "core/cpu/simd/amx.hpp"
#include "core/cpu/simd/amx_tiles.hpp"

namespace rlk::cpu {

bool takes_amx(const LinearOperands& operands) {
  return operands.dtype() == Dtype::bf16 && operands.depth >= kAmxDepth && has_amx();
}

namespace {

constexpr int64_t kTileSums = kAmxRows * kAmxRows;
constexpr int64_t kSteps = kAmxChain / kAmxDepth;  // of a chain

void emulate_products(const AmxPanel& panel, const AmxGroup& group, int64_t room) {
  for (int64_t column = 0; column < panel.columns; ++column) {
    const char* left = panel.data + column / kAmxRows * panel.block_bytes + column % kAmxRows * panel.row_bytes;
    for (int64_t row = 0; row < kAmxRows; ++row) {
      double& sum = group.sums[column * group.stride + row];
      if (panel.depth == 0) sum = 0;
      for (int64_t first = 0; first < panel.steps && row < room; first += kSteps) {
        float chain = 0;
        for (int64_t step = first; step < std::min(first + kSteps, panel.steps); ++step) {
          chain = emulated_products(chain, reinterpret_cast<const uint16_t*>(left + step * panel.step_bytes),
                                    group.packed + (panel.depth + step * kAmxDepth) * room + row * 2, room * 2);
        }
        sum += chain;
      }
    }
  }
}

#if RLK_CPU_HAS_AMX

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
  constexpr int64_t kSums = kTileSums * kBlocks * kGroups;
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

RLK_AMX void products(const AmxPanel& panel, const AmxGroup* groups, int64_t group_count, int64_t room) {
  alignas(64) float out[kAmxPanelChains * 4 * kTileSums];
  if (room < kAmxRows) std::memset(out, 0, sizeof out);  // tiles leave the lanes behind the room as they are
  configure_tiles(room);
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

void products(const AmxPanel&, const AmxGroup*, int64_t, int64_t) {}

#endif

}  // namespace

void amx_products(const AmxPanel& panel, const AmxGroup* groups, int64_t group_count, int64_t room) {
  if (!amx_is_emulated()) return products(panel, groups, group_count, room);
  for (int64_t g = 0; g < group_count; ++g) emulate_products(panel, groups[g], room);
}

}  // namespace rlk::cpu
