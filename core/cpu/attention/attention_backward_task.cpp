// A tile of the backward of attention, for every instruction set.
//
// The rows of a tile, queries or keys, lie in vector lanes; the rows of the other side stream past in blocks. With q
// and grad_out on one side, k and v on the other, both cases are the same four outer products:
//     scores = streamed[0] lanes[0], dp = streamed[1] lanes[1], gradient += streamed[0]^T ds (and streamed[1]^T p)
// so that a task writes the gradients of its own rows alone: no atomics, one order of summation.
//
// Sums over the streamed side are made of chains of kChain terms, of kBlocksPerSum blocks, and of those.
#include "core/cpu/attention/attention_backward_task.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/attention/attention_backward_task.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/attention/attention_tile-inl.hpp"
#include "core/cpu/simd/convert-inl.hpp"
#include "core/cpu/simd/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kBlock = 64;  // streamed rows; blocks are aligned in the sequence
constexpr int64_t kBlocksPerSum = 16;

template <typename T>
class BackwardTile {
  using D = hn::ScalableTag<T>;
  using V = hn::VFromD<D>;

public:
  static int64_t lanes() { return static_cast<int64_t>(hn::Lanes(D())); }
  static int64_t most_lanes() { return kMaxVecs * lanes(); }

  static size_t scratch_elements(const AttentionBackwardTask& task) {
    const int64_t padded = round_up(task.head_size, kBroadcasts);
    return static_cast<size_t>(most_lanes() * (2 * task.head_size + 4 * padded + 2 * (kBlock + kBroadcasts) + 4) +
                               2 * (kBlock + kBroadcasts) * padded + 2 * kBlock);
  }

  BackwardTile(const AttentionBackwardTask& task, T* scratch)
      : task_(task),
        size_(task.head_size),
        padded_(round_up(size_, kBroadcasts)),
        vecs_(task.end - task.begin <= lanes() ? 1 : kMaxVecs),
        width_(vecs_ * lanes()),
        free_(scratch) {
    for (int side = 0; side < 2; ++side) {
      lanes_[side] = take(size_ * width_);
      sums_[side] = take(padded_ * width_);
      totals_[side] = take(padded_ * width_);
      weights_[side] = take((kBlock + kBroadcasts) * width_);
      streamed_[side] = take((kBlock + kBroadcasts) * padded_);
    }
    first_ = take(width_), last_ = take(width_);
    lane_lse_ = take(width_), lane_offset_ = take(width_);
    row_lse_ = take(kBlock), row_offset_ = take(kBlock);
  }

  void run() {
    // Scores come without what the scale is beside a power of two: weigh() multiplies after it has subtracted.
    load_lanes(task_.of_keys ? task_.k.rows : task_.q, static_cast<T>(std::ldexp(1.0, std::ilogb(task_.scale))),
               lanes_[0]);
    load_lanes(task_.of_keys ? task_.v.rows : task_.grad_out, T{1}, lanes_[1]);
    if (!task_.of_keys) load_lane_terms();
    for (int side = 0; side < 2; ++side) {
      std::fill_n(sums_[side], padded_ * width_, T{0});
      std::fill_n(totals_[side], padded_ * width_, T{0});
    }
    const int64_t group = task_.q.group;
    int64_t begin = 0, end = 0;  // streamed rows that any lane sees
    if (task_.of_keys) {
      begin = std::max<int64_t>(0, task_.begin - task_.last_visible) * group;
      end = (std::min(task_.q_length - 1, task_.end - 1 - task_.first_visible) + 1) * group;
    } else {
      begin = std::max<int64_t>(0, task_.begin / group + task_.first_visible);
      end = std::min(task_.k_length - 1, (task_.end - 1) / group + task_.last_visible) + 1;
    }
    int64_t n_blocks = 0;
    for (sample_ = 0; sample_ < task_.samples; ++sample_) {
      for (int64_t block = begin / kBlock * kBlock; begin < end && block < end; block += kBlock) {
        if (!load_streamed(block, std::min(block + kBlock, end))) continue;
        if (vecs_ == 1) {
          process<1>(block, std::min(kBlock, end - block));
        } else {
          process<kMaxVecs>(block, std::min(kBlock, end - block));
        }
        if (++n_blocks % kBlocksPerSum == 0) close_sums();
      }
    }
    close_sums();
    if (task_.of_keys) {
      store(task_.grad_k, task_.scale, totals_[0]);
      store(task_.grad_v, 1.0, totals_[1]);
    } else {
      store(task_.grad_q, task_.scale, totals_[0]);
    }
  }

private:
  T* take(int64_t count) {
    T* const taken = free_;
    free_ += count;
    return taken;
  }
  bool is_masked(int64_t key) const { return !task_.key_mask.keeps(key); }
  const T* term(const void* terms, int64_t r) const {
    return static_cast<const T*>(terms) + sample_ * task_.terms_sample + r / task_.q.group * task_.terms_stride +
           r % task_.q.group;
  }

