// Which sequences, heads and rows of attention go where. No SIMD here.
#include "core/cpu/kernels/attention.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/kernels/attention_task.hpp"
#include "core/cpu/kernels/element.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kTasksPerThread = 8;
constexpr int64_t kUnlimited = int64_t{1} << 60;  // positions stay far below; sums of two stay in range

struct Seqlens {
  const void* data;
  bool are_i64;
  int64_t stride;
  int64_t operator[](int64_t position) const {
    return are_i64 ? static_cast<const int64_t*>(data)[position * stride]
                   : static_cast<const int32_t*>(data)[position * stride];
  }
};

DataError check(const Seqlens& cu_seqlens, int64_t batch, int64_t total) {
  int64_t previous = 0;
  for (int64_t position = 0; position <= batch; ++position) {
    const int64_t content = cu_seqlens[position];
    const bool starts_wrong = position == 0 && content != 0;
    const bool ends_wrong = position == batch && content != total;
    if (starts_wrong || content < previous || ends_wrong) return {kBadSeqlens, position, content};
    previous = content;
  }
  return {};
}

class Kernel {
public:
  explicit Kernel(const AttentionArgs& args)
      : args_(args),
        cu_q_{args.cu_seqlens_q, args.cu_seqlens_are_i64, args.cu_seqlens_q_stride},
        cu_k_{args.cu_seqlens_k, args.cu_seqlens_are_i64, args.cu_seqlens_k_stride},
        scale_(args.scale > 0 ? args.scale : 1 / std::sqrt(static_cast<double>(args.head_size))),
        in_f64_(args.dtype == Dtype::f64 || scale_ > 0x1p60),
        group_(args.q_heads / args.kv_heads),
        task_rows_(attention_tile_rows(in_f64_)) {}

  DataError check_seqlens() const {
    if (!args_.packed) return {};
    const DataError error = check(cu_q_, args_.batch, args_.q_tokens);
    return error.kind != kNoDataError ? error : check(cu_k_, args_.batch, args_.k_tokens);
  }

  // Cuts the rows into tasks and returns their number. The more rows a task has the less often K and V are read, but
  // every thread should get several. Bits do not depend on it.
  int64_t plan_tasks(int64_t threads) {
    const int64_t sequences = args_.packed ? 1 : args_.batch;  // packed: all tokens together, roughly
    const int64_t tiles = sequences * args_.kv_heads * tasks_of(args_.q_tokens);
    task_rows_ *= std::clamp<int64_t>(tiles / (kTasksPerThread * std::max<int64_t>(threads, 1)), 1, kMaxAttentionTiles);
    return count_tasks();
  }

  // starts_[b]: the number of tasks before sequence b (packed only).
  int64_t count_tasks() {
    if (!args_.packed) return args_.batch * args_.kv_heads * tasks_of(args_.q_tokens);
    starts_ = static_cast<int64_t*>(args_.workspace);
    starts_[0] = 0;
    for (int64_t b = 0; b < args_.batch; ++b) {
      starts_[b + 1] = starts_[b] + args_.kv_heads * tasks_of(cu_q_[b + 1] - cu_q_[b]);
    }
    return starts_[args_.batch];
  }

  bool run_task(int64_t index) const {
    Sequence sequence;
    if (args_.packed) {
      const int64_t b = std::upper_bound(starts_, starts_ + args_.batch + 1, index) - starts_ - 1;
      sequence = {b, cu_q_[b], cu_q_[b + 1] - cu_q_[b], cu_k_[b], cu_k_[b + 1] - cu_k_[b]};
      index -= starts_[b];
    } else {
      const int64_t per_sequence = args_.kv_heads * tasks_of(args_.q_tokens);
      sequence = {index / per_sequence, 0, args_.q_tokens, 0, args_.k_tokens};
      index %= per_sequence;
    }
    const int64_t tasks = tasks_of(sequence.q_length);
    // Late tasks first: with a causal mask they are the long ones, and short ones fill the gaps at the end.
    return attention_task(make_task(sequence, index / tasks, tasks - 1 - index % tasks));
  }

