// attention for 16-bit tensors on the warpgroup products of sm_90a, as FlashAttention-3 divides the work.
//
// A block is a warpgroup that copies and two that compute 64 query rows each of one head. Keys and values arrive in
// rings of kStages tiles. A computing warpgroup issues the scores of the next tile and the output of this one together,
// and computes the next weights while the tensor cores work on the latter. Where kTurns, two barriers make the
// warpgroups issue in turn: one's weights are computed beside the other's products. Blocks stay on the device and walk
// over the tiles of queries, the longest first, in rounds of alternating direction: the sums of their work are alike,
// and no counter in memory is needed. A row meets its tiles of keys in one order, whatever its neighbours are.
// Cost: 4 Lq Lk D operations a head; 128 queries x 128 keys of D 128 keep the tensor cores busy for 2048 cycles, the
// exponential unit for 1024.
#pragma once

#include "attention_wgmma_tiles.cuh"

namespace rlk::cuda_kernels {

// What a kernel has beside windows; packed sequences come with any of Args' options.
template <bool kCap_, bool kMask_>
struct WgmmaOptions {
  static constexpr bool kCap = kCap_, kMask = kMask_;
};

// The rows of a warpgroup: this thread's are 16 warp + lane / 4 and the one 8 below.
template <class T, class S>
struct WgmmaRows {
  static constexpr int kKeys = S::kKeys;
  // Weights are kept times 2^kHeadroom: small f16 weights would otherwise lose bits to subnormals.
  static constexpr float kHeadroom = simt::kIsBf16<T> ? 0.0f : 10.0f;
  // Weights as two numbers of T. Matrix units cut their sums: those of a tile alone are theirs, and fp32 adds tiles.
  static constexpr bool kAccurate = S::kAccurate;
  float scores[kKeys / 2];
  uint32_t weights[kKeys / 4];
  uint32_t rest[kAccurate ? kKeys / 4 : 1];  // what rounding the weights has lost
  float out[S::kOutParts][S::kOutColumns / 2];
  float of_tile[kAccurate ? S::kOutParts : 1][kAccurate ? S::kOutColumns / 2 : 1];  // the last tile's products
  float top[2], sum[2];  // what the exponents have subtracted; of this thread's weights

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& part : out) {
#pragma unroll
      for (float& element : part) element = 0.0f;
    }
    top[0] = top[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }
  __device__ __forceinline__ void pin_out() {
#pragma unroll
    for (auto& columns : out) pin(columns);
    if constexpr (kAccurate) {
#pragma unroll
      for (auto& columns : of_tile) pin(columns);
    }
  }

