// A task of attention of few rows, such as the heads of one query that meets a cache, for every instruction set.
//
// Such a task waits for memory, or should. K and V are read once and where they lie, in the order of memory; the rows
// are broadcast, and keys (of scores) or D (of the output) lie in vector lanes. Every sum has the terms and the order
// of attention_task.cpp: which of the two takes a row changes no bit of it.
#include <algorithm>
#include <cmath>

#include "core/cpu/attention/attention_amx.hpp"
#include "core/cpu/attention/attention_task.hpp"
#include "core/cpu/simd/scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/attention/attention_few_task.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/attention/attention_keys-inl.hpp"
#include "core/cpu/simd/math-inl.hpp"
#include "core/cpu/simd/row_products-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

#if RLK_CPU_VECTOR_ARRAYS

template <typename T, int kRows>
class FewRowsKernel {
  using D = hn::ScalableTag<T>;
  using V = hn::VFromD<D>;
  static constexpr int64_t kWidth = round_up(kRows, kLanes<T>);       // of arrays with rows in lanes
  static constexpr int kVecs = std::min(4, 2 * kBroadcasts / kRows);  // of the output at a time

public:
  static size_t scratch_elements(const AttentionTask& task) {
    const int64_t padded = round_up(task.head_size, kLanes<T>);
    return static_cast<size_t>(kRows * (task.head_size + 2 * padded + kKeys) + 7 * kWidth + 2 * kKeys * padded);
  }

  FewRowsKernel(const AttentionTask& task, T* scratch)
      : task_(task), size_(task.head_size), padded_(round_up(size_, kLanes<T>)), keys_{&task, padded_} {
    const auto take = [&scratch](int64_t count) {
      T* const taken = scratch;
      scratch += count;
      return taken;
    };
    const auto take_filled = [&take](int64_t count, T value) {
      T* const taken = take(count);
      std::fill_n(taken, count, value);
      return taken;
    };
    keys_.k = take(kKeys * padded_), keys_.v = take(kKeys * padded_);
    scores_ = take(kRows * kKeys);
    max_ = take_filled(kWidth, 0), factor_ = take(kWidth), block_sum_ = take_filled(kWidth, 0);
    shift_ = take_filled(kWidth, std::numeric_limits<T>::lowest()), sum_ = take_filled(kWidth, 0);
    total_shift_ = take_filled(kWidth, std::numeric_limits<T>::lowest()), total_sum_ = take_filled(kWidth, 0);
    out_ = take_filled(kRows * padded_, 0), total_ = take_filled(kRows * padded_, 0);
    q_ = take_filled(kRows * size_, 0);
  }

  void run() {
    load_queries();
    const int64_t begin = first_chain(task_, task_.query_of(task_.begin));
    const int64_t end = task_.last_key(task_.query_of(task_.end - 1)) + 1;
    // A window may lie behind the last key.
    for (int64_t block = begin / kKeys * kKeys; begin < end && block < end; block += kKeys) {
      const int64_t from = std::max(block, begin), to = std::min(block + kKeys, end);
      if (block % kKeysPerSum == 0 && block > begin) close_sums();
      if (keys_.find_masked(from, to)) process(from, to - from);
    }
    if (any_closed_) close_sums();
    for (int64_t r = 0; r < task_.end - task_.begin; ++r) {
      store_row(task_, task_.begin + r, (any_closed_ ? total_ : out_) + r * padded_, shift_[r],
                (any_closed_ ? total_sum_ : sum_)[r]);
    }
  }

private:
  // Scaled for scores in base 2.
  void load_queries() {
    const T factor = static_cast<T>(task_.scale * 1.4426950408889634);
    for (int64_t row = task_.begin; row < task_.end; ++row) {
      widen(task_.q.row(row), task_.q.dtype, task_.q.d_stride, size_, keys_.k);
      for (int64_t i = 0; i < size_; ++i) q_[i * kRows + row - task_.begin] = keys_.k[i] * factor;
    }
  }

