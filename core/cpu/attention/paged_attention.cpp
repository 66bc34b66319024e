// Attention over a cache of blocks: which queries, heads and blocks go where. The tasks are those of attention, which
// find each key through the block table; bits are those of attention over the same keys in one piece.
//
// Cost model: that of attention. Blocks of 64 tokens and more with neighbouring elements are read where they lie,
// others are copied block by block of the kernel.
#include <rlk/sdk/ops/paged_attention.hpp>

#include <algorithm>

#include "core/cpu/attention/attention_sequences.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::PagedAttention>;
using sdk::ops::paged_attention::Layout;

constexpr int64_t kTasksPerThread = 8;

class Tasks {
public:
  // starts: room for the number of tasks before each sequence; blocks: for a block table without gaps.
  Tasks(const Call& call, int64_t* starts, int64_t* blocks)
      : call_(call),
        common_(attention_task_of(call)),
        group_(call.Hq / call.Hkv),
        task_rows_(attention_tile_rows(common_.in_f64)),
        starts_(starts),
        blocks_(blocks) {}

  // Makes the queries of bad sequences NaN, cuts the others into tasks, and returns their number. The more rows a task
  // has the less often K and V are read, but every thread should get several. Bits do not depend on it.
  int64_t plan(const ParallelFor& parallel, DataError& error) {
    const int64_t tiles = call_.Hkv * tasks_of(call_.Tq);  // roughly
    task_rows_ *=
        std::clamp<int64_t>(tiles / (kTasksPerThread * std::max<int64_t>(parallel.threads, 1)), 1, kMaxAttentionTiles);
    FirstBadRow bad;
    const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, call_.MB));
    parallel_for(parallel, call_.B, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const bool is_bad = copy_and_check(b).kind != kNoDataError;
        starts_[b + 1] = is_bad ? 0 : call_.Hkv * tasks_of(queries_end(b) - queries_begin(b));
        if (!is_bad) continue;
        bad.report(b);
        fill_nan(queries_of_sequence(call_.out, b));
        fill_nan(queries_of_sequence(call_.lse, b));
      }
    });
    error = bad.any() ? copy_and_check(bad.row()) : DataError{};
    starts_[0] = 0;
    for (int64_t b = 0; b < call_.B; ++b) starts_[b + 1] += starts_[b];
    return starts_[call_.B];
  }

  bool run(int64_t index) const {
    const int64_t b = std::upper_bound(starts_, starts_ + call_.B + 1, index) - starts_ - 1;
    index -= starts_[b];
    const int64_t tasks = tasks_of(queries_end(b) - queries_begin(b));
    // Late tasks first: with a causal mask they are the long ones, and short ones fill the gaps at the end.
    const AttentionTask task = make(b, index / tasks, tasks - 1 - index % tasks);
    return task.end - task.begin <= few_rows_ ? attention_few_task(task) : attention_task(task);
  }

private:
  int64_t queries_begin(int64_t b) const { return call_.cu_seqlens_q.present() ? call_.cu_seqlens_q.integer(b) : b; }
  int64_t queries_end(int64_t b) const { return queries_begin(b + 1); }
  int64_t tasks_of(int64_t queries) const { return (queries * group_ + task_rows_ - 1) / task_rows_; }

  // The blocks of the sequence that hold tokens, read once: another thread may change the table.
  DataError copy_and_check(int64_t b) const {
    const int64_t length = call_.context_lens.integer(b);
    if (length < 0 || length > call_.MB * call_.BS) return {kBadSeqlens, b, length};
    for (int64_t m = 0; m * call_.BS < length; ++m) {
      const int64_t block = blocks_[b * call_.MB + m] = call_.block_table.integer(b, m);
      if (block < 0 || block >= call_.NB) return {kIdOutOfRange, b, block};
    }
    return {};
  }

  // [queries, ...] of one sequence; absent where the array is.
  Array queries_of_sequence(Array array, int64_t b) const {
    if (!array.present()) return array;
    array.data = element(array.data, queries_begin(b) * array.strides[0], array.dtype);
    array.shape[0] = queries_end(b) - queries_begin(b);
    return array;
  }

  AttentionKeys keys_of(const Array& cache, int64_t b, int64_t kv_head) const {
    const bool is_token_major = call_.params.layout == Layout::token_major;
    const bool in_pieces = !is_token_major && cache.ndim == 5 && call_.X < call_.D;
    const int head_axis = is_token_major ? 2 : 1, token_axis = is_token_major ? 1 : 3;
    const int d_axis = is_token_major ? 3 : cache.ndim == 5 ? 4 : 2;
    AttentionKeys keys = AttentionRows{cache.dtype,
                                       element(cache.data, kv_head * cache.strides[head_axis], cache.dtype),
                                       cache.strides[token_axis],
                                       0,
                                       cache.strides[d_axis],
                                       1};
    if (call_.block_table.present()) keys.blocks = {blocks_ + b * call_.MB, /*is_i64=*/true, 1};
    keys.block_size = call_.BS;
    keys.block_stride = cache.strides[0];
    if (in_pieces) keys.piece = call_.X, keys.piece_stride = cache.strides[2];
    return keys;
  }

  AttentionTask make(int64_t b, int64_t kv_head, int64_t index) const {
    const int64_t queries = queries_end(b) - queries_begin(b), length = call_.context_lens.integer(b);
    const AttentionWindow window = attention_window(call_.params, length - queries);
    const auto of_queries = [&](const Array& array) {
      return attention_rows(array, queries_begin(b) * array.strides[0], 0, kv_head * group_, group_);
    };
    AttentionTask task = common_;
    task.q = of_queries(call_.q);
    task.k = keys_of(call_.key_cache, b, kv_head);
    task.v = keys_of(call_.value_cache, b, kv_head);
    task.out = of_queries(call_.out);
    task.lse = of_queries(call_.lse);
    task.k_length = length;
    task.first_visible = window.first;
    task.last_visible = window.last;
    task.begin = index * task_rows_;
    task.end = std::min(task.begin + task_rows_, queries * group_);
    return task;
  }

  const Call& call_;
  const AttentionTask common_;
  const int64_t group_;
  const int64_t few_rows_ = attention_few_rows();
  int64_t task_rows_;  // of a task: a multiple of the tile's
  int64_t* const starts_;
  int64_t* const blocks_;
};

DataError paged_attention(const Call& call, const Context& context) {
  if (call.cu_seqlens_q.present()) {
    if (const DataError error = in_second(check_seqlens(call.cu_seqlens_q.integers(), call.B, call.Tq));
        error.kind != kNoDataError) {
      return all_nan(call, error);
    }
  }
  auto* const starts = static_cast<int64_t*>(context.workspace);
  Tasks tasks(call, starts, starts + call.B + 1);
  DataError error;
  const int64_t count = tasks.plan(context.parallel, error);
  run_attention_tasks(context.parallel, count, [&tasks](int64_t index) { return tasks.run(index); });
  return error;
}

int64_t workspace(const Call& call) {
  return (call.B + 1 + call.B * call.MB) * static_cast<int64_t>(sizeof(int64_t));
}

// As if contexts filled half of their tables.
double operations(const Call& call) {
  return 2 * static_cast<double>(call.Tq * call.Hq) * static_cast<double>(call.MB * call.BS) *
         static_cast<double>(call.D);
}

}  // namespace

RLK_CPU_KERNEL(PagedAttention, .run = paged_attention, .operations = operations, .workspace_bytes = workspace);

}  // namespace rlk::cpu
