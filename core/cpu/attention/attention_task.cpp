// A task of attention with an online softmax over blocks of keys, for every instruction set.
//
// Rows (query, head of the group) lie in vector lanes: Q is kept transposed [d][row], scores [key][row], the output
// [d][row]. Both products then are the same outer product of a register tile, kBroadcasts scalars broadcast times
// kVecs vectors, and the softmax works lane by lane. K and V come through a block in L1 or L2 as compute type, whatever
// their dtype and strides.
//
// Scores are in base 2. The running maximum is rounded up to an integer, so that rescaling multiplies by a power of
// two, which is exact: blocks that a row does not see change no bit of it, and neither does the company in its tile.
//
// Where there is a tile unit (attention_amx.hpp), both products of bf16 are its own, the rest is the same; of few rows
// the second is made by vectors, with the unit's bits.
#include "core/cpu/attention/attention_task.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "core/cpu/simd/scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/attention/attention_task.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/attention/attention_amx-inl.hpp"
#include "core/cpu/attention/attention_keys-inl.hpp"
#include "core/cpu/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// The rows of one task, or of several that share their first keys, in tiles of up to kMaxVecs vectors that share each
// block of K and V. All in the thread's scratch.
template <typename T>
class TaskKernel {
  using D = hn::ScalableTag<T>;
  using V = hn::VFromD<D>;

  struct Tile {
    const AttentionTask* task;
    int64_t begin, end;                  // rows of the group
    int64_t width;                       // lanes: a multiple of the vector's, at least end - begin
    T *q, *out;                          // [d][row]; packed (attention_amx.hpp) where the tile unit takes q
    T *shift, *sum;                      // [row] of the running softmax, base 2
    T *total, *total_shift, *total_sum;  // of closed sums, as out, shift and sum
    bool any_closed;
  };

public:
  static int64_t lanes() { return static_cast<int64_t>(hn::Lanes(D())); }
  static int64_t most_lanes() { return kMaxVecs * lanes(); }

  static size_t scratch_elements(std::span<const AttentionTask> tasks) {
    const bool by_amx = is_for_amx(tasks[0]);
    const int64_t size = tasks[0].head_size, padded = round_up(size, kBroadcasts), depth = amx_depth(size);
    const int64_t most = by_amx ? kAmxTileRows : most_lanes();
    int64_t tiles = 0;
    for (const AttentionTask& task : tasks) tiles += (task.end - task.begin + most - 1) / most;
    const int64_t of_tile = most * ((by_amx ? depth / 2 : size) + 2 * padded + 4) + 7 * kAligned;
    const int64_t of_amx = by_amx ? 3 * kAmxKeys * depth / 2 + kAmxTileRows / kAmxRows * kAmxWeights / 2 : 0;
    return static_cast<size_t>(tiles * of_tile + most * (kKeys + kBroadcasts + 3) + 2 * (kKeys + kBroadcasts) * padded +
                               of_amx + 10 * kAligned);
  }

  TaskKernel(std::span<const AttentionTask> tasks, T* scratch)
      : tasks_(tasks),
        by_amx_(is_for_amx(tasks[0])),
        size_(tasks[0].head_size),
        padded_(round_up(size_, kBroadcasts)),
        most_(by_amx_ ? kAmxTileRows : most_lanes()),
        keys_{tasks.data(), padded_},
        free_(scratch) {
    scores_ = take(most_ * (kKeys + kBroadcasts));
    factor_ = take(most_);
    first_ = take(most_);
    last_ = take(most_);
    keys_.k = take((kKeys + kBroadcasts) * padded_);
    keys_.v = take((kKeys + kBroadcasts) * padded_);
    if (!by_amx_) return;
    const int64_t depth = amx_depth(size_);
    block_.k_room = take_bf16(kAmxKeys * depth);
    block_.v_room = take_bf16(kAmxKeys * depth);
    block_.columns = take_bf16(kAmxKeys * depth);
    weights_ = take_bf16(kAmxTileRows / kAmxRows * kAmxWeights);
  }

