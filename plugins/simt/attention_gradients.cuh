// The gradients of attention, without matrix units and without atomics: weights are computed again from lse, and each
// gradient has one owner that sums in one order.
//
// Kernels: the terms of each query; tiles of rows, past which the keys stream (grad_q); tiles of keys, past which the
// rows of their queries stream, of a prefix those of all its samples (grad_k, grad_v). A row is (query, head of the
// group). Tiles start at multiples of their size from the first row or key of a sample, or of the samples of a prefix,
// whose rows are cut into parts by their number: a gradient's bits depend on its sample (a prefix's on its group)
// alone. The last kernel adds a prefix' parts.
#pragma once

#include "attention_gradient_tile.cuh"

namespace rlk::simt {

// A wave per row (token, head).
template <class T>
__device__ __forceinline__ void attention_gradients_terms(const AttentionGradientArgs& args) {
  using A = Accumulator<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWave;
  const int64_t waves = kGradientThreads / kWave, of_sample = args.queries * args.q_heads;
  // Packed sequences lie behind each other like the queries of one sample.
  const int64_t rows = (args.packed != 0 ? 1 : args.batches * args.samples) * of_sample;
  for (int64_t row = blockIdx.x * waves + threadIdx.x / kWave; row < rows; row += gridDim.x * waves) {
    const int64_t sequence = row / of_sample, token = (row - sequence * of_sample) / args.q_heads;
    const int64_t batch = sequence / args.samples, sample = sequence - batch * args.samples;
    const int64_t head = row % args.q_heads;
    const T* const grad_out = sample_row<const T>(args.grad_out, batch, sample, token, head);
    const T* const out = sample_row<const T>(args.out, batch, sample, token, head);
    A delta = A(0);
    for (int d = lane; d < args.head_size; d += kWave) delta = fma(A(widen(grad_out[d])), A(widen(out[d])), delta);
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) delta += wave_xor(delta, lanes);
    if (lane != 0) continue;
    const A lse = *sample_row<const A>(args.lse, batch, sample, token, head);
    const A grad_lse =
        args.grad_lse.data != nullptr ? *sample_row<const A>(args.grad_lse, batch, sample, token, head) : A(0);
    const bool sees_nothing = lse == -A(INFINITY);
    static_cast<GradientTerms<A>*>(args.terms)[row] = {sees_nothing ? A(INFINITY) : lse,
                                                       sees_nothing ? A(0) : grad_lse - delta};
  }
}

// grad_q of a tile of rows.
template <class T>
__device__ __forceinline__ void attention_gradients_rows(const AttentionGradientArgs& args) {
  using A = Accumulator<T>;
  using Tile = GradientTile<T>;
  __shared__ GradientShared<T> shared;
  if (fill_nan_if_bad<T>(args, true)) return;
  const GradientWork work = find_gradient_work(args, args.first_block + blockIdx.x, Tile::kTile, Tile::kColumns, true);
  if (work.valid == 0) return;
  Tile tile(args, shared);
  shared.set_rows(args, work, work.first);
  const StreamedRange keys = streamed_keys(args, work, Tile::kTile);
  A total[Tile::kEach][2 * Tile::kEach] = {};
  const int here = Tile::count_of(work.queries * args.group - work.first);
  for (int64_t from = keys.first / Tile::kTile * Tile::kTile; from < keys.end; from += Tile::kTile) {
    __syncthreads();
    shared.set_keys(args, work, from);
    const typename Tile::Counts counts = {Tile::count_of(keys.end - from), here};
    A score[Tile::kEach][Tile::kEach] = {}, dp[Tile::kEach][Tile::kEach] = {};
    tile.add_products(shared.keys[0], shared.rows[0], counts, score);
    tile.add_products(shared.keys[1], shared.rows[1], counts, dp);
    tile.template weigh<false>(from, counts, score, dp);
    tile.set_weights(dp, counts);
    tile.add_weighted(shared.keys[0], counts, work.column, total);
  }
  tile.store(total, A(args.scale), work.column, [&](int at) { return row_gradient<T>(args, work, at); });
}