  // The tile's rows [d][lane], times a factor. Lanes without a row, and of masked keys, are 0.
  void load_lanes(const AttentionRows& rows, T factor, T* to) {
    T* const row = streamed_[0];
    for (int64_t t = 0; t < width_; ++t) {
      const int64_t r = task_.begin + t;
      std::fill_n(row, size_, T{0});
      if (r < task_.end && !(task_.of_keys && is_masked(r))) {
        widen(rows.row(r), rows.dtype, rows.d_stride, size_, row);
      }
      for (int64_t i = 0; i < size_; ++i) to[i * width_ + t] = row[i] * factor;
    }
  }
  void load_lane_terms() {
    for (int64_t t = 0; t < width_; ++t) {
      const int64_t r = task_.begin + t;
      lane_lse_[t] = r < task_.end ? *term(task_.terms.lse, r) : std::numeric_limits<T>::infinity();
      lane_offset_[t] = r < task_.end ? *term(task_.terms.offset, r) : T{0};
    }
  }

  // Rows [from, to) of the streamed side. Nothing is read of masked keys, they are 0 here. False when all are masked.
  bool load_streamed(int64_t from, int64_t to) {
    n_masked_ = 0;
    for (int64_t r = from; r < to; ++r) {
      if (task_.of_keys) {
        row_lse_[r - from] = *term(task_.terms.lse, r);
        row_offset_[r - from] = *term(task_.terms.offset, r);
      } else {
        masked_[r - from] = is_masked(r);
        n_masked_ += masked_[r - from] ? 1 : 0;
      }
    }
    if (n_masked_ == to - from) return false;
    const bool* masked = n_masked_ > 0 ? masked_ : nullptr;
    if (task_.of_keys) {
      load_queries(task_.q, sample_ * task_.q_sample, from, to, streamed_[0]);
      load_queries(task_.grad_out, sample_ * task_.grad_out_sample, from, to, streamed_[1]);
    } else {
      load_keys(task_.k, masked, from, to, streamed_[0]);
      load_keys(task_.v, masked, from, to, streamed_[1]);
    }
    return true;
  }

  void load_queries(const AttentionRows& rows, int64_t offset, int64_t from, int64_t to, T* streamed) {
    const auto row = [&](int64_t r) { return element(rows.row(r), offset, rows.dtype); };
    load_rows(row, rows.dtype, rows.d_stride, size_, padded_, from, to, nullptr, streamed);
  }
  void load_keys(const AttentionKeys& keys, const bool* masked, int64_t from, int64_t to, T* streamed) {
    const auto row = [&keys](int64_t j) { return keys.row(j); };
    for (int64_t at = from; at < to; at = keys.part_end(at)) {
      const AttentionRows& rows = keys.part_of(at);
      const int64_t end = std::min(to, keys.part_end(at)), done = at - from;
      load_rows(row, rows.dtype, rows.d_stride, size_, padded_, at, end, masked == nullptr ? nullptr : masked + done,
                streamed + done * padded_);
    }
  }