  // The first `shared` keys are those of every task; of them whole blocks are read for all tasks together.
  void run(int64_t shared) {
    for (const AttentionTask& task : tasks_) {
      for (int64_t row = task.begin; row < task.end; row += most_) {
        add_tile(task, row, std::min(row + most_, task.end));
      }
    }
    const std::span<Tile> all(tiles_, static_cast<size_t>(n_tiles_));
    const int64_t apart = shared / kKeys * kKeys;
    int64_t begin = apart, end = 0;
    for (const AttentionTask& task : tasks_) {
      begin = std::min(begin, begin_of(task));
      end = std::max(end, std::min(apart, end_of(task)));
    }
    keys_.task = tasks_.data();
    run_blocks(all, begin, end);
    for (size_t tile = 0; tile < all.size();) {
      const AttentionTask& task = *all[tile].task;
      size_t count = 1;
      while (tile + count < all.size() && all[tile + count].task == &task) ++count;
      keys_.task = &task;
      run_blocks(all.subspan(tile, count), std::max(begin_of(task), apart), end_of(task));
      tile += count;
    }
    for (Tile& tile : all) {
      if (tile.any_closed) close_sums(tile);
      store_outputs(tile);
    }
  }

private:
  static constexpr int64_t kAligned = 64 / static_cast<int64_t>(sizeof(T));  // whole lines

  static bool is_for_amx(const AttentionTask& task) { return std::is_same_v<T, float> && takes_amx(task); }

  // The keys that any row of the task sees, from the begin of a chain on.
  static int64_t begin_of(const AttentionTask& task) { return first_chain(task, task.query_of(task.begin)); }
  static int64_t end_of(const AttentionTask& task) { return task.last_key(task.query_of(task.end - 1)) + 1; }

  // Keys [begin, end) of the sequence that keys_ belongs to.
  void run_blocks(std::span<Tile> tiles, int64_t begin, int64_t end) {
    // A window may lie behind the last key.
    for (int64_t block = begin / kKeys * kKeys; begin < end && block < end; block += kKeys) {
      const int64_t from = std::max(block, begin), to = std::min(block + kKeys, end);
      for (Tile& tile : tiles) {
        if (block % kKeysPerSum == 0 && block > begin_of(*tile.task)) close_sums(tile);
      }
      if (!keys_.find_masked(from, to)) continue;
      if (by_amx_) {
        block_.load(*keys_.task, {block, from, to, end}, keys_.n_masked > 0 ? keys_.masked : nullptr,
                    tiles.size() == 1 ? tiles[0].end - tiles[0].begin : kAmxTileRows);
      } else {
        keys_.load(from, to);
      }
      for (const Tile& tile : tiles) process(tile, from, to);
    }
  }

  T* take(int64_t count) {
    T* const taken = free_;
    free_ += round_up(count, kAligned);
    return taken;
  }
  uint16_t* take_bf16(int64_t count) {
    return reinterpret_cast<uint16_t*>(take(count * 2 / static_cast<int64_t>(sizeof(T))));
  }
  void add_tile(const AttentionTask& task, int64_t begin, int64_t end) {
    const int64_t width = round_up(end - begin, by_amx_ ? kAmxRows : lanes());
    Tile& tile = tiles_[n_tiles_++];
    tile = {&task,
            begin,
            end,
            width,
            take((by_amx_ ? amx_depth(size_) / 2 : size_) * width),
            take(padded_ * width),
            take(width),
            take(width),
            take(padded_ * width),
            take(width),
            take(width),
            false};
    std::fill(tile.out, tile.out + padded_ * width, T{0});
    std::fill(tile.sum, tile.sum + width, T{0});
    std::fill(tile.shift, tile.shift + width, std::numeric_limits<T>::lowest());
    if (by_amx_) {
      return pack_queries(task, begin, end, width, block_.k_room, reinterpret_cast<uint16_t*>(tile.q));
    }
    load_queries(tile);
    const V factor = hn::Set(d_, static_cast<T>(task.scale * 1.4426950408889634));  // scores in base 2
    for (int64_t i = 0; i < size_ * width; i += lanes()) {
      hn::StoreU(hn::Mul(hn::LoadU(d_, tile.q + i), factor), d_, tile.q + i);
    }
  }

  // Lanes without a row are 0.
  void load_queries(const Tile& tile) {
    const AttentionRows& q = tile.task->q;
#if RLK_CPU_VECTOR_ARRAYS
    const bool done = q.d_stride == 1 && with_vectors_of<T>(q.dtype, [&](auto tag) HWY_ATTR {
                        using E = decltype(tag);
                        const auto row_at = [&](int64_t t) { return static_cast<const E*>(q.row(tile.begin + t)); };
                        transpose_rows<T, E>(row_at, tile.end - tile.begin, size_, tile.q, tile.width);
                      });
    if (done) return;
#endif
    for (int64_t t = 0; t < tile.width; ++t) {
      std::fill(keys_.v, keys_.v + size_, T{0});
      if (tile.begin + t < tile.end) widen(q.row(tile.begin + t), q.dtype, q.d_stride, size_, keys_.v);
      for (int64_t i = 0; i < size_; ++i) tile.q[i * tile.width + t] = keys_.v[i];
    }
  }