  // One block of keys: where it lies, if every row sees all of it and rows are whole vectors.
  void process(int64_t from, int64_t count) {
    const int64_t first_query = task_.query_of(task_.begin), last_query = task_.query_of(task_.end - 1);
    const bool all_visible =
        keys_.n_masked == 0 && from >= task_.first_key(last_query) && from + count - 1 <= task_.last_key(first_query);
    const AttentionRows &k_rows = task_.k.part_of(from), &v_rows = task_.v.part_of(from);
    const int64_t even_end = std::min(task_.k.even_end(from), task_.v.even_end(from));
    const bool is_whole = k_rows.d_stride == 1 && v_rows.d_stride == 1 && task_.k.piece == 0 && task_.v.piece == 0 &&
                          size_ % kChain == 0 && from + count <= even_end;
    bool is_done = false;
    if (all_visible && is_whole) {
      with_element(k_rows.dtype, [&](auto tag) HWY_ATTR {
        using E = decltype(tag);
        if constexpr (kWidens<T, E>) {
          const int64_t ahead = from + 2 * kKeys <= std::min(task_.k_length, even_end) ? kKeys : 0;
          const Tokens<E> k = {static_cast<const E*>(task_.k.row(from)), k_rows.token_stride};
          const Tokens<E> v = {static_cast<const E*>(task_.v.row(from)), v_rows.token_stride};
          process_as<E>(k, v, from, count, ahead, true);
          is_done = true;
        }
      });
    }
    if (is_done) return;
    keys_.load(from, from + count);
    process_as<T>({keys_.k, padded_}, {keys_.v, padded_}, from, count, 0, all_visible);
  }

  template <typename E>
  struct Tokens {
    const E* data;
    int64_t stride;
    const E* row(int64_t j) const { return data + j * stride; }
    // A row that is wanted later, in one go: it is often alone on its page.
    HWY_INLINE void prefetch(int64_t j, int64_t size) const {
      constexpr auto kLine = static_cast<int64_t>(64 / sizeof(E));
      for (int64_t line = 0; line < size; line += kLine) prefetch_far(row(j) + line);
    }
  };

  template <typename E>
  HWY_NOINLINE void process_as(Tokens<E> k, Tokens<E> v, int64_t from, int64_t count, int64_t ahead, bool all_visible) {
    score(k, v, count);
    if (task_.softcap > 0) cap();
    if (!all_visible) hide(from, count);
    for (int64_t r = 0; r < kRows; ++r) {
      std::fill(scores_ + r * kKeys + count, scores_ + (r + 1) * kKeys, -std::numeric_limits<T>::infinity());
    }
    softmax();
    if (!all_visible && has_special_values(d_, keys_.v, count * padded_)) return accumulate_visible(from, count);
    for (int64_t chain = 0; chain < count; chain += kChain) {
      const int64_t to = std::min(chain + kChain, count);
      int64_t i = 0;
      for (; i + kVecs * kLanes<T> <= padded_; i += kVecs * kLanes<T>) accumulate<kVecs>(v, k, chain, to, i, ahead);
      for (; i < padded_; i += kLanes<T>) accumulate<1>(v, k, chain, to, i, ahead);
    }
  }