  // `count` streamed rows from row `from` on, against the tile.
  template <int kVecs>
  HWY_NOINLINE void process(int64_t from, int64_t count) {
    for (int side = 0; side < 2; ++side) {
      for (int64_t j = 0; j < count; j += kBroadcasts) {  // past count there are left-overs: never looked at
        outer_product<kVecs>(d_, streamed_[side] + j * padded_, padded_, 1, lanes_[side], size_,
                             weights_[side] + j * width_, lanes_[side], Into::nothing);
      }
    }
    const bool all_visible = n_masked_ == 0 && sees_all(from, count);
    if (!all_visible) find_visible(from);
    if (task_.softcap > 0) {
      weigh<true>(count, all_visible);
    } else {
      weigh<false>(count, all_visible);
    }
    for (int side = 0; side < (task_.of_keys ? 2 : 1); ++side) {
      // ds lies where dp was, p where scores were.
      const T* weights = weights_[1 - side];
      if (!all_visible && has_special_values(d_, streamed_[side], count * padded_)) {
        accumulate_visible(streamed_[side], weights, count, sums_[side]);
        continue;
      }
      for (int64_t i = 0; i < size_; i += kBroadcasts) {
        outer_product<kVecs>(d_, streamed_[side] + i, 1, padded_, weights, count, sums_[side] + i * width_, weights,
                             Into::sum);
      }
    }
  }

  // Whether every row of the tile and each of the streamed rows see each other, masks aside.
  bool sees_all(int64_t from, int64_t count) const {
    const int64_t group = task_.q.group;
    const int64_t queries = task_.of_keys ? from : task_.begin, keys = task_.of_keys ? task_.begin : from;
    const int64_t last_query = ((task_.of_keys ? from + count : task_.end) - 1) / group;
    const int64_t last_key = (task_.of_keys ? task_.end : from + count) - 1;
    return keys >= last_query + task_.first_visible && last_key <= queries / group + task_.last_visible;
  }

  // The streamed rows that each lane sees, relative to `from`; nothing for a masked key.
  void find_visible(int64_t from) {
    const int64_t group = task_.q.group;
    for (int64_t t = 0; t < width_; ++t) {
      const int64_t r = std::min(task_.begin + t, task_.end - 1);
      int64_t first = 0, last = 0;
      if (task_.of_keys) {
        first = std::clamp<int64_t>(r - task_.last_visible, 0, task_.q_length) * group;
        last = (std::clamp<int64_t>(r - task_.first_visible, -1, task_.q_length - 1) + 1) * group - 1;
      } else {
        first = r / group + task_.first_visible;
        last = r / group + task_.last_visible;
      }
      first_[t] = static_cast<T>(std::clamp<int64_t>(first - from, 0, kBlock));
      last_[t] = static_cast<T>(std::clamp<int64_t>(last - from, -1, kBlock));
    }
  }
  HWY_INLINE auto visible(int64_t j, int64_t t) const {
    const V row = hn::Set(d_, static_cast<T>(j));
    return hn::And(hn::Ge(row, hn::LoadU(d_, first_ + t)), hn::Le(row, hn::LoadU(d_, last_ + t)));
  }

  // A factor in two parts of the compute type.
  struct Factor {
    explicit Factor(double value)
        : high(hn::Set(D(), static_cast<T>(value))),
          low(hn::Set(D(), static_cast<T>(value - static_cast<double>(static_cast<T>(value))))) {}
    // x * factor - y, off by no more than a rounding of the difference: products of large scores lose what exp needs.
    HWY_INLINE V times_minus(V x, V y) const {
      x = at_least(D(), std::numeric_limits<T>::lowest(), x);  // -inf times the low part is not wanted
      return hn::MulAdd(x, low, hn::MulSub(x, high, y));
    }
    V high, low;
  };

