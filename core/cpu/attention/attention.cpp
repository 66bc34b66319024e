// Scaled dot-product attention, forward, over dense batches or packed sequences: which sequences, heads and rows go
// where. No SIMD here.
//
// Cost model: 4 * D floating-point operations for every visible (query, key) pair, done as outer products of register
// tiles; K and V are read once for every tile of queries, and are what a few queries wait for. A tile's queries lie in
// the lanes of vectors, so maximum, sum and rescaling need no horizontal operations, and a row's bits depend on that
// row, its keys' positions in the sequence and the options alone: batch_invariant and deterministic. Scratch: up to 3
// MiB per thread. Where there is a tile unit, products of bf16 are its own (attention_amx.hpp).
#include <algorithm>

#include "core/cpu/attention/attention_sequences.hpp"
#include "core/cpu/attention/attention_task.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

constexpr int64_t kTasksPerThread = 8;

class Tasks {
public:
  // starts: room for the number of tasks before each sequence (packed only).
  Tasks(const AttentionCall& call, int64_t* starts)
      : call_(call),
        sequences_(call),
        group_(sequences_.group()),
        task_rows_(attention_tile_rows(sequences_.in_f64())),
        starts_(starts) {}

  DataError check_seqlens() const { return sequences_.check(); }

  // Cuts the rows into tasks and returns their number. The more rows a task has the less often K and V are read, but
  // every thread should get several. Bits do not depend on it.
  int64_t plan(int64_t threads) {
    const int64_t tiles = batch_entries(call_) * call_.Hkv * tasks_of(queries_of(call_));  // packed: roughly
    task_rows_ *= std::clamp<int64_t>(tiles / (kTasksPerThread * std::max<int64_t>(threads, 1)), 1, kMaxAttentionTiles);
    return count();
  }

  int64_t count() {
    if (!is_packed(call_)) return call_.B * call_.Hkv * tasks_of(call_.Sq);
    starts_[0] = 0;
    for (int64_t b = 0; b < call_.B; ++b) starts_[b + 1] = starts_[b] + call_.Hkv * tasks_of(sequences_[b].q_length);
    return starts_[call_.B];
  }

  bool run(int64_t index) const {
    int64_t b = 0;
    if (is_packed(call_)) {
      b = std::upper_bound(starts_, starts_ + call_.B + 1, index) - starts_ - 1;
      index -= starts_[b];
    } else {
      const int64_t per_sequence = call_.Hkv * tasks_of(call_.Sq);
      b = index / per_sequence;
      index %= per_sequence;
    }
    const AttentionSequence sequence = sequences_[b];
    const int64_t tasks = tasks_of(sequence.q_length);
    // Late tasks first: with a causal mask they are the long ones, and short ones fill the gaps at the end.
    const AttentionTask task = make(sequence, index / tasks, tasks - 1 - index % tasks);
    return task.end - task.begin <= few_rows_ ? attention_few_task(task) : attention_task(task);
  }

private:
  int64_t tasks_of(int64_t q_length) const { return (q_length * group_ + task_rows_ - 1) / task_rows_; }

  AttentionTask make(const AttentionSequence& s, int64_t kv_head, int64_t index) const {
    const AttentionWindow window = sequences_.window(s);
    const int64_t head = kv_head * group_;
    AttentionTask task = attention_task_of(call_);
    task.q = sequences_.rows(call_.q, s, s.q_first, head, group_);
    task.k = sequences_.rows(call_.k, s, s.k_first, kv_head, 1);
    task.v = sequences_.rows(call_.v, s, s.k_first, kv_head, 1);
    task.out = sequences_.rows(call_.out, s, s.q_first, head, group_);
    task.lse = sequences_.rows(call_.lse, s, s.q_first, head, group_);
    task.key_mask = sequences_.key_mask(s);
    task.k_length = s.k_length;
    task.first_visible = window.first;
    task.last_visible = window.last;
    task.begin = index * task_rows_;
    task.end = std::min(task.begin + task_rows_, s.q_length * group_);
    return task;
  }

  const AttentionCall& call_;
  const AttentionSequences sequences_;
  const int64_t group_;
  const int64_t few_rows_ = attention_few_rows();
  int64_t task_rows_;  // of a task: a multiple of the tile's
  int64_t* const starts_;
};

DataError attention(const AttentionCall& call, const Context& context) {
  Tasks tasks(call, static_cast<int64_t*>(context.workspace));
  if (const DataError error = tasks.check_seqlens(); error.kind != kNoDataError) return all_nan(call, error);
  run_attention_tasks(context.parallel, tasks.plan(context.parallel.threads),
                      [&tasks](int64_t index) { return tasks.run(index); });
  return {};
}

int64_t workspace(const AttentionCall& call) {
  return is_packed(call) ? (call.B + 1) * static_cast<int64_t>(sizeof(int64_t)) : 0;
}

double operations(const AttentionCall& call) {
  return 4 * attention_pairs(call) * static_cast<double>(call.D);
}

}  // namespace

RLK_CPU_KERNEL(Attention, .run = attention, .operations = operations, .workspace_bytes = workspace);

}  // namespace rlk::cpu