  // Values are asked for while keys are worked on.
  template <typename E>
  HWY_INLINE void score(Tokens<E> k, Tokens<E> v, int64_t count) {
    for (int64_t j = 0; j < count; j += kLanes<T>) {
      for (int64_t t = 0; t < size_; t += kChain) {
        const int64_t steps = std::min(kChain, size_ - t);
        const E* rows[kLanes<T>];
        for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
          const int64_t key = std::min(j + lane, count - 1);
          rows[lane] = k.row(key) + t;
          if (lane * size_ >= t * kLanes<T> && lane * size_ < (t + kChain) * kLanes<T>) v.prefetch(key, size_);
        }
        row_chain<kRows>(static_cast<const T*>(q_ + t * kRows), static_cast<const E* const*>(rows), steps,
                         [&](int r, V sum) HWY_ATTR {
                           T* const score = scores_ + r * kKeys + j;
                           hn::StoreU(t == 0 ? sum : hn::Add(hn::LoadU(d_, score), sum), d_, score);
                         });
      }
    }
  }

  // The softcap of scores in base 2.
  HWY_NOINLINE void cap() {
    const T factor = static_cast<T>(2 / task_.softcap);
    const V top = hn::Set(d_, static_cast<T>(task_.softcap * 1.4426950408889634));
    for (int64_t i = 0; i < kRows * kKeys; i += kLanes<T>) {
      V slope;
      hn::StoreU(hn::Mul(tanh_scaled(d_, hn::LoadU(d_, scores_ + i), factor, slope), top), d_, scores_ + i);
    }
  }

  bool is_visible(int64_t r, int64_t key) const {
    const int64_t query = task_.query_of(std::min(task_.begin + r, task_.end - 1));
    return key >= task_.first_key(query) && key <= task_.last_key(query);
  }
  // Scores of keys that a row does not see become -inf.
  void hide(int64_t from, int64_t count) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < count; ++j) {
        const bool is_masked = keys_.n_masked > 0 && keys_.masked[j];
        if (is_masked || !is_visible(r, from + j)) scores_[r * kKeys + j] = -std::numeric_limits<T>::infinity();
      }
    }
  }

  // Scores become 2^(score - shift); sum and shift are brought up to date, factor is what the output must be scaled by.
  HWY_NOINLINE void softmax() {
    for (int64_t r = 0; r < kRows; ++r) {
      V max = hn::LoadU(d_, scores_ + r * kKeys);
      for (int64_t j = kLanes<T>; j < kKeys; j += kLanes<T>) max = hn::Max(max, hn::LoadU(d_, scores_ + r * kKeys + j));
      max_[r] = largest_lane(d_, max);
    }
    for (int64_t t = 0; t < kWidth; t += kLanes<T>) {
      const V old_shift = hn::LoadU(d_, shift_ + t);
      const V shift = hn::Max(old_shift, hn::Ceil(hn::LoadU(d_, max_ + t)));
      hn::StoreU(shift, d_, shift_ + t);
      hn::StoreU(exp2(d_, hn::Sub(old_shift, shift)), d_, factor_ + t);
    }
    for (int64_t r = 0; r < kRows; ++r) {
      T* const scores = scores_ + r * kKeys;
      const V shift = hn::Set(d_, shift_[r]);
      for (int64_t j = 0; j < kKeys; j += 4 * kLanes<T>) {
        const auto at = [&](int64_t k) HWY_ATTR { return scores + j + k * kLanes<T>; };
        const auto below_shift = [&](int64_t k) HWY_ATTR { return hn::Sub(hn::LoadU(d_, at(k)), shift); };
        V p0 = below_shift(0), p1 = below_shift(1), p2 = below_shift(2), p3 = below_shift(3);
        exp2_four<false>(d_, p0, p1, p2, p3);
        hn::StoreU(p0, d_, at(0)), hn::StoreU(p1, d_, at(1)), hn::StoreU(p2, d_, at(2)), hn::StoreU(p3, d_, at(3));
      }
      T chains[4] = {};  // key j belongs to chain j % 4
      for (int64_t j = 0; j < kKeys; j += 4) {
        for (int64_t c = 0; c < 4; ++c) chains[c] += scores[j + c];
      }
      block_sum_[r] = (chains[0] + chains[1]) + (chains[2] + chains[3]);
    }
    for (int64_t t = 0; t < kWidth; t += kLanes<T>) {
      const V factor = hn::LoadU(d_, factor_ + t), block_sum = hn::LoadU(d_, block_sum_ + t);
      hn::StoreU(hn::MulAdd(hn::LoadU(d_, sum_ + t), factor, block_sum), d_, sum_ + t);
    }
  }

  // The chain of keys [from, to) of a block joins numbers [i, i + kVecs * lanes) of the output. Later keys are asked
  // for.
  template <int kVecsNow, typename E>
  HWY_INLINE void accumulate(Tokens<E> v, Tokens<E> k, int64_t from, int64_t to, int64_t i, int64_t ahead) {
    V sums[kRows][kVecsNow];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int n = 0; n < kVecsNow; ++n) sums[r][n] = hn::Zero(d_);
    }
    const int64_t first_ahead = from + i * kChain / padded_,
                  end_ahead = from + (i + kVecsNow * kLanes<T>)*kChain / padded_;
    for (int64_t j = from; j < to; ++j) {
      if (j >= first_ahead && j < end_ahead) k.prefetch(j + ahead, size_);
      V values[kVecsNow];
#pragma GCC unroll 4
      for (int n = 0; n < kVecsNow; ++n) values[n] = load(d_, v.row(j) + i + n * kLanes<T>);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const V p = hn::Set(d_, scores_[r * kKeys + j]);
#pragma GCC unroll 4
        for (int n = 0; n < kVecsNow; ++n) sums[r][n] = hn::MulAdd(p, values[n], sums[r][n]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int n = 0; n < kVecsNow; ++n) join(sums[r][n], from, r, i + n * kLanes<T>);
    }
  }

  // The first chain of a block scales what was there.
  HWY_INLINE void join(V sum, int64_t from, int64_t r, int64_t i) {
    T* const out = out_ + r * padded_ + i;
    const V before = hn::LoadU(d_, out);
    hn::StoreU(from == 0 ? hn::MulAdd(before, hn::Set(d_, factor_[r]), sum) : hn::Add(before, sum), d_, out);
  }

  // The same where 0 times an infinity or NaN that a row does not see would be NaN.
  HWY_NOINLINE void accumulate_visible(int64_t from, int64_t count) {
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < padded_; i += kLanes<T>) {
        for (int64_t chain = 0; chain < count; chain += kChain) {
          V sum = hn::Zero(d_);
          for (int64_t j = chain; j < std::min(chain + kChain, count); ++j) {
            if (!is_visible(r, from + j)) continue;
            sum = hn::MulAdd(hn::Set(d_, scores_[r * kKeys + j]), hn::LoadU(d_, keys_.v + j * padded_ + i), sum);
          }
          join(sum, chain, r, i);
        }
      }
    }
  }

  // Sums so far join the total.
  void close_sums() {
    if (!any_closed_) std::copy_n(shift_, kWidth, total_shift_);
    for (int64_t t = 0; t < kWidth; t += kLanes<T>) {
      const V shift = hn::LoadU(d_, shift_ + t), factor = exp2(d_, hn::Sub(hn::LoadU(d_, total_shift_ + t), shift));
      hn::StoreU(factor, d_, factor_ + t);
      hn::StoreU(hn::MulAdd(hn::LoadU(d_, total_sum_ + t), factor, hn::LoadU(d_, sum_ + t)), d_, total_sum_ + t);
      hn::StoreU(hn::Zero(d_), d_, sum_ + t);
      hn::StoreU(shift, d_, total_shift_ + t);
    }
    for (int64_t r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d_, factor_[r]);
      for (int64_t i = r * padded_; i < (r + 1) * padded_; i += kLanes<T>) {
        hn::StoreU(hn::MulAdd(hn::LoadU(d_, total_ + i), factor, hn::LoadU(d_, out_ + i)), d_, total_ + i);
        hn::StoreU(hn::Zero(d_), d_, out_ + i);
      }
    }
    any_closed_ = true;
  }

  const AttentionTask& task_;
  const D d_{};
  const int64_t size_, padded_;
  KeyBlock<T> keys_;
  T* q_;                                  // [d][row]
  T* scores_;                             // [row][key]
  T *max_, *factor_, *block_sum_;         // [row] of the block
  T *out_, *shift_, *sum_;                // [row][d] and [row] of the running softmax, base 2
  T *total_, *total_shift_, *total_sum_;  // of closed sums
  bool any_closed_ = false;
};

