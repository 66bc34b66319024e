// The gradients of attention of samples that share a prefix: tiles of queries, of own keys, and of keys of the prefix,
// past which the queries of all samples stream. Each gradient has one writer and one order of summation, as in the
// backward of attention, whose cost model this has.
#include <rlk/sdk/ops/prefix_shared_attention_backward.hpp>

#include <algorithm>

#include "core/cpu/attention/attention_backward_task.hpp"
#include "core/cpu/attention/attention_sequences.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::PrefixSharedAttentionBackward>;
using sdk::ops::prefix_shared_attention_backward::CausalAlignment;

constexpr int64_t kTermsRows = 256;  // a task's

int64_t q_rows(const Call& call) {
  return call.B * call.G * call.Sq * call.Hq;
}

class Tasks {
public:
  // Workspace: what queries have to themselves.
  Tasks(const Call& call, void* workspace)
      : call_(call),
        in_f64_(attention_in_f64(call)),
        group_(call.Hq / call.Hkv),
        tile_rows_(attention_backward_tile_rows(in_f64_)),
        terms_{workspace, static_cast<double*>(workspace) + q_rows(call)} {
    const bool top_left = call.params.causal_alignment == CausalAlignment::top_left;
    window_ = attention_window(call.params, top_left ? 0 : call.Sp + call.Sk - call.Sq);
  }

  // ---- the terms of queries: tasks of up to kTermsRows rows (token, head) of one sample --------------------------
  int64_t count_terms() const { return call_.B * call_.G * terms_of_sample(); }
  bool run_terms(int64_t index) const {
    const int64_t sample = index / terms_of_sample(), part = index % terms_of_sample();
    const auto rows = [&](const Array& array) {
      return queries(array, sample / call_.G, sample % call_.G, 0, call_.Hq);
    };
    AttentionTermsTask task;
    task.in_f64 = in_f64_;
    task.out = rows(call_.out);
    task.grad_out = rows(call_.grad_out);
    task.lse = rows(call_.lse);
    task.grad_lse = rows(call_.grad_lse);
    task.terms = terms_from(sample * rows_of_sample());
    task.head_size = call_.D;
    task.begin = part * kTermsRows;
    task.end = std::min(task.begin + kTermsRows, rows_of_sample());
    return attention_terms_task(task);
  }

  // ---- tiles of each group and key head: those of the prefix, which are the longest, then of each sample ---------
  int64_t count_tiles() const { return call_.B * call_.Hkv * (prefix_tiles() + call_.G * sample_tiles()); }
  bool run_tile(int64_t index) const {
    const int64_t tiles_of_head = prefix_tiles() + call_.G * sample_tiles();
    const int64_t head = index / tiles_of_head % call_.Hkv, b = index / tiles_of_head / call_.Hkv;
    const int64_t tile = index % tiles_of_head;
    if (tile < prefix_tiles()) return run_prefix(b, head, tile);
    const int64_t m = (tile - prefix_tiles()) / sample_tiles(), own = (tile - prefix_tiles()) % sample_tiles();
    return own < q_tiles() ? run_queries(b, m, head, own) : run_own_keys(b, m, head, own - q_tiles());
  }

private:
  int64_t rows_of_sample() const { return call_.Sq * call_.Hq; }
  int64_t terms_of_sample() const { return (rows_of_sample() + kTermsRows - 1) / kTermsRows; }
  int64_t tiles(int64_t rows) const { return (rows + tile_rows_ - 1) / tile_rows_; }
  int64_t prefix_tiles() const { return tiles(call_.Sp); }
  int64_t q_tiles() const { return tiles(call_.Sq * group_); }
  int64_t sample_tiles() const { return q_tiles() + tiles(call_.Sk); }

  // Of a tensor [B, G, S, H, (D)]: `heads` heads of each token.
  static AttentionRows queries(const Array& array, int64_t b, int64_t m, int64_t head, int64_t heads) {
    return attention_rows(array, b * array.strides[0] + m * array.strides[1], 2, head, heads);
  }
  static AttentionRows of_prefix(const Array& array, int64_t b, int64_t head) {
    return attention_rows(array, b * array.strides[0], 1, head, 1);
  }
  AttentionQueryTerms terms_from(int64_t row) const {
    const Dtype dtype = in_f64_ ? Dtype::f64 : Dtype::f32;
    return {element(terms_.lse, row, dtype), element(terms_.offset, row, dtype)};
  }
  static Line line(const Array& mask, int64_t offset, int axis) {
    return mask.present() ? Line{element(mask.data, offset, mask.dtype), mask.dtype, mask.strides[axis]} : Line{};
  }
  Line prefix_mask(int64_t b) const { return line(call_.prefix_mask, b * call_.prefix_mask.strides[0], 1); }
  Line own_mask(int64_t b, int64_t m) const {
    return line(call_.key_mask, b * call_.key_mask.strides[0] + m * call_.key_mask.strides[1], 2);
  }