  __device__ __forceinline__ void multiply_keys(uint64_t queries, uint64_t keys) {
#pragma unroll
    for (int k = 0; k < S::kHead / 16; ++k) {  // 4 to a panel
      WarpgroupProduct<T, kKeys>::multiply(scores, operand_at(queries, k / 4 * S::kQueryPanel + k % 4 * 32),
                                           operand_at(keys, k / 4 * S::kKeyPanel + k % 4 * 32), k != 0);
    }
  }
  __device__ __forceinline__ void add_values(uint64_t values) {
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
      for (int n = 0; n < S::kOutParts; ++n) {
        using Product = WarpgroupProduct<T, S::kOutColumns>;
        const uint64_t at =
            operand_at(values, k * 16 * 128 + n * (S::kOutColumns / cuda::kWgmmaPanelColumns) * S::kKeyPanel);
        auto& to = products_of_tile(n);
        if (kAccurate && k == 0) {
          Product::set_registers(to, weights, at);
        } else {
          Product::multiply_registers(to, weights + 4 * k, at);
        }
        if constexpr (kAccurate) Product::multiply_registers(to, rest + 4 * k, at);
      }
    }
  }

  __device__ __forceinline__ float (&products_of_tile(int n))[S::kOutColumns / 2] {
    if constexpr (kAccurate) {
      return of_tile[n];
    } else {
      return out[n];
    }
  }

  // From row h all keys but least .. most of the tile. Both are counted from the lane's first column.
  __device__ __forceinline__ void hide(int h, int least, int most) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * j + e > most || 8 * j + e < least) scores[4 * j + 2 * h + e] = -INFINITY;
      }
    }
  }

  // Those that padding hides from all rows.
  __device__ __forceinline__ void hide_masked(const OpenKeys<kKeys>& open, int column) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      const uint32_t bits = open.word[j / 4] >> column;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((bits >> (j % 4 * 8 + i % 2) & 1) == 0) scores[4 * j + i] = -INFINITY;
      }
    }
  }

  // Scores, times scale in powers of 2, become weights in fp32. shrink: what the sums so far are to be multiplied by.
  __device__ __forceinline__ void weigh(float scale, float (&shrink)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float highest = -INFINITY;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        highest = fmaxf(highest, fmaxf(scores[4 * j + 2 * h], scores[4 * j + 2 * h + 1]));
      }
      highest = fmaxf(highest, simt::wave_xor(highest, 1));
      highest = fmaxf(highest, simt::wave_xor(highest, 2));
      const float base = fmaxf(top[h], __fadd_rn(__fmul_rn(highest, scale), -kHeadroom));
      const float subtract = base == -INFINITY ? 0.0f : base;
      shrink[h] = simt::exp2_fast(top[h] - subtract);
      top[h] = base;
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[4 * j + 2 * h + e];
          score = simt::exp2_fast(fmaf(score, scale, -subtract));
          total += score;
        }
      }
      sum[h] = fmaf(sum[h], shrink[h], total);
    }
  }
  __device__ __forceinline__ void round_weights() {
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      weights[i] = pack_pair<T>(scores[2 * i], scores[2 * i + 1]);
      if constexpr (kAccurate) {
        const float2 kept = unpack_pair<T>(weights[i]);
        rest[i] = pack_pair<T>(scores[2 * i] - kept.x, scores[2 * i + 1] - kept.y);
      }
    }
  }
  // shrink: before the last tile's products where these are apart, else after them.
  __device__ __forceinline__ void shrink_out(const float (&shrink)[2]) {
#pragma unroll
    for (int n = 0; n < S::kOutParts; ++n) {
#pragma unroll
      for (int i = 0; i < S::kOutColumns / 2; ++i) {
        if constexpr (kAccurate) {
          out[n][i] = fmaf(out[n][i], shrink[i / 2 % 2], of_tile[n][i]);
        } else {
          out[n][i] *= shrink[i / 2 % 2];
        }
      }
    }
  }
};