template <typename T, int kRows>
HWY_NOINLINE bool run_few_as(const AttentionTask& task) {
  using Kernel = FewRowsKernel<T, kRows>;
  auto* scratch = static_cast<T*>(thread_scratch(Kernel::scratch_elements(task) * sizeof(T)));
  if (scratch == nullptr) return false;
  Kernel(task, scratch).run();
  return true;
}

template <typename T>
bool run_few(const AttentionTask& task) {
  const int64_t rows = task.end - task.begin;
  if (rows == 1) return run_few_as<T, 1>(task);
  if (rows == 2) return run_few_as<T, 2>(task);
  if (rows <= 4) return run_few_as<T, 4>(task);
  return run_few_as<T, kBroadcasts>(task);
}

bool few_task_for(const AttentionTask& task) {
  return task.in_f64 ? run_few<double>(task) : run_few<float>(task);
}
int64_t few_rows_here() {
  return kBroadcasts;
}

#else

bool few_task_for(const AttentionTask& /*task*/) {
  return false;
}
int64_t few_rows_here() {
  return 0;
}

#endif  // RLK_CPU_VECTOR_ARRAYS

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(few_task_for);
HWY_EXPORT(few_rows_here);

int64_t attention_few_rows() {
  return HWY_DYNAMIC_DISPATCH(few_rows_here)();
}
bool attention_few_task(const AttentionTask& task) {
  if (takes_amx(task)) return attention_task(task);
  return HWY_DYNAMIC_DISPATCH(few_task_for)(task);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