  // Scores become p, dp becomes ds times the softcap's slope.
  template <bool kCapped>
  HWY_NOINLINE void weigh(int64_t count, bool all_visible) {
    const double scale = std::ldexp(task_.scale, -std::ilogb(task_.scale));
    const T cap_factor = static_cast<T>(kCapped ? 2 * kLog2E * scale / task_.softcap : 0);
    const Factor factor(kCapped ? task_.softcap : scale);
    const V log2e = hn::Set(d_, static_cast<T>(kLog2E));
    for (int64_t j = 0; j < count; ++j) {
      T* const scores = weights_[0] + j * width_;
      T* const dps = weights_[1] + j * width_;
      if (n_masked_ > 0 && masked_[j]) {
        std::fill_n(scores, width_, T{0});
        std::fill_n(dps, width_, T{0});
        continue;
      }
      for (int64_t t = 0; t < width_; t += lanes()) {
        V score = hn::LoadU(d_, scores + t), slope = score;
        if (kCapped) score = tanh_scaled(d_, score, cap_factor, slope);
        const V lse = task_.of_keys ? hn::Set(d_, row_lse_[j]) : hn::LoadU(d_, lane_lse_ + t);
        const V offset = task_.of_keys ? hn::Set(d_, row_offset_[j]) : hn::LoadU(d_, lane_offset_ + t);
        // No weight is above 1, also where lse has no digits left for the difference.
        V p = exp2(d_, at_most(d_, 0, hn::Mul(factor.times_minus(score, lse), log2e)));
        V ds = hn::Mul(p, hn::Add(hn::LoadU(d_, dps + t), offset));
        if (kCapped) ds = hn::Mul(ds, slope);
        if (!all_visible) {
          const auto seen = visible(j, t);
          p = hn::IfThenElseZero(seen, p);
          ds = hn::IfThenElseZero(seen, ds);
        }
        hn::StoreU(p, d_, scores + t);
        hn::StoreU(ds, d_, dps + t);
      }
    }
  }

  // The sum over streamed rows with infinities or NaN: 0 times those is not 0.
  void accumulate_visible(const T* streamed, const T* weights, int64_t count, T* sums) {
    for (int64_t i = 0; i < size_; ++i) {
      for (int64_t t = 0; t < width_; t += lanes()) {
        V total = hn::LoadU(d_, sums + i * width_ + t);
        for (int64_t chunk = 0; chunk < count; chunk += kChain) {
          V sum = hn::Zero(d_);
          for (int64_t j = chunk; j < std::min(chunk + kChain, count); ++j) {
            const V weight = hn::LoadU(d_, weights + j * width_ + t);
            const V more = hn::MulAdd(hn::Set(d_, streamed[j * padded_ + i]), weight, sum);
            sum = hn::IfThenElse(visible(j, t), more, sum);
          }
          total = hn::Add(total, sum);
        }
        hn::StoreU(total, d_, sums + i * width_ + t);
      }
    }
  }

  void close_sums() {
    for (int side = 0; side < (task_.of_keys ? 2 : 1); ++side) {
      for (int64_t i = 0; i < padded_ * width_; i += lanes()) {
        hn::StoreU(hn::Add(hn::LoadU(d_, totals_[side] + i), hn::LoadU(d_, sums_[side] + i)), d_, totals_[side] + i);
        hn::StoreU(hn::Zero(d_), d_, sums_[side] + i);
      }
    }
  }

  void store(const AttentionRows& gradient, double scale, const T* totals) {
    T* const row = streamed_[0];
    const T factor = static_cast<T>(scale);
    for (int64_t r = task_.begin; r < task_.end; ++r) {
      const bool is_zero = task_.of_keys && is_masked(r);
      for (int64_t i = 0; i < size_; ++i) {
        row[i] = is_zero ? T{0} : totals[i * width_ + r - task_.begin] * factor;
      }
      narrow(row, size_, gradient.row(r), gradient.dtype, gradient.d_stride);
    }
  }