  void fill_nan() const {
    const int64_t sequences = args_.packed ? 1 : args_.batch;
    for (int64_t b = 0; b < sequences; ++b) {
      for (int64_t token = 0; token < args_.q_tokens; ++token) {
        for (int64_t h = 0; h < args_.q_heads; ++h) {
          const int64_t row = b * args_.out.batch_stride + token * args_.out.token_stride + h * args_.out.head_stride;
          for (int64_t d = 0; d < args_.head_size; ++d) {
            store_element(args_.out.data, args_.dtype, row + d * args_.out.d_stride, kNan);
          }
          if (args_.lse.data == nullptr) continue;
          store_element(args_.lse.data, accumulator(args_.dtype),
                        b * args_.lse.batch_stride + token * args_.lse.token_stride + h * args_.lse.head_stride, kNan);
        }
      }
    }
  }

private:
  struct Sequence {
    int64_t batch, q_first, q_length, k_first, k_length;
  };

  int64_t tasks_of(int64_t q_length) const { return (q_length * group_ + task_rows_ - 1) / task_rows_; }

  AttentionTask make_task(const Sequence& s, int64_t kv_head, int64_t task) const {
    const auto at = [&s, this](const AttentionTensor& tensor, int64_t token, int64_t head, Dtype dtype) {
      const int64_t batch = args_.packed ? 0 : s.batch * tensor.batch_stride;
      return element(tensor.data, batch + token * tensor.token_stride + head * tensor.head_stride, dtype);
    };
    const auto limit = [](int64_t window) { return window < 0 ? kUnlimited : std::min(window, kUnlimited); };
    const int64_t diagonal = s.k_length - s.q_length;
    const int64_t after = args_.causal ? 0 : kUnlimited;
    return {args_.dtype,
            in_f64_,
            at(args_.q, s.q_first, kv_head * group_, args_.dtype),
            at(args_.k, s.k_first, kv_head, args_.dtype),
            at(args_.v, s.k_first, kv_head, args_.dtype),
            at(args_.out, s.q_first, kv_head * group_, args_.dtype),
            at(args_.lse, s.q_first, kv_head * group_, accumulator(args_.dtype)),
            args_.q.token_stride,
            args_.q.head_stride,
            args_.q.d_stride,
            args_.k.token_stride,
            args_.k.d_stride,
            args_.v.token_stride,
            args_.v.d_stride,
            args_.out.token_stride,
            args_.out.head_stride,
            args_.out.d_stride,
            args_.lse.token_stride,
            args_.lse.head_stride,
            group_,
            args_.head_size,
            s.k_length,
            diagonal - limit(args_.window_left),
            diagonal + std::min(after, limit(args_.window_right)),
            scale_,
            task * task_rows_,
            std::min((task + 1) * task_rows_, s.q_length * group_)};
  }

  const AttentionArgs& args_;
  const Seqlens cu_q_, cu_k_;
  const double scale_;
  const bool in_f64_;
  const int64_t group_;
  int64_t task_rows_;  // of a task: a multiple of the tile's
  int64_t* starts_ = nullptr;
};

}  // namespace

int64_t attention_workspace_bytes(int64_t batch, bool packed) {
  return packed ? (batch + 1) * 8 : 0;
}

AttentionStatus attention(const AttentionArgs& args, const ParallelFor& hook, DataError* error) {
  Kernel kernel(args);
  *error = kernel.check_seqlens();
  if (error->kind != kNoDataError) {
    kernel.fill_nan();
    return AttentionStatus::ok;
  }
  std::atomic<bool> had_memory{true};
  parallel_for(hook, kernel.plan_tasks(hook.threads), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      if (!kernel.run_task(index)) had_memory.store(false, std::memory_order_relaxed);
    }
  });
  return had_memory.load() ? AttentionStatus::ok : AttentionStatus::out_of_memory;
}

}  // namespace rlk::cpu
