// The gradients of attention for 16-bit tensors on the warpgroup products of sm_90a, as FlashAttention-3 divides the
// work.
//
// A block owns 128 keys of one key head: a warpgroup that copies, and two of 64 keys each that keep grad_k and grad_v
// in registers while the queries of all heads of the group pass in tiles of 64. Weights and score gradients stay in
// registers as operands of the products for grad_v and grad_k; the score gradients of both warpgroups meet in shared
// memory for grad_q, of which each takes half of the columns. grad_k and grad_v have one order of summation. grad_q is
// summed over the blocks of keys by additions in memory, in the order in which blocks come: its last bits differ from
// run to run. Cost: five products of Lq Lk D, and 8 bytes of additions for each 128 keys and element of grad_q.
//
// Of heads up to 64 the columns of grad_q that a warpgroup takes are 32: half of a panel's lines of 128 bytes.
// Of heads above 128 a block owns 64 keys, and each warpgroup half of the columns of their gradients: registers and
// shared memory hold no more. Both compute the scores and their gradients: seven products instead of five, but nothing
// that they exchange.
#pragma once

#include "attention_gradients_wgmma_rows.cuh"
#include "attention_gradients_wgmma_tiles.cuh"

namespace rlk::cuda_kernels {

template <class T, class G, bool kCap = false, class Args>
__device__ __forceinline__ void attention_gradients_wgmma(const Args& args) {
  if constexpr (kHasGradientOptions<Args>) {
    if (simt::fill_nan_if_bad<T>(args.call, false)) return;
  }
  const uint32_t shared = (shared_address(simt::dynamic_shared()) + 1023) & ~1023u;
  const GradientBarriers<G::kStages> barriers{shared + G::kBarriers};
  if (threadIdx.x == 0) {
    barriers.init();
    barriers_ready();
  }
  __syncthreads();
  const KeyBlock block = key_block(args, G::kBlockKeys);
  if (is_packed(args) && block.first_key < 0) return;
  const int kv_head = block.kv_head, sequence = block.sequence, first_key = block.first_key;
  const int group = args.q_heads / args.kv_heads;
  const QueryTiles tiles = query_tiles(args, block, G::kBlockKeys);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;
  if (warpgroup < 0) {
    give_registers<24>();  // 24 + 2 x 240 are the 3 x 168 of the launch
    if (threadIdx.x == 0) copy_tiles<G>(args, shared, barriers, block, tiles);
    return;
  }
  take_registers<240>();
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  RingPlace<G::kStages> q(barriers.queries(), 0), o(barriers.grad_out(), 0);
  float grad_k[G::kOwnColumns / 2], grad_v[G::kOwnColumns / 2];
#pragma unroll
  for (int i = 0; i < G::kOwnColumns / 2; ++i) grad_k[i] = grad_v[i] = 0.0f;
  const uint64_t k_rows = panel_descriptor(shared + G::kKeys + warpgroup * G::kToKeys, 0),
                 v_rows = panel_descriptor(shared + G::kValues + warpgroup * G::kToKeys, 0);
  const uint64_t k_down = panel_descriptor(shared + G::kKeys + warpgroup * G::kToQueryColumns, 0);
  const uint64_t q_rows = panel_descriptor(shared + G::kQueries, 0), o_rows = panel_descriptor(shared + G::kGradOut, 0);
  const int to_columns = warpgroup * G::kToColumns;  // panels
  const uint64_t q_down = panel_descriptor(shared + G::kQueries + to_columns * G::kQueryPanel, G::kQueryPanel),
                 o_down = panel_descriptor(shared + G::kGradOut + to_columns * G::kQueryPanel, G::kQueryPanel);
  const uint64_t s_down =
      panel_descriptor(shared + G::kWeights + (G::kSplitsColumns ? warpgroup * (G::kWeightBytes / 2) : 0), 0);
  const auto release = [&](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  const int block_key = first_key + (G::kSplitsColumns ? 0 : 64 * warpgroup);  // of the warpgroup
  const int my_key = block_key + row;                                          // and 8 on
  barrier_wait(barriers.keys(), 0);
  // Of keys that padding hides nothing is read but zeros, and nothing is left in their gradients.
  bool hidden[2] = {false, false}, any_hidden = false;
  if constexpr (kHasGradientOptions<Args>) {
    const simt::KeyMask mask = simt::key_mask_of(args.call.key_mask, sequence, 0);
    if (mask.data != nullptr) {
      const auto hides = [&](int key) { return key < block.keys && !simt::keeps_key(mask, key); };
      hidden[0] = hides(my_key);
      hidden[1] = hides(my_key + 8);
      any_hidden = simt::wave_ballot(hidden[0] || hidden[1]) != 0;
      if (thread < 64 && hides(block_key + thread)) {
        const uint32_t at = shared + warpgroup * G::kToKeys + to_columns * G::kKeyPanel + thread * 128;
        clear_row<G::kOwnPanels, G::kKeyPanel>(at + G::kKeys);
        clear_row<G::kOwnPanels, G::kKeyPanel>(at + G::kValues);
      }
      shared_stores_ready();
      named_wait<256>(1);
    }
  }
  if constexpr (G::kAhead) {
    static_assert(!kCap && !kHasGradientOptions<Args> && G::kPanels == 1, "what registers hold");
    // A tile's scores and the products of its grad_out and V are under way before grad_q and grad_k of the tile before:
    // its weights are computed beside these. What a tile adds to grad_q leaves a tile later, since the fence behind the
    // score gradients waits for all that this thread has sent to memory. The order of statements, and that both loops
    // stand here, is what the compiler makes fast code of: 832 us of 8 x 2048, and 930 where functions held the parts.
    const int tile_count = tiles.last - tiles.first + 1, all = max(tile_count, 0) * group;
    const auto sums_of = [&](int g) {
      return args.sums +
             ((static_cast<int64_t>(sequence) * args.q_heads + kv_head * group + g) * args.query_tiles +
              block.first_tile + tiles.first) *
                 G::kSums +
             warpgroup * (G::kSums / 2) + thread * 4;
    };
    float s[32], dp[32], dq[G::kQueryColumns / 2];
    uint32_t p16[16], ds16[16];
    RingPlace<G::kStages> q_ahead(barriers.queries(), 0), o_ahead(barriers.grad_out(), 0);
    const auto begin_tile = [&] {
      barrier_wait(q_ahead.full_barrier(), q_ahead.parity);
      pin(s);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WarpgroupProduct<T, 64>::multiply(s, operand_at(k_rows, k * 32),
                                          operand_at(q_rows, q_ahead.stage * G::kQueryBytes + k * 32), k != 0);
      products_commit();
      q_ahead.advance();
      barrier_wait(o_ahead.full_barrier(), o_ahead.parity);
      pin(dp);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WarpgroupProduct<T, 64>::multiply(dp, operand_at(v_rows, k * 32),
                                          operand_at(o_rows, o_ahead.stage * G::kQueryBytes + k * 32), k != 0);
      products_commit();
      o_ahead.advance();
    };
    const auto add_queries = [&](float* to) {
      pin(dq);
#pragma unroll
      for (int i = 0; i < G::kQueryColumns / 8; ++i) {
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + 512 * i), "f"(dq[4 * i]),
                     "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                     : "memory");
      }
    };
    float* to_before = nullptr;
    float* to = nullptr;  // of the tile whose score gradients were made last
    int g = 0, m = tiles.first;
    float* next_to = sums_of(0);
    const auto weigh = [&](int at) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 lse = load_pair(shared + G::kLse + q.stage * G::kTermBytes + 4 * (8 * j + column));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float &low = s[4 * j + 2 * h], &high = s[4 * j + 2 * h + 1];
          low = simt::exp2_fast(fmaf(low, args.scale_log2, -lse.x));
          high = simt::exp2_fast(fmaf(high, args.scale_log2, -lse.y));
        }
      }
      const int stand = 64 * at + block.diagonal;  // of the tile's first query
      if (!(block_key + 63 <= min(block.keys - 1, stand + args.window_right) &&
            block_key >= stand + 63 - args.window_left)) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int key = my_key + 8 * h;
          // Seen by the query of column c when key <= stand + c + right and key >= stand + c - left.
          const int least = key >= block.keys ? 1 << 20 : key - stand - args.window_right - column,
                    most = key - stand + args.window_left - column;
#pragma unroll
          for (int j = 0; j < 8; ++j) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              if (8 * j + e >= least && 8 * j + e <= most) continue;
              s[4 * j + 2 * h + e] = 0.0f;
            }
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) p16[i] = pack_pair<T>(s[2 * i], s[2 * i + 1]);
    };
    const auto add_value_gradients = [&] {
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WarpgroupProduct<T, G::kOwnColumns>::multiply_registers(
            grad_v, p16 + 4 * k, operand_at(o_down, o.stage * G::kQueryBytes + k * kStepBytes));
      products_commit();
    };
    int buffer = 0;
    const auto score_gradients = [&] {
      const uint32_t ds_at =
          shared + G::kWeights + buffer * G::kWeightBytes + (64 * warpgroup + row) * 128 + 2 * column;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 offset = load_pair(shared + G::kOffset + o.stage * G::kTermBytes + 4 * (8 * j + column));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          ds16[2 * j + h] = pack_pair<T>(s[4 * j + 2 * h] * (dp[4 * j + 2 * h] + offset.x),
                                         s[4 * j + 2 * h + 1] * (dp[4 * j + 2 * h + 1] + offset.y));
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(ds_at + h * 1024 + ((j ^ row % 8) << 4)), "r"(ds16[2 * j + h])
                       : "memory");
        }
      }
      shared_stores_ready();
    };
    const auto multiply_score_gradients = [&] {
      named_wait<256>(1);
      pin(dq);
      products_begin();
#pragma unroll
      for (int k = 0; k < G::kBlockKeys / 16; ++k)
        multiply_down<T>(dq, operand_at(s_down, buffer * G::kWeightBytes + k * kStepBytes),
                         operand_at(k_down, k * kStepBytes), k != 0);
      products_commit();
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        WarpgroupProduct<T, G::kOwnColumns>::multiply_registers(
            grad_k, ds16 + 4 * k, operand_at(q_down, q.stage * G::kQueryBytes + k * kStepBytes));
      products_commit();
      buffer ^= 1;
    };
    const auto next_tile = [&] {
      to = next_to;
      next_to += G::kSums;
      if (++m > tiles.last) {
        m = tiles.first;
        if (++g < group) next_to = sums_of(g);
      }
    };
    if (all > 0) {
      pin(dq);
      pin(grad_k);
      pin(grad_v);
      begin_tile();
      products_wait<1>();
      pin(s);
      weigh(m);
      add_value_gradients();
      products_wait<1>();
      pin(dp);
      score_gradients();
      next_tile();
      for (int t = 1; t < all; ++t) {
        begin_tile();
        if (t > 1) add_queries(to_before);
        to_before = to;
        multiply_score_gradients();
        // Done: all before s. Under way: dp, dq, grad_k.
        products_wait<3>();
        pin(s);
        pin(grad_v);
        release(o.empty_barrier());
        o.advance();
        const RingPlace<G::kStages> before = q;
        q.advance();
        weigh(m);
        add_value_gradients();
        products_wait<2>();
        pin(dp);
        products_wait<1>();
        pin(grad_k);
        release(before.empty_barrier());
        score_gradients();
        next_tile();
      }
      if (all > 1) add_queries(to_before);
      multiply_score_gradients();
      products_wait<1>();
      release(o.empty_barrier());
      add_queries(to);
      products_wait<0>();
      pin(grad_k);
      pin(grad_v);
    }
  } else {
    int buffer = 0;
    for (int g = 0; g < group; ++g) {
      const int head = kv_head * group + g;
      float* sums =
          args.sums +
          ((static_cast<int64_t>(sequence) * args.q_heads + head) * args.query_tiles + block.first_tile) * G::kSums +
          warpgroup * (G::kSums / 2) + thread * 4;
      for (int m = tiles.first; m <= tiles.last; ++m) {
        float s[32], dp[32];
        barrier_wait(q.full_barrier(), q.parity);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4 * G::kPanels; ++k)
          WarpgroupProduct<T, 64>::multiply(
              s, operand_at(k_rows, k / 4 * G::kKeyPanel + k % 4 * 32),
              operand_at(q_rows, q.stage * G::kQueryBytes + k / 4 * G::kQueryPanel + k % 4 * 32), k != 0);
        products_commit();
        barrier_wait(o.full_barrier(), o.parity);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4 * G::kPanels; ++k)
          WarpgroupProduct<T, 64>::multiply(
              dp, operand_at(v_rows, k / 4 * G::kKeyPanel + k % 4 * 32),
              operand_at(o_rows, o.stage * G::kQueryBytes + k / 4 * G::kQueryPanel + k % 4 * 32), k != 0);
        products_commit();
        products_wait<1>();
        pin(s);
        // Scores become weights; under a softcap, weights times its slope beside those of the product.
        uint32_t p16[16];
        if constexpr (kCap) bend(s, args.softcap_inner);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 lse = load_pair(shared + G::kLse + q.stage * G::kTermBytes + 4 * (8 * j + column));
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float &low = s[4 * j + 2 * h], &high = s[4 * j + 2 * h + 1];
            const float bent[2] = {low, high};
            low = simt::exp2_fast(fmaf(low, args.scale_log2, -lse.x));
            high = simt::exp2_fast(fmaf(high, args.scale_log2, -lse.y));
            if constexpr (kCap) {
              p16[2 * j + h] = pack_pair<T>(low, high);
              low *= fmaf(-bent[0], bent[0], 1.0f);
              high *= fmaf(-bent[1], bent[1], 1.0f);
            }
          }
        }
        const int stand = 64 * m + block.diagonal;  // of the tile's first query
        if (any_hidden || !(block_key + 63 <= min(block.keys - 1, stand + args.window_right) &&
                            block_key >= stand + 63 - args.window_left)) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int key = my_key + 8 * h;
            // Seen by the query of column c when key <= stand + c + right and key >= stand + c - left.
            const int least = hidden[h] || key >= block.keys ? 1 << 20 : key - stand - args.window_right - column,
                      most = key - stand + args.window_left - column;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                if (8 * j + e >= least && 8 * j + e <= most) continue;
                s[4 * j + 2 * h + e] = 0.0f;
                if constexpr (kCap) p16[2 * j + h] &= e == 0 ? 0xffff0000u : 0xffffu;
              }
            }
          }
        }
        if constexpr (!kCap) {
#pragma unroll
          for (int i = 0; i < 16; ++i) p16[i] = pack_pair<T>(s[2 * i], s[2 * i + 1]);
        }
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          WarpgroupProduct<T, G::kOwnColumns>::multiply_registers(
              grad_v, p16 + 4 * k, operand_at(o_down, o.stage * G::kQueryBytes + k * kStepBytes));
        products_commit();
        products_wait<1>();
        pin(dp);
        uint32_t ds16[16];
        const uint32_t ds_at =
            shared + G::kWeights + buffer * G::kWeightBytes + (64 * warpgroup + row) * 128 + 2 * column;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 offset = load_pair(shared + G::kOffset + o.stage * G::kTermBytes + 4 * (8 * j + column));
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            ds16[2 * j + h] = pack_pair<T>(s[4 * j + 2 * h] * (dp[4 * j + 2 * h] + offset.x),
                                           s[4 * j + 2 * h + 1] * (dp[4 * j + 2 * h + 1] + offset.y));
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(ds_at + h * 1024 + ((j ^ row % 8) << 4)), "r"(ds16[2 * j + h])
                         : "memory");
          }
        }
        shared_stores_ready();
        // Two buffers: when a warp stores into one again, all that read it have passed this barrier once more, and so
        // have read it.
        if (G::kSplitsColumns) {
          named_wait<128>(2 + warpgroup);
        } else {
          named_wait<256>(1);
        }
        float dq[G::kQueryColumns / 2];  // of 64 queries
        const auto multiply_queries = [&](int part) {
          products_begin();
#pragma unroll
          for (int k = 0; k < G::kBlockKeys / 16; ++k)
            multiply_down<T>(dq, operand_at(s_down, buffer * G::kWeightBytes + k * kStepBytes),
                             operand_at(k_down, part * G::kKeyPanel + k * kStepBytes), k != 0);
          products_commit();
        };
        float* to = sums + static_cast<int64_t>(m) * G::kSums;
        const auto add_queries = [&](int part) {
          pin(dq);
#pragma unroll
          for (int i = 0; i < G::kQueryColumns / 8; ++i) {
            asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + 4096 * part + 512 * i),
                         "f"(dq[4 * i]), "f"(dq[4 * i + 1]), "f"(dq[4 * i + 2]), "f"(dq[4 * i + 3])
                         : "memory");
          }
        };
        multiply_queries(0);
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          WarpgroupProduct<T, G::kOwnColumns>::multiply_registers(
              grad_k, ds16 + 4 * k, operand_at(q_down, q.stage * G::kQueryBytes + k * kStepBytes));
        products_commit();
        products_wait<1>();
        release(o.empty_barrier());
        o.advance();
        add_queries(0);
        if constexpr (G::kQueryParts > 1) {
          multiply_queries(1);
          products_wait<0>();
          add_queries(1);
        }
        products_wait<0>();
        release(q.empty_barrier());
        q.advance();
        buffer ^= 1;
      }
    }
    products_wait<0>();
    pin(grad_k);
    pin(grad_v);
  }
  named_wait<256>(1);  // nothing reads K and V any more
  const int out = warpgroup * G::kToKeys + to_columns * G::kKeyPanel;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (hidden[h]) {
#pragma unroll
      for (int j = 0; j < G::kOwnColumns / 8; ++j) grad_k[4 * j + 2 * h] = grad_k[4 * j + 2 * h + 1] = 0.0f;
#pragma unroll
      for (int j = 0; j < G::kOwnColumns / 8; ++j) grad_v[4 * j + 2 * h] = grad_v[4 * j + 2 * h + 1] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < G::kOwnColumns / 8; ++j) {
      const uint32_t to =
          shared + out + j / 8 * G::kKeyPanel + (row + 8 * h) * 128 + ((j % 8 ^ row % 8) << 4) + 2 * column;
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + G::kKeys),
                   "r"(pack_pair<T>(grad_k[4 * j + 2 * h] * args.scale, grad_k[4 * j + 2 * h + 1] * args.scale))
                   : "memory");
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + G::kValues),
                   "r"(pack_pair<T>(grad_v[4 * j + 2 * h], grad_v[4 * j + 2 * h + 1]))
                   : "memory");
    }
  }
  shared_stores_ready();
  named_wait<128>(2 + warpgroup);
  if (thread == 0) {
    if (block_key < block.keys) {
      if constexpr (kHasGradientOptions<Args>) {
        if (block.maps != nullptr) {
          read_sequence_map(block.maps + kMapGradK);
          read_sequence_map(block.maps + kMapGradV);
        }
      }
      const cuda::TensorMap& grad_k_map = map_of<Args>(block, args.grad_k, kMapGradK);
      const cuda::TensorMap& grad_v_map = map_of<Args>(block, args.grad_v, kMapGradV);
      for (int p = 0; p < G::kOwnPanels; ++p) {
        copy_panel_out(grad_k_map, 64 * (to_columns + p), kv_head, block_key, sequence,
                       shared + G::kKeys + out + p * G::kKeyPanel);
        copy_panel_out(grad_v_map, 64 * (to_columns + p), kv_head, block_key, sequence,
                       shared + G::kValues + out + p * G::kKeyPanel);
      }
    }
    commit_panels_out();
    wait_panels_read();
  }
}

}  // namespace rlk::cuda_kernels