  // One tile and the keys [from, to) of one block.
  void process(const Tile& tile, int64_t from, int64_t to) {
    const AttentionTask& task = *tile.task;
    const int64_t first_query = task.query_of(tile.begin), last_query = task.query_of(tile.end - 1);
    const int64_t begin = std::max(from, first_chain(task, first_query)),
                  end = std::min(to, task.last_key(last_query) + 1);
    if (begin >= end) return;
    if constexpr (std::is_same_v<T, float>) {
      if (by_amx_) return process_block(tile, from / kKeys * kKeys);
    }
    const bool all_visible =
        keys_.n_masked == 0 && begin >= task.first_key(last_query) && end - 1 <= task.last_key(first_query);
    const bool* masked = keys_.masked + (begin - from);
    const T* k = keys_.k + (begin - from) * padded_;
    const T* v = keys_.v + (begin - from) * padded_;
    const int64_t vecs = tile.width / lanes();
    if (vecs == 1) return process_as<1>(tile, k, v, masked, begin, end - begin, all_visible);
#if RLK_CPU_VECTOR_ARRAYS
    if (vecs == 2) return process_as<2>(tile, k, v, masked, begin, end - begin, all_visible);
    process_as<3>(tile, k, v, masked, begin, end - begin, all_visible);
#endif
  }

  template <int kVecs>
  HWY_NOINLINE void process_as(const Tile& tile, const T* k, const T* v, const bool* masked, int64_t begin,
                               int64_t count, bool all_visible) {
    const int64_t width = tile.width;
    // Past count there are left-overs of another block: never looked at.
    for (int64_t j = 0; j < count; j += kBroadcasts) {
      outer_product<kVecs>(d_, k + j * padded_, padded_, 1, tile.q, size_, scores_ + j * width, factor_, Into::nothing);
    }
    if (tile.task->softcap > 0) cap(tile, count);
    if (!all_visible) hide(tile, keys_.n_masked > 0 ? masked : nullptr, begin, count);
    softmax(tile, count);
    if (!all_visible && has_special_values(d_, v, count * padded_)) return accumulate_visible(tile, v, count);
    for (int64_t i = 0; i < size_; i += kBroadcasts) {
      outer_product<kVecs>(d_, v + i, 1, padded_, scores_, count, tile.out + i * width, factor_, Into::scaled);
    }
  }

  // The whole block by the tile unit, from the key `block` on: keys that no query sees have weight 0.
  HWY_NOINLINE void process_block(const Tile& tile, int64_t block) {
    static_assert(kKeys == kAmxKeys);
    const AttentionTask& task = *tile.task;
    const int64_t first_query = task.query_of(tile.begin), last_query = task.query_of(tile.end - 1);
    const bool all_visible = keys_.n_masked == 0 && !block_.has_special && block >= task.first_key(last_query) &&
                             block + kKeys - 1 <= task.last_key(first_query);
    amx_scores(block_.k, amx_depth(size_), reinterpret_cast<const uint16_t*>(tile.q), tile.width, scores_);
    const V factor = hn::Set(d_, static_cast<T>(task.scale * 1.4426950408889634));  // scores in base 2
    for (int64_t i = 0; i < kKeys * tile.width; i += lanes()) {
      hn::StoreU(hn::Mul(hn::LoadU(d_, scores_ + i), factor), d_, scores_ + i);
    }
    if (task.softcap > 0) cap(tile, kKeys);
    if (!all_visible) hide(tile, block_.masked, block, kKeys);
    softmax(tile, kKeys);
    if (!block_.has_columns) {
      return add_few_values(block_.v, amx_depth(size_), size_, scores_, tile.width, tile.end - tile.begin, factor_,
                            reinterpret_cast<float*>(block_.columns), tile.out);
    }
    pack_weights(d_, scores_, tile.width, weights_);
    amx_values(block_.columns, size_, weights_, tile.width, factor_, tile.out);
    if (block_.has_special) add_special(tile);
  }

  // The infinities and NaN of V, for the queries that see them.
  HWY_NOINLINE void add_special(const Tile& tile) {
    for (int64_t j = 0; j < kKeys; ++j) {
      for (int64_t i = 0; i < size_; ++i) {
        const uint16_t number = block_.v.data[j * block_.v.stride + i];
        if ((number & kAmxSpecial) != kAmxSpecial) continue;
        const V value = hn::Set(d_, std::bit_cast<float>(static_cast<uint32_t>(number) << 16));
        for (int64_t t = 0; t < tile.width; t += lanes()) {
          T* const out = tile.out + i * tile.width + t;
          const V before = hn::LoadU(d_, out), p = hn::LoadU(d_, scores_ + j * tile.width + t);
          hn::StoreU(hn::IfThenElse(visible(j, t), hn::MulAdd(p, value, before), before), d_, out);
        }
      }
    }
  }

