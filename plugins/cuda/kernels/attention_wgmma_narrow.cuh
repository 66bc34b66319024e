// attention_wgmma.cuh for heads up to 64, whose exponentials take as long as their products.
//
// Three warpgroups compute instead of two: one's weights are computed beside the products of the others, which
// issue in turn. A warpgroup passes over the tiles of keys that its own 64 rows do not see, and begins the scores of
// the next tile of queries before it stores the output of this one. What a row's exponents subtract moves only when a
// score exceeds it by 2^kSlack: most tiles leave the sums so far as they are.
// Cost: 192 queries x 128 keys keep the tensor cores and the exponential unit busy for 1536 cycles each.
#pragma once

#include "attention_wgmma.cuh"

namespace rlk::cuda_kernels {

// The rows of a warpgroup: this thread's are 16 warp + lane / 4 and the one 8 below.
template <class T, class S>
struct NarrowRows {
  static constexpr int kKeys = S::kKeys;
  // Weights are kept times 2^kHeadroom: small f16 weights would otherwise lose bits to subnormals. None exceeds
  // 2^(kHeadroom + kSlack), which both types hold.
  static constexpr float kHeadroom = simt::kIsBf16<T> ? 0.0f : 10.0f, kSlack = simt::kIsBf16<T> ? 8.0f : 5.0f;
  float scores[kKeys / 2];
  uint32_t weights[kKeys / 4];
  float out[S::kHead / 2];
  float top[2], sum[2];  // what the exponents have subtracted; of this thread's weights

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float& element : out) element = 0.0f;
    top[0] = top[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }
  __device__ __forceinline__ void multiply_keys(uint64_t queries, uint64_t keys) {
    pin(scores);
    products_begin();
#pragma unroll
    for (int k = 0; k < S::kHead / 16; ++k) {
      WarpgroupProduct<T, kKeys>::multiply(scores, operand_at(queries, k * 32), operand_at(keys, k * 32), k != 0);
    }
    products_commit();
  }
  __device__ __forceinline__ void add_values(uint64_t values) {
    pin(out);
    products_begin();
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      WarpgroupProduct<T, S::kHead>::multiply_registers(out, weights + 4 * k, operand_at(values, k * 16 * 128));
    }
    products_commit();
  }

  // From row h all keys behind `most` or before `least`, counted from the lane's first column.
  __device__ __forceinline__ void hide_behind(int h, int most) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * j + e > most) scores[4 * j + 2 * h + e] = -INFINITY;
      }
    }
  }
  __device__ __forceinline__ void hide_before(int h, int least) {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (8 * j + e < least) scores[4 * j + 2 * h + e] = -INFINITY;
      }
    }
  }

  // Scores, times scale in powers of 2, become weights in fp32. shrink: what the sums so far are to be multiplied by;
  // the result says whether that is other than 1 for any row of the warp. Both rows at once: each operation waits for
  // the one before.
  __device__ __forceinline__ bool weigh(float scale, float (&shrink)[2]) {
    float highest[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) highest[i / 2][i % 2] = scores[i];
#pragma unroll
    for (int i = 4; i < kKeys / 2; ++i) {
      float& so_far = highest[i / 2 % 2][i % 2];
      so_far = fmaxf(so_far, scores[i]);
    }
    float of_row[2], subtract[2], total[2][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) of_row[h] = fmaxf(highest[h][0], highest[h][1]);
#pragma unroll
    for (int lanes = 1; lanes <= 2; ++lanes) {
      float others[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) others[h] = simt::wave_xor(of_row[h], lanes);
#pragma unroll
      for (int h = 0; h < 2; ++h) of_row[h] = fmaxf(of_row[h], others[h]);
    }
    bool moves = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float wanted = __fadd_rn(__fmul_rn(of_row[h], scale), -kHeadroom);
      const float base = wanted > __fadd_rn(top[h], kSlack) ? wanted : top[h];
      subtract[h] = base == -INFINITY ? 0.0f : base;
      shrink[h] = simt::exp2_fast(top[h] - subtract[h]);
      moves |= base != top[h];
      top[h] = base;
      total[h][0] = total[h][1] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int h = i / 2 % 2;
      scores[i] = simt::exp2_fast(fmaf(scores[i], scale, -subtract[h]));
      total[h][i % 2] += scores[i];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = fmaf(sum[h], shrink[h], total[h][0] + total[h][1]);
    return simt::wave_ballot(moves) != 0;
  }
  __device__ __forceinline__ void round_weights() {
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) weights[i] = pack_pair<T>(scores[2 * i], scores[2 * i + 1]);
  }
  __device__ __forceinline__ void shrink_out(const float (&shrink)[2]) {
#pragma unroll
    for (int i = 0; i < S::kHead / 2; ++i) out[i] *= shrink[i / 2 % 2];
  }
};