  const AttentionBackwardTask& task_;
  const D d_{};
  const int64_t size_, padded_, vecs_, width_;
  T* free_;                     // of the scratch
  T *lanes_[2], *streamed_[2];  // [d][lane]; [row][d]
  T* weights_[2];               // [row][lane]: scores, then p; dp, then ds
  T *sums_[2], *totals_[2];     // [d][lane] of the gradients
  T *first_, *last_;            // [lane] visible range in the block
  T *lane_lse_, *lane_offset_;  // [lane]
  T *row_lse_, *row_offset_;    // [row]
  bool masked_[kBlock];         // [row]
  int64_t sample_ = 0;          // whose rows stream past
  int64_t n_masked_ = 0;        // of the block
};

template <typename T>
HWY_NOINLINE bool run_tile(const AttentionBackwardTask& task) {
  using Tile = BackwardTile<T>;
  auto* scratch = static_cast<T*>(thread_scratch(Tile::scratch_elements(task) * sizeof(T)));
  if (scratch == nullptr) return false;
  Tile(task, scratch).run();
  return true;
}

template <typename T>
HWY_NOINLINE bool run_terms(const AttentionTermsTask& task) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t padded = round_up(task.head_size, lanes);
  T* const grads = static_cast<T*>(thread_scratch(static_cast<size_t>(2 * padded) * sizeof(T)));
  if (grads == nullptr) return false;
  T* const outs = grads + padded;
  std::fill_n(grads, 2 * padded, T{0});
  for (int64_t r = task.begin; r < task.end; ++r) {
    const double lse = load_element(task.lse.row(r), task.lse.dtype, 0);
    const bool sees_nothing = lse == -std::numeric_limits<double>::infinity();
    T offset = 0;
    if (!sees_nothing) {
      widen(task.grad_out.row(r), task.grad_out.dtype, task.grad_out.d_stride, task.head_size, grads);
      widen(task.out.row(r), task.out.dtype, task.out.d_stride, task.head_size, outs);
      auto delta = hn::Zero(d);
      for (int64_t i = 0; i < padded; i += lanes) {
        delta = hn::MulAdd(hn::LoadU(d, grads + i), hn::LoadU(d, outs + i), delta);
      }
      offset = -hn::GetLane(hn::SumOfLanes(d, delta));
      if (task.grad_lse.present()) {
        offset += static_cast<T>(load_element(task.grad_lse.row(r), task.grad_lse.dtype, 0));
      }
    }
    static_cast<T*>(task.terms.lse)[r] = sees_nothing ? std::numeric_limits<T>::infinity() : static_cast<T>(lse);
    static_cast<T*>(task.terms.offset)[r] = offset;
  }
  return true;
}

bool backward_for(const AttentionBackwardTask& task) {
  return task.in_f64 ? run_tile<double>(task) : run_tile<float>(task);
}
bool terms_for(const AttentionTermsTask& task) {
  return task.in_f64 ? run_terms<double>(task) : run_terms<float>(task);
}
int64_t backward_tile_rows(bool in_f64) {
  return in_f64 ? BackwardTile<double>::most_lanes() : BackwardTile<float>::most_lanes();
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(backward_for);
HWY_EXPORT(terms_for);
HWY_EXPORT(backward_tile_rows);

int64_t attention_backward_tile_rows(bool in_f64) {
  return HWY_DYNAMIC_DISPATCH(backward_tile_rows)(in_f64);
}
bool attention_backward_task(const AttentionBackwardTask& task) {
  return HWY_DYNAMIC_DISPATCH(backward_for)(task);
}
bool attention_terms_task(const AttentionTermsTask& task) {
  return HWY_DYNAMIC_DISPATCH(terms_for)(task);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
