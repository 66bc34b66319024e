// Which sequences, heads and rows of attention go where. No SIMD here.
#include "core/cpu/attention/attention.hpp"

#include <algorithm>

#include "core/cpu/attention/attention_sequences.hpp"
#include "core/cpu/attention/attention_task.hpp"

namespace rlk::cpu {
namespace {

constexpr int64_t kTasksPerThread = 8;

class Kernel {
public:
  explicit Kernel(const AttentionArgs& args)
      : args_(args),
        sequences_(args),
        in_f64_(sequences_.in_f64()),
        group_(sequences_.group()),
        task_rows_(attention_tile_rows(in_f64_)) {}

  DataError check_seqlens() const { return sequences_.check(); }

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
      starts_[b + 1] = starts_[b] + args_.kv_heads * tasks_of(sequences_[b].q_length);
    }
    return starts_[args_.batch];
  }

  bool run_task(int64_t index) const {
    int64_t b = 0;
    if (args_.packed) {
      b = std::upper_bound(starts_, starts_ + args_.batch + 1, index) - starts_ - 1;
      index -= starts_[b];
    } else {
      const int64_t per_sequence = args_.kv_heads * tasks_of(args_.q_tokens);
      b = index / per_sequence;
      index %= per_sequence;
    }
    const AttentionSequence sequence = sequences_[b];
    const int64_t tasks = tasks_of(sequence.q_length);
    // Late tasks first: with a causal mask they are the long ones, and short ones fill the gaps at the end.
    const AttentionTask task = make_task(sequence, index / tasks, tasks - 1 - index % tasks);
    return task.end - task.begin <= few_rows_ ? attention_few_task(task) : attention_task(task);
  }

  void fill_nan() const {
    sequences_.fill_nan(args_.out, args_.q_tokens, args_.q_heads, args_.head_size, args_.dtype);
    sequences_.fill_nan(args_.lse, args_.q_tokens, args_.q_heads, 1, accumulator(args_.dtype));
  }

private:
  int64_t tasks_of(int64_t q_length) const { return (q_length * group_ + task_rows_ - 1) / task_rows_; }

  AttentionTask make_task(const AttentionSequence& s, int64_t kv_head, int64_t task) const {
    const AttentionWindow window = sequences_.window(s);
    const int64_t head = kv_head * group_;
    return {args_.dtype,
            in_f64_,
            sequences_.row(args_.q, s, s.q_first, head, args_.dtype),
            sequences_.row(args_.k, s, s.k_first, kv_head, args_.dtype),
            sequences_.row(args_.v, s, s.k_first, kv_head, args_.dtype),
            sequences_.row(args_.out, s, s.q_first, head, args_.dtype),
            sequences_.row(args_.lse, s, s.q_first, head, accumulator(args_.dtype)),
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
            window.first,
            window.last,
            sequences_.scale(),
            args_.softcap,
            sequences_.key_mask(s),
            args_.key_mask_token_stride,
            task * task_rows_,
            std::min((task + 1) * task_rows_, s.q_length * group_)};
  }

  const AttentionArgs& args_;
  const AttentionSequences sequences_;
  const bool in_f64_;
  const int64_t group_;
  const int64_t few_rows_ = attention_few_rows();
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