// A tile of queries, and what of it is a warpgroup's.
struct NarrowTile : WgmmaTile {
  int own_query, right, left;  // the warpgroup's first row; the last and the first key of that
  int begin, end;              // the tiles of keys that its rows see

  template <class S>
  __device__ __forceinline__ void find_own(const AttentionWgmmaArgs& args, int warpgroup) {
    constexpr int kRows = cuda::kWgmmaWarpgroupRows;
    own_query = first_query + warpgroup * kRows;
    right = own_query + args.diagonal + args.window_right;
    left = own_query + args.diagonal - args.window_left;
    const int last_query = min(own_query + kRows, args.queries) - 1;
    const int high = min(args.keys - 1, right + last_query - own_query), low = max(0, left);
    // Rows that see no key hide those of one tile: all warpgroups compute, or none.
    begin = 0;
    end = min(1, count);
    if (last_query >= own_query && high >= low) {
      begin = low / S::kKeys - first;
      end = high / S::kKeys + 1 - first;
    }
    // Of one lane: the compiler must know that a warp's lanes take the same loops, or it serializes the products.
    begin = simt::wave_read(begin, 0);
    end = simt::wave_read(end, 0);
  }
};

// The work of one of the warpgroups that compute.
template <class T, class S>
__device__ __forceinline__ void compute_narrow(const AttentionWgmmaArgs& args, uint32_t shared,
                                               const WgmmaBarriers<S>& barriers, int warpgroup) {
  constexpr int kKeys = S::kKeys, kRows = cuda::kWgmmaWarpgroupRows;
  static_assert(S::kPanels == 1 && S::kOwnOut, "what these kernels are made for");
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  RingPlace<S::kQueryStages> queries(barriers.queries(), 0);
  RingPlace<S::kStages> keys(barriers.keys(), 0), values(barriers.values(), 0);
  const uint64_t query_panel = panel_descriptor(shared + warpgroup * kRows * 128, 0);
  const uint64_t key_panel = panel_descriptor(shared + S::kKeysAt, 0);
  const uint64_t value_panel = panel_descriptor(shared + S::kValuesAt, S::kKeyPanel);
  const auto release = [&](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  const auto done_with = [&](auto& ring) {
    release(ring.empty_barrier());
    ring.advance();
  };
  const int next_warpgroup = warpgroup + 1 == S::kWarpgroups ? 0 : warpgroup + 1;
  const auto take_turn = [&] { named_wait<256>(kTurnBarrier + warpgroup); };
  const auto pass_turn = [&] { named_arrive<256>(kTurnBarrier + next_warpgroup); };
  if (next_warpgroup == 0) pass_turn();
  const auto pass_over = [&](int tiles) {
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      barrier_wait(keys.full_barrier(), keys.parity);
      done_with(keys);
      barrier_wait(values.full_barrier(), values.parity);
      done_with(values);
      take_turn();
      pass_turn();
    }
  };

  NarrowTile tile;
  NarrowRows<T, S> rows;
  const auto multiply_keys = [&] {
    rows.multiply_keys(operand_at(query_panel, queries.stage * S::kQueryBytes),
                       operand_at(key_panel, keys.stage * S::kKeyBytes));
  };
  const auto add_values = [&] { rows.add_values(operand_at(value_panel, values.stage * S::kKeyBytes)); };
  const auto start = [&](int round) {
    static_cast<WgmmaTile&>(tile) = tile_of<S>(args, round);
    if (tile.count < 0) return;
    barrier_wait(queries.full_barrier(), queries.parity);
    tile.find_own<S>(args, warpgroup);
    pass_over(tile.count - tile.end);
  };
  const auto adjust = [&](int i) {
    const int first_key = (tile.first + i) * kKeys, last_key = args.keys - 1, shift = first_key + column;
    if (first_key + kKeys - 1 > min(last_key, tile.right)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) rows.hide_behind(h, min(last_key, tile.right + row + 8 * h) - shift);
    }
    if (first_key < tile.left + kRows - 1) {
#pragma unroll
      for (int h = 0; h < 2; ++h) rows.hide_before(h, tile.left + row + 8 * h - shift);
    }
  };

  // Of a tile of queries that sees no key, or none at all, of what happens to be there: where only one of two branches
  // has products under way, the compiler serializes them.
  const auto begin_scores = [&] {
    if (tile.count > 0) barrier_wait(keys.full_barrier(), keys.parity);
    multiply_keys();
  };
  start(0);
  if (tile.count < 0) return;
  begin_scores();
  for (int round = 1;; ++round) {
    rows.clear();
    float shrink[2];
    products_wait<0>();
    pin(rows.scores);
    if (tile.count > 0) {
      done_with(keys);
      adjust(tile.end - 1);
      rows.weigh(args.scale, shrink);
      rows.round_weights();
      for (int i = tile.end - 2; i >= tile.begin; --i) {
        barrier_wait(keys.full_barrier(), keys.parity);
        take_turn();
        multiply_keys();
        barrier_wait(values.full_barrier(), values.parity);
        add_values();
        pass_turn();
        products_wait<1>();
        pin(rows.scores);
        done_with(keys);
        adjust(i);
        const bool moves = rows.weigh(args.scale, shrink);
        // Never true. Without a branch here the compiler waits first and computes the weights beside idle tensor cores.
        if (rows.sum[0] + rows.sum[1] < 0.0f) __trap();
        products_wait<0>();
        pin(rows.out);
        done_with(values);
        if (moves) rows.shrink_out(shrink);
        rows.round_weights();
      }
      done_with(queries);
      barrier_wait(values.full_barrier(), values.parity);
      add_values();
      take_turn();
      pass_turn();
      products_wait<0>();
      pin(rows.out);
      done_with(values);
      pass_over(tile.begin);
    } else {
      done_with(queries);
    }
    const int out_query = tile.own_query, out_head = tile.head, out_sequence = tile.sequence;
    start(round);
    begin_scores();

    // Out through this warpgroup's panel, once the copies from there have read it.
    const uint32_t out_at = shared + S::kOutAt + warpgroup * kRows * 128;
    if (thread == 0) wait_panels_read();
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
        const float* from = &rows.out[4 * j + 2 * h];
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + ((j ^ row % 8) << 4)),
                     "r"(pack_pair<T>(from[0] * inverse, from[1] * inverse))
                     : "memory");
      }
      const int query = out_query + row + 8 * h;
      if (args.lse != nullptr && column == 0 && query < args.queries) {
        args.lse[(static_cast<int64_t>(out_sequence) * args.queries + query) * args.q_heads + out_head] =
            total == 0.0f ? -INFINITY
                          : static_cast<float>((double(rows.top[h]) + double(log2f(total))) * 0.69314718055994530942);
      }
    }
    shared_stores_ready();
    named_wait<128>(kOutBarrier<S> + warpgroup);
    if (thread == 0) {
      if (out_query < args.queries) copy_panel_out(args.out, 0, out_head, out_query, out_sequence, out_at);
      commit_panels_out();
    }
    if (tile.count < 0) break;
  }
  products_wait<0>();
  pin(rows.scores);
  if (thread == 0) wait_panels_read();
}

template <class T>
__device__ __forceinline__ void attention_narrow(const AttentionWgmmaArgs& args) {
  using S = WgmmaShape<64, WgmmaForm::narrow>;
  const uint32_t shared = (shared_address(simt::dynamic_shared()) + 1023) & ~1023u;
  const WgmmaBarriers<S> barriers{shared + S::kBarriersAt};
  if (threadIdx.x == 0) {
    barriers.init();
    barriers_ready();
  }
  __syncthreads();
  // 32 + 3 x 160 registers are the 4 x 128 of the launch.
  const int warpgroup = simt::wave_read(static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == 0) {
    give_registers<32>();
    if (threadIdx.x == 0) copy_tiles<S>(args, shared, barriers);
  } else {
    take_registers<160>();
    compute_narrow<T, S>(args, shared, barriers, warpgroup - 1);
  }
}

}  // namespace rlk::cuda_kernels