// The work of warpgroup 0 or 1 of those that compute.
template <class T, class S, bool kTurns, class Options, class Args>
__device__ __forceinline__ void compute_tiles(const Args& args, uint32_t shared, const WgmmaBarriers<S>& barriers,
                                              int warpgroup) {
  constexpr int kKeys = S::kKeys, kRows = cuda::kWgmmaWarpgroupRows;
  static_assert(S::kWarpgroups == 2 && S::kQueryStages == 1, "what turns and the parity of the queries are made for");
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  RingPlace<S::kStages> keys(barriers.keys(), 0), values(barriers.values(), 0);
  uint32_t query_parity = 0;
  const uint64_t query_panels = panel_descriptor(shared + warpgroup * kRows * 128, 0);
  const uint64_t key_panels = panel_descriptor(shared + S::kKeysAt, 0);
  const uint64_t value_panels = panel_descriptor(shared + S::kValuesAt, S::kKeyPanel);
  const auto release = [&](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  const auto done_with = [&](RingPlace<S::kStages>& ring) {
    release(ring.empty_barrier());
    ring.advance();
  };
  WgmmaRows<T, S> rows;
  OpenKeys<kKeys> open;                   // of the tile whose scores are computed
  const SequenceMap* read_map = nullptr;  // that this thread has copied through

  WgmmaKeys<S, Args> all(args, args.keys);
  if (kTurns && warpgroup == 1) named_arrive<256>(kTurnBarrier);
  for (int round = 0;; ++round) {
    WgmmaTile tile;
    if constexpr (kHasOptions<Args>) {
      barrier_wait(barriers.query_full(), query_parity);
      tile = get_tile(shared + S::kTileAt);
    } else {
      tile = tile_of<S>(args, round);
    }
    if (tile.count < 0) break;
    if constexpr (kHasOptions<Args>) all = WgmmaKeys<S, Args>(args, tile.keys);
    const int first_query = tile.first_query + warpgroup * kRows;
    const int right = first_query + diagonal_of(args, tile) + args.window_right;  // of the warpgroup's first row
    const int left = first_query + diagonal_of(args, tile) - args.window_left;
    const auto hide = [&](int i) {
      const int first_key = all.first_key(tile.first + i), last_key = all.last_key(tile.first + i);
      if (first_key >= left + kRows - 1 && first_key + kKeys - 1 <= min(last_key, right)) return;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int shift = first_key + column;
        rows.hide(h, left + row + 8 * h - shift, min(last_key, right + row + 8 * h) - shift);
      }
    };

    const auto ask_mask = [&](int i) {
      if constexpr (Options::kMask) {
        open.ask(args.call, tile.sequence, all.first_key(tile.first + i), tile.keys);
      }
    };
    const auto adjust = [&](int i) {
      if constexpr (Options::kCap) bend(rows.scores, args.softcap);
      hide(i);
      if constexpr (Options::kMask) {
        open.settle();
        if (!open.all()) rows.hide_masked(open, column);
      }
    };
    // Before the values of the tile whose scores were computed last are multiplied.
    const auto clear_masked = [&] {
      if constexpr (Options::kMask) {
        if (open.all()) return;
        if (thread < kKeys && !open.has(thread)) {
          clear_row<S::kPanels, S::kKeyPanel>(shared + S::kValuesAt + values.stage * S::kKeyBytes + thread * 128);
        }
        shared_stores_ready();
        named_wait<128>(kOutBarrier<S> + warpgroup);
      }
    };

    rows.clear();
    float shrink[2], last_shrink[2];  // last_shrink: of the weights whose products come next
    if constexpr (!kHasOptions<Args>) barrier_wait(barriers.query_full(), query_parity);
    query_parity ^= 1;
    if (tile.count > 0) {
      ask_mask(tile.count - 1);
      barrier_wait(keys.full_barrier(), keys.parity);
      products_begin();
      rows.multiply_keys(query_panels, operand_at(key_panels, keys.stage * S::kKeyBytes));
      products_commit();
      products_wait<0>();
      pin(rows.scores);
      done_with(keys);
      adjust(tile.count - 1);
      rows.weigh(args.scale, last_shrink);
      rows.round_weights();
    }
    for (int i = tile.count - 2; i >= 0; --i) {
      barrier_wait(keys.full_barrier(), keys.parity);
      if (kTurns) named_wait<256>(kTurnBarrier + warpgroup);
      pin(rows.scores);
      rows.pin_out();
      products_begin();
      rows.multiply_keys(query_panels, operand_at(key_panels, keys.stage * S::kKeyBytes));
      products_commit();
      barrier_wait(values.full_barrier(), values.parity);
      clear_masked();
      ask_mask(i);
      products_begin();
      rows.add_values(operand_at(value_panels, values.stage * S::kKeyBytes));
      products_commit();
      if (kTurns) named_arrive<256>(kTurnBarrier + 1 - warpgroup);
      products_wait<1>();
      pin(rows.scores);
      done_with(keys);
      adjust(i);
      rows.weigh(args.scale, shrink);
      // Never true. Without a branch here the compiler waits first and computes the weights beside idle tensor cores.
      if (rows.sum[0] + rows.sum[1] < 0.0f) __trap();
      products_wait<0>();
      rows.pin_out();
      done_with(values);
      rows.shrink_out(rows.kAccurate ? last_shrink : shrink);
      last_shrink[0] = shrink[0];
      last_shrink[1] = shrink[1];
      rows.round_weights();
    }
    if (S::kOwnOut) release(barriers.query_empty());
    if (tile.count > 0) {
      barrier_wait(values.full_barrier(), values.parity);
      clear_masked();
      rows.pin_out();
      products_begin();
      rows.add_values(operand_at(value_panels, values.stage * S::kKeyBytes));
      products_commit();
      products_wait<0>();
      rows.pin_out();
      done_with(values);
      if (rows.kAccurate) rows.shrink_out(last_shrink);
    }

    // Out through panels of this warpgroup's rows, once the copies from there, or the products, have read them.
    constexpr int kOutPanel = S::kOwnOut ? kRows * 128 : S::kQueryPanel;
    const uint32_t out_at = shared + S::kOutAt + warpgroup * kRows * 128 * (S::kOwnOut ? S::kPanels : 1);
    if (S::kOwnOut && thread == 0) wait_panels_read();
    named_wait<128>(kOutBarrier<S> + warpgroup);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = rows.sum[h];
      total += simt::wave_xor(total, 1);
      total += simt::wave_xor(total, 2);
      const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
      const uint32_t to = out_at + (row + 8 * h) * 128 + 2 * column;
#pragma unroll
      for (int j = 0; j < S::kHead / 8; ++j) {
        const float* from = &rows.out[8 * j / S::kOutColumns][8 * j % S::kOutColumns / 2 + 2 * h];
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + j / 8 * kOutPanel + ((j % 8 ^ row % 8) << 4)),
                     "r"(pack_pair<T>(from[0] * inverse, from[1] * inverse))
                     : "memory");
      }
      const int query = first_query + row + 8 * h;
      if (args.lse != nullptr && column == 0 && query < queries_of(args, tile)) {
        args.lse[(first_token_of(args, tile) + query) * args.q_heads + tile.head] =
            total == 0.0f ? -INFINITY
                          : static_cast<float>((double(rows.top[h]) + double(log2f(total))) * 0.69314718055994530942);
      }
    }
    shared_stores_ready();
    named_wait<128>(kOutBarrier<S> + warpgroup);
    if (thread == 0) {
      const cuda::TensorMap* out_map = &args.out;
      int sequence = tile.sequence;
      if constexpr (kHasOptions<Args>) {
        if (args.maps != nullptr) {
          const SequenceMap* const its = args.maps + static_cast<int64_t>(sequence) * cuda::kWgmmaSequenceMaps + 3;
          if (its != read_map) read_sequence_map(its);
          read_map = its;
          out_map = &its->map;
          sequence = 0;
        }
      }
      if (first_query < queries_of(args, tile)) {
#pragma unroll
        for (int p = 0; p < S::kPanels; ++p) {
          copy_panel_out(*out_map, p * cuda::kWgmmaPanelColumns, tile.head, first_query, sequence,
                         out_at + p * kOutPanel);
        }
      }
      commit_panels_out();
      if (!S::kOwnOut) {
        wait_panels_read();
        barrier_arrive(barriers.query_empty());
      }
    }
  }
  if (thread == 0) wait_panels_read();
}

template <class T, class S, bool kTurns, class Options = WgmmaOptions<false, false>, class Args>
__device__ __forceinline__ void attention_wgmma(const Args& args) {
  if constexpr (kHasOptions<Args>) {
    if (simt::fill_nan_if_bad<T>(args.call)) return;
  }
  const uint32_t shared = (shared_address(simt::dynamic_shared()) + 1023) & ~1023u;
  const WgmmaBarriers<S> barriers{shared + S::kBarriersAt};
  if (threadIdx.x == 0) {
    barriers.init();
    barriers_ready();
  }
  __syncthreads();
  // 40 + 2 x 232 registers are the 3 x 168 of the launch.
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  if (warpgroup == 0) {
    give_registers<40>();
    if (threadIdx.x == 0) copy_tiles<S>(args, shared, barriers);
  } else {
    take_registers<232>();
    compute_tiles<T, S, kTurns, Options>(args, shared, barriers, warpgroup - 1);
  }
}

}  // namespace rlk::cuda_kernels
