// Attention of samples that share a prefix. Tiles of queries of several samples form one task, which reads each block
// of the prefix once for all of them, and then for each sample its own keys; bits are those of attention over both in
// one piece. The last keys of the prefix, fewer than a block of the kernel, are read with the samples' own.
#include <rlk/sdk/ops/prefix_shared_attention.hpp>

#include <algorithm>
#include <array>

#include "core/cpu/attention/attention_sequences.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::PrefixSharedAttention>;
using sdk::ops::prefix_shared_attention::CausalAlignment;

constexpr int64_t kTasksPerThread = 2;

class Tasks {
public:
  Tasks(const Call& call, int64_t threads) : call_(call), common_(attention_task_of(call)) {
    const bool top_left = call.params.causal_alignment == CausalAlignment::top_left;
    const AttentionWindow window = attention_window(call.params, top_left ? 0 : call.Sp + call.Sk - call.Sq);
    common_.first_visible = window.first;
    common_.last_visible = window.last;
    common_.k_length = call.Sp + call.Sk;
    // The more tiles a task has the less often the prefix is read, but every thread should get some. Bits do not depend
    // on it.
    const int64_t enough = std::max<int64_t>(1, threads) * kTasksPerThread;
    tiles_ = std::clamp<int64_t>(call.B * call.Hkv * tiles_of_group() / enough, 1, kMaxAttentionTiles);
  }

  int64_t count() const { return call_.B * call_.Hkv * tasks_of_group(); }

  bool run(int64_t index) const {
    const int64_t head = index / tasks_of_group() % call_.Hkv, b = index / tasks_of_group() / call_.Hkv;
    const int64_t first = index % tasks_of_group() * tiles_, last = std::min(first + tiles_, tiles_of_group());
    std::array<AttentionTask, kMaxAttentionTiles> tasks;
    size_t n = 0;
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t sample = tile / tiles_of_sample(), begin = tile % tiles_of_sample() * tile_rows_;
      const int64_t end = std::min(begin + tile_rows_, rows_of_sample());
      if (begin > 0 && n > 0) {
        tasks[n - 1].end = end;  // of the same sample
      } else {
        tasks[n++] = make(b, sample, head, begin, end);
      }
    }
    if (n == 1 && tasks[0].end - tasks[0].begin <= few_rows_) return attention_few_task(tasks[0]);
    return attention_shared_task({tasks.data(), n}, n > 1 ? call_.Sp : 0);
  }

private:
  int64_t group() const { return call_.Hq / call_.Hkv; }
  int64_t rows_of_sample() const { return call_.Sq * group(); }
  int64_t tiles_of_sample() const { return (rows_of_sample() + tile_rows_ - 1) / tile_rows_; }
  int64_t tiles_of_group() const { return call_.G * tiles_of_sample(); }
  int64_t tasks_of_group() const { return (tiles_of_group() + tiles_ - 1) / tiles_; }

  AttentionTask make(int64_t b, int64_t sample, int64_t head, int64_t begin, int64_t end) const {
    const auto of_queries = [&](const Array& array) {
      return attention_rows(array, b * array.strides[0] + sample * array.strides[1], 2, head * group(), group());
    };
    const auto keys = [&](const Array& prefix, const Array& own) {
      AttentionKeys both = attention_rows(prefix, b * prefix.strides[0], 1, head, 1);
      both.rest = attention_rows(own, b * own.strides[0] + sample * own.strides[1], 2, head, 1);
      both.split = call_.Sp;
      return both;
    };
    const auto line = [](const Array& mask, int64_t offset, int axis) {
      return mask.present() ? Line{element(mask.data, offset, mask.dtype), mask.dtype, mask.strides[axis]} : Line{};
    };
    AttentionTask task = common_;
    task.q = of_queries(call_.q);
    task.k = keys(call_.prefix_k, call_.k);
    task.v = keys(call_.prefix_v, call_.v);
    task.out = of_queries(call_.out);
    task.lse = of_queries(call_.lse);
    const Array &of_prefix = call_.prefix_mask, &of_own = call_.key_mask;
    task.key_mask.first = line(of_prefix, b * of_prefix.strides[0], 1);
    task.key_mask.rest = line(of_own, b * of_own.strides[0] + sample * of_own.strides[1], 2);
    task.key_mask.split = call_.Sp;
    task.begin = begin;
    task.end = end;
    return task;
  }

  const Call& call_;
  AttentionTask common_;
  const int64_t tile_rows_ = attention_tile_rows(common_.in_f64);
  const int64_t few_rows_ = attention_few_rows();
  int64_t tiles_ = 1;  // of a task
};

DataError prefix_shared_attention(const Call& call, const Context& context) {
  const Tasks tasks(call, context.parallel.threads);
  run_attention_tasks(context.parallel, tasks.count(), [&tasks](int64_t index) { return tasks.run(index); });
  return {};
}

double operations(const Call& call) {
  return 4 * static_cast<double>(call.B * call.G * call.Sq * call.Hq) * static_cast<double>(call.Sp + call.Sk) *
         static_cast<double>(call.D);
}

}  // namespace

RLK_CPU_KERNEL(PrefixSharedAttention, .run = prefix_shared_attention, .operations = operations);

}  // namespace rlk::cpu