  // Rows [tile * tile_rows, ...) of so many.
  AttentionBackwardTask task_of(int64_t b, int64_t m, int64_t head, int64_t tile, int64_t rows) const {
    AttentionBackwardTask task{};
    task.in_f64 = in_f64_;
    task.samples = 1;
    task.q = queries(call_.q, b, m, head * group_, group_);
    task.grad_out = queries(call_.grad_out, b, m, head * group_, group_);
    task.terms = terms_from((b * call_.G + m) * rows_of_sample() + head * group_);
    task.terms_stride = call_.Hq;
    task.head_size = call_.D;
    task.q_length = call_.Sq;
    task.first_visible = window_.first;
    task.last_visible = window_.last;
    task.scale = attention_scale(call_);
    task.softcap = call_.params.softcap;
    task.begin = tile * tile_rows_;
    task.end = std::min(task.begin + tile_rows_, rows);
    return task;
  }

  bool run_queries(int64_t b, int64_t m, int64_t head, int64_t tile) const {
    AttentionBackwardTask task = task_of(b, m, head, tile, call_.Sq * group_);
    task.of_keys = false;
    task.k = of_prefix(call_.prefix_k, b, head), task.v = of_prefix(call_.prefix_v, b, head);
    task.k.rest = queries(call_.k, b, m, head, 1), task.v.rest = queries(call_.v, b, m, head, 1);
    task.k.split = task.v.split = task.key_mask.split = call_.Sp;
    task.key_mask.first = prefix_mask(b);
    task.key_mask.rest = own_mask(b, m);
    task.k_length = call_.Sp + call_.Sk;
    task.grad_q = queries(call_.grad_q, b, m, head * group_, group_);
    return attention_backward_task(task);
  }
  bool run_own_keys(int64_t b, int64_t m, int64_t head, int64_t tile) const {
    AttentionBackwardTask task = task_of(b, m, head, tile, call_.Sk);
    task.of_keys = true;
    task.k = queries(call_.k, b, m, head, 1), task.v = queries(call_.v, b, m, head, 1);
    task.key_mask = own_mask(b, m);
    task.k_length = call_.Sk;
    task.first_visible -= call_.Sp, task.last_visible -= call_.Sp;
    task.grad_k = queries(call_.grad_k, b, m, head, 1), task.grad_v = queries(call_.grad_v, b, m, head, 1);
    return attention_backward_task(task);
  }
  bool run_prefix(int64_t b, int64_t head, int64_t tile) const {
    AttentionBackwardTask task = task_of(b, 0, head, tile, call_.Sp);
    task.of_keys = true;
    task.k = of_prefix(call_.prefix_k, b, head), task.v = of_prefix(call_.prefix_v, b, head);
    task.key_mask = prefix_mask(b);
    task.k_length = call_.Sp;
    task.samples = call_.G;
    task.q_sample = call_.q.strides[1];
    task.grad_out_sample = call_.grad_out.strides[1];
    task.terms_sample = rows_of_sample();
    task.grad_k = of_prefix(call_.grad_prefix_k, b, head), task.grad_v = of_prefix(call_.grad_prefix_v, b, head);
    return attention_backward_task(task);
  }

  const Call& call_;
  const bool in_f64_;
  const int64_t group_, tile_rows_;
  const AttentionQueryTerms terms_;
  AttentionWindow window_;
};

DataError prefix_shared_attention_backward(const Call& call, const Context& context) {
  const Tasks tasks(call, context.workspace);
  run_attention_tasks(context.parallel, tasks.count_terms(), [&](int64_t index) { return tasks.run_terms(index); });
  run_attention_tasks(context.parallel, tasks.count_tiles(), [&](int64_t index) { return tasks.run_tile(index); });
  return {};
}

int64_t workspace(const Call& call) {
  return 2 * static_cast<int64_t>(sizeof(double)) * q_rows(call);
}

double operations(const Call& call) {
  return 14 * static_cast<double>(q_rows(call)) * static_cast<double>(call.Sp + call.Sk) * static_cast<double>(call.D);
}

}  // namespace

RLK_CPU_KERNEL(PrefixSharedAttentionBackward, .run = prefix_shared_attention_backward, .operations = operations,
               .workspace_bytes = workspace);

}  // namespace rlk::cpu