  // The softcap of scores in base 2.
  HWY_NOINLINE void cap(const Tile& tile, int64_t count) {
    const T factor = static_cast<T>(2 / tile.task->softcap);
    const V top = hn::Set(d_, static_cast<T>(tile.task->softcap * 1.4426950408889634));
    for (int64_t i = 0; i < count * tile.width; i += lanes()) {
      V slope;
      hn::StoreU(hn::Mul(tanh_scaled(d_, hn::LoadU(d_, scores_ + i), factor, slope), top), d_, scores_ + i);
    }
  }

  // Scores of keys that a row does not see become -inf. Leaves each row's visible range, relative to `from`. masked may
  // be null.
  void hide(const Tile& tile, const bool* masked, int64_t from, int64_t count) {
    const AttentionTask& task = *tile.task;
    for (int64_t t = 0; t < tile.width; ++t) {
      const int64_t query = task.query_of(std::min(tile.begin + t, tile.end - 1));
      first_[t] = static_cast<T>(std::min(task.first_key(query) - from, kKeys));
      last_[t] = static_cast<T>(std::max(task.last_key(query) - from, int64_t{-1}));
    }
    const V minus_inf = hn::Set(d_, -std::numeric_limits<T>::infinity());
    for (int64_t j = 0; j < count; ++j) {
      if (masked != nullptr && masked[j]) {
        std::fill_n(scores_ + j * tile.width, tile.width, -std::numeric_limits<T>::infinity());
        continue;
      }
      for (int64_t t = 0; t < tile.width; t += lanes()) {
        T* score = scores_ + j * tile.width + t;
        hn::StoreU(hn::IfThenElse(visible(j, t), hn::LoadU(d_, score), minus_inf), d_, score);
      }
    }
  }
  HWY_INLINE auto visible(int64_t j, int64_t t) const {
    const V key = hn::Set(d_, static_cast<T>(j));
    return hn::And(hn::Ge(key, hn::LoadU(d_, first_ + t)), hn::Le(key, hn::LoadU(d_, last_ + t)));
  }

  // Scores become 2^(score - shift); sum and shift are brought up to date, factor is what the output must be scaled by.
  void softmax(const Tile& tile, int64_t count) {
    for (int64_t t = 0; t < tile.width; t += lanes()) {
      T* const scores = scores_ + t;
      V max = hn::LoadU(d_, scores);
      for (int64_t j = 1; j < count; ++j) max = hn::Max(max, hn::LoadU(d_, scores + j * tile.width));
      const V old_shift = hn::LoadU(d_, tile.shift + t);
      const V shift = hn::Max(old_shift, hn::Ceil(max));
      const V factor = exp2(d_, hn::Sub(old_shift, shift));
      V sum0 = hn::Zero(d_), sum1 = sum0, sum2 = sum0, sum3 = sum0;
      int64_t j = 0;
      const auto row = [&](int64_t k) HWY_ATTR { return scores + (j + k) * tile.width; };
      const auto below_shift = [&](int64_t k) HWY_ATTR { return hn::Sub(hn::LoadU(d_, row(k)), shift); };
      for (; j + 4 <= count; j += 4) {
        V p0 = below_shift(0), p1 = below_shift(1), p2 = below_shift(2), p3 = below_shift(3);
        exp2_four<false>(d_, p0, p1, p2, p3);
        hn::StoreU(p0, d_, row(0)), hn::StoreU(p1, d_, row(1));
        hn::StoreU(p2, d_, row(2)), hn::StoreU(p3, d_, row(3));
        sum0 = hn::Add(sum0, p0), sum1 = hn::Add(sum1, p1), sum2 = hn::Add(sum2, p2), sum3 = hn::Add(sum3, p3);
      }
      for (; j < count; ++j) {  // key j belongs to chain j % 4, so that unseen keys change nothing
        const V p = exp2(d_, below_shift(0));
        hn::StoreU(p, d_, row(0));
        V& sum = j % 4 == 0 ? sum0 : j % 4 == 1 ? sum1 : sum2;
        sum = hn::Add(sum, p);
      }
      const V sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
      hn::StoreU(shift, d_, tile.shift + t);
      hn::StoreU(factor, d_, factor_ + t);
      hn::StoreU(hn::MulAdd(hn::LoadU(d_, tile.sum + t), factor, sum), d_, tile.sum + t);
    }
  }