// grad_k and grad_v of a tile of keys, of a sample or of the prefix, or a part of their sums.
template <class T>
__device__ __forceinline__ void attention_gradients_keys(const AttentionGradientArgs& args) {
  using A = Accumulator<T>;
  using Tile = GradientTile<T>;
  __shared__ GradientShared<T> shared;
  if (fill_nan_if_bad<T>(args, false)) return;
  const GradientWork work = find_gradient_work(args, args.first_block + blockIdx.x, Tile::kTile, Tile::kColumns, false);
  if (work.valid == 0) return;
  Tile tile(args, shared);
  const int64_t first_key = first_key_of(args, work);
  const int here = Tile::count_of(keys_from(args, work));
  const StreamedRange rows = streamed_rows(args, work, first_key, first_key + here - 1);
  const StreamedRange part = streamed_part(args, work, rows, Tile::kTile);
  A total_k[Tile::kEach][2 * Tile::kEach] = {}, total_v[Tile::kEach][2 * Tile::kEach] = {};
  shared.set_keys(args, work, first_key);
  __syncthreads();
  for (int64_t from = part.first; from < part.end; from += Tile::kTile) {
    __syncthreads();
    shared.set_streamed_rows(args, work, rows, from);
    const typename Tile::Counts counts = {Tile::count_of(part.end - from), here};
    A score[Tile::kEach][Tile::kEach] = {}, dp[Tile::kEach][Tile::kEach] = {};
    tile.add_products(shared.rows[0], shared.keys[0], counts, score);
    tile.add_products(shared.rows[1], shared.keys[1], counts, dp);
    tile.template weigh<true>(first_key, counts, score, dp);
    tile.set_weights(score, counts);
    tile.add_weighted(shared.rows[1], counts, work.column, total_v);
    __syncthreads();
    tile.set_weights(dp, counts);
    tile.add_weighted(shared.rows[0], counts, work.column, total_k);
  }
  tile.clear_hidden(total_k);
  tile.clear_hidden(total_v);
  if (args.of_prefix != 0 && args.parts > 1) {
    tile.store(total_k, A(1), work.column, [&](int at) { return key_part<A>(args, work, false, at); });
    tile.store(total_v, A(1), work.column, [&](int at) { return key_part<A>(args, work, true, at); });
    return;
  }
  tile.store(total_k, A(args.scale), work.column,
             [&](int at) { return key_gradient<T>(args, work, args.grad_k, args.grad_prefix_k, at); });
  tile.store(total_v, A(1), work.column,
             [&](int at) { return key_gradient<T>(args, work, args.grad_v, args.grad_prefix_v, at); });
}

// grad_prefix_k and grad_prefix_v of the parts' sums: a thread per number of either.
template <class T>
__device__ __forceinline__ void attention_gradients_prefix(const AttentionGradientArgs& args) {
  using A = Accumulator<T>;
  const int64_t of_list = args.prefix_keys * args.head_size, numbers = args.batches * args.kv_heads * 2 * of_list;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kGradientThreads + threadIdx.x; i < numbers;
       i += static_cast<int64_t>(gridDim.x) * kGradientThreads) {
    const int64_t list = i / of_list, at = i - list * of_list, head = list / 2;
    const bool of_values = list % 2 != 0;
    const A* const from = static_cast<const A*>(args.part_sums) + (head * args.parts * 2 + list % 2) * of_list + at;
    A sum = from[0];
    for (int64_t part = 1; part < args.parts; ++part) sum += from[part * 2 * of_list];
    const int64_t batch = head / args.kv_heads, key = at / args.head_size;
    const SampleTensor& to = of_values ? args.grad_prefix_v : args.grad_prefix_k;
    sample_row<T>(to, batch, 0, key, head - batch * args.kv_heads)[at - key * args.head_size] =
        Narrow<T>::of(of_values ? sum : A(sum * A(args.scale)));
  }
}

}  // namespace rlk::simt