  void accumulate_visible(const Tile& tile, const T* v, int64_t count) {
    for (int64_t i = 0; i < size_; ++i) {
      for (int64_t t = 0; t < tile.width; t += lanes()) {
        for (int64_t chunk = 0; chunk < count; chunk += kChain) {
          V sum = hn::Zero(d_);
          for (int64_t j = chunk; j < std::min(chunk + kChain, count); ++j) {
            const V p = hn::LoadU(d_, scores_ + j * tile.width + t);
            sum = hn::IfThenElse(visible(j, t), hn::MulAdd(hn::Set(d_, v[j * padded_ + i]), p, sum), sum);
          }
          put(d_, sum, chunk == 0 ? Into::scaled : Into::sum, factor_ + t, tile.out + i * tile.width + t);
        }
      }
    }
  }

  // Sums so far join the total. Many keys of equal weight then do not all round the same way: chains stay short.
  void close_sums(Tile& tile) {
    if (!tile.any_closed) {
      std::fill_n(tile.total, padded_ * tile.width, T{0});
      std::fill_n(tile.total_sum, tile.width, T{0});
      std::copy_n(tile.shift, tile.width, tile.total_shift);
    }
    for (int64_t t = 0; t < tile.width; t += lanes()) {
      const V shift = hn::LoadU(d_, tile.shift + t);
      const V factor = exp2(d_, hn::Sub(hn::LoadU(d_, tile.total_shift + t), shift));
      const auto join = [&](T* total, T* sum) HWY_ATTR {
        hn::StoreU(hn::MulAdd(hn::LoadU(d_, total), factor, hn::LoadU(d_, sum)), d_, total);
        hn::StoreU(hn::Zero(d_), d_, sum);
      };
      join(tile.total_sum + t, tile.sum + t);
      for (int64_t i = 0; i < size_; ++i) join(tile.total + i * tile.width + t, tile.out + i * tile.width + t);
      hn::StoreU(shift, d_, tile.total_shift + t);
    }
    tile.any_closed = true;
  }

  void store_outputs(const Tile& tile) {
    const T* const sums = tile.any_closed ? tile.total_sum : tile.sum;
    const T* const out = tile.any_closed ? tile.total : tile.out;
    // As many rows at a time as a vector has lanes: keys_.v, room for a block of keys, has more than that.
    const int64_t stride = round_up(size_, lanes()), rows = tile.end - tile.begin;
    for (int64_t t = 0; t < rows; t += lanes()) {
      transpose_rows<T, T>([&](int64_t i) { return out + i * tile.width + t; }, size_, lanes(), keys_.v, stride);
      for (int64_t row = t; row < std::min(rows, t + lanes()); ++row) {
        store_row(*tile.task, tile.begin + row, keys_.v + (row - t) * stride, tile.shift[row], sums[row]);
      }
    }
  }

  const std::span<const AttentionTask> tasks_;
  const D d_{};
  const bool by_amx_;
  const int64_t size_, padded_, most_;  // rows of a tile
  KeyBlock<T> keys_;
  AmxBlock block_;
  T* free_;  // of the scratch
  Tile tiles_[kMaxAttentionTiles];
  int n_tiles_ = 0;
  T* scores_;                    // [key][row] of the tile at hand
  T* factor_;                    // [row] what the block scales the output by
  T *first_, *last_;             // [row] visible range in the block
  uint16_t* weights_ = nullptr;  // by_amx: of the block, packed
};

template <typename T>
HWY_NOINLINE bool run_tasks(std::span<const AttentionTask> tasks, int64_t shared) {
  using Kernel = TaskKernel<T>;
  auto* scratch = static_cast<T*>(thread_scratch(Kernel::scratch_elements(tasks) * sizeof(T)));
  if (scratch == nullptr) return false;
  Kernel(tasks, scratch).run(shared);
  return true;
}

bool tasks_for(std::span<const AttentionTask> tasks, int64_t shared) {
  return tasks[0].in_f64 ? run_tasks<double>(tasks, shared) : run_tasks<float>(tasks, shared);
}

int64_t tile_rows(bool in_f64) {
  return in_f64 ? TaskKernel<double>::most_lanes() : TaskKernel<float>::most_lanes();
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(tasks_for);
HWY_EXPORT(tile_rows);

int64_t attention_tile_rows(bool in_f64) {
  return HWY_DYNAMIC_DISPATCH(tile_rows)(in_f64);
}
bool attention_task(const AttentionTask& task) {
  return attention_shared_task({&task, 1}, 0);
}
bool attention_shared_task(std::span<const AttentionTask> tasks, int64_t shared) {
  return HWY_DYNAMIC_DISPATCH(tasks_for)(tasks, shared);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
