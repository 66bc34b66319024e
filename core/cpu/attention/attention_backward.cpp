// The gradients of attention with respect to q, k and v: which sequences, heads and tiles go where. No SIMD here.
//
// Cost model: 14 * D floating-point operations for every visible (query, key) pair: scores and dp are computed twice,
// once for tiles of queries (grad_q) and once for tiles of keys (grad_k, grad_v). That is two of seven products more
// than with one pass, whose tasks would have to add to each other's gradients; here each gradient has one writer and
// one order of summation, so a sequence's bits depend on that sequence and the options alone. Scratch: up to 1 MiB per
// thread.
#include <rlk/sdk/forward.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>

#include <algorithm>

#include "core/cpu/attention/attention_backward_task.hpp"
#include "core/cpu/attention/attention_sequences.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::AttentionBackward>;

constexpr int64_t kTermsRows = 256;  // a task's

// Queries times query heads, of all sequences together.
int64_t q_rows(const Call& call) {
  return batch_entries(call) * queries_of(call) * call.Hq;
}

class Tasks {
public:
  // Workspace: what queries have to themselves, then the numbers of tiles before each sequence.
  Tasks(const Call& call, void* workspace)
      : call_(call),
        forward_(sdk::forward_of<AttentionCall>(call)),
        sequences_(forward_),
        in_f64_(sequences_.in_f64()),
        group_(sequences_.group()),
        tile_rows_(attention_backward_tile_rows(in_f64_)) {
    auto* const memory = static_cast<double*>(workspace);
    terms_ = {memory, memory + q_rows(call)};
    starts_ = reinterpret_cast<int64_t*>(memory + 2 * q_rows(call));
  }

  DataError check_seqlens() const { return sequences_.check(); }

  // ---- the terms of queries: tasks of up to kTermsRows rows (token, head) of one batch entry ----------------------
  int64_t count_terms() const { return batch_entries(call_) * terms_per_entry(); }

  bool run_terms(int64_t index) const {
    const int64_t entry = index / terms_per_entry(), part = index % terms_per_entry();
    const AttentionSequence tokens = {entry, 0, queries_of(call_), 0, 0};
    const int64_t rows = queries_of(call_) * call_.Hq;
    const auto rows_of = [&](const Array& array) { return sequences_.rows(array, tokens, 0, 0, call_.Hq); };
    AttentionTermsTask task;
    task.in_f64 = in_f64_;
    task.out = rows_of(call_.out);
    task.grad_out = rows_of(call_.grad_out);
    task.lse = rows_of(call_.lse);
    task.grad_lse = rows_of(call_.grad_lse);
    task.terms = terms_from(entry * rows);
    task.head_size = call_.D;
    task.begin = part * kTermsRows;
    task.end = std::min(task.begin + kTermsRows, rows);
    return attention_terms_task(task);
  }

  // ---- tiles: of each sequence and key head first those of queries, then those of keys --------------------------
  int64_t plan_tiles() {
    if (!is_packed(call_)) return call_.B * call_.Hkv * tiles_of(sequences_[0]);
    starts_[0] = 0;
    for (int64_t b = 0; b < call_.B; ++b) starts_[b + 1] = starts_[b] + call_.Hkv * tiles_of(sequences_[b]);
    return starts_[call_.B];
  }

  bool run_tile(int64_t index) const {
    int64_t b = 0;
    if (is_packed(call_)) {
      b = std::upper_bound(starts_, starts_ + call_.B + 1, index) - starts_ - 1;
      index -= starts_[b];
    } else {
      const int64_t per_sequence = call_.Hkv * tiles_of(sequences_[0]);
      b = index / per_sequence;
      index %= per_sequence;
    }
    const AttentionSequence s = sequences_[b];
    const int64_t kv_head = index / tiles_of(s), tile = index % tiles_of(s);
    const AttentionWindow window = sequences_.window(s);
    const int64_t head = kv_head * group_, q_tiles = tiles(s.q_length * group_);
    const int64_t row = (is_packed(call_) ? 0 : s.batch * call_.Sq) + s.q_first;
    const auto of_queries = [&](const Array& array) { return sequences_.rows(array, s, s.q_first, head, group_); };
    const auto of_keys = [&](const Array& array) { return sequences_.rows(array, s, s.k_first, kv_head, 1); };
    AttentionBackwardTask task;
    task.in_f64 = in_f64_;
    task.of_keys = tile >= q_tiles;
    task.q = of_queries(call_.q);
    task.k = of_keys(call_.k);
    task.v = of_keys(call_.v);
    task.grad_out = of_queries(call_.grad_out);
    task.grad_q = of_queries(call_.grad_q);
    task.grad_k = of_keys(call_.grad_k);
    task.grad_v = of_keys(call_.grad_v);
    task.terms = terms_from(row * call_.Hq + head);
    task.terms_stride = call_.Hq;
    task.key_mask = sequences_.key_mask(s);
    task.head_size = call_.D;
    task.q_length = s.q_length;
    task.k_length = s.k_length;
    task.first_visible = window.first;
    task.last_visible = window.last;
    task.scale = sequences_.scale();
    task.softcap = call_.params.softcap;
    task.begin = (task.of_keys ? tile - q_tiles : tile) * tile_rows_;
    task.end = std::min(task.begin + tile_rows_, task.of_keys ? s.k_length : s.q_length * group_);
    return attention_backward_task(task);
  }

private:
  int64_t terms_per_entry() const { return (queries_of(call_) * call_.Hq + kTermsRows - 1) / kTermsRows; }
  int64_t tiles(int64_t rows) const { return (rows + tile_rows_ - 1) / tile_rows_; }
  int64_t tiles_of(const AttentionSequence& s) const { return tiles(s.q_length * group_) + tiles(s.k_length); }

  AttentionQueryTerms terms_from(int64_t row) const {
    const Dtype dtype = in_f64_ ? Dtype::f64 : Dtype::f32;
    return {element(terms_.lse, row, dtype), element(terms_.offset, row, dtype)};
  }

  const Call& call_;
  const AttentionCall forward_;
  const AttentionSequences sequences_;
  const bool in_f64_;
  const int64_t group_, tile_rows_;
  AttentionQueryTerms terms_;
  int64_t* starts_;
};

DataError attention_backward(const Call& call, const Context& context) {
  Tasks tasks(call, context.workspace);
  if (const DataError error = tasks.check_seqlens(); error.kind != kNoDataError) return all_nan(call, error);
  run_attention_tasks(context.parallel, tasks.count_terms(), [&](int64_t index) { return tasks.run_terms(index); });
  run_attention_tasks(context.parallel, tasks.plan_tiles(), [&](int64_t index) { return tasks.run_tile(index); });
  return {};
}

int64_t workspace(const Call& call) {
  return 2 * static_cast<int64_t>(sizeof(double)) * q_rows(call) +
         (is_packed(call) ? (call.B + 1) * static_cast<int64_t>(sizeof(int64_t)) : 0);
}

double operations(const Call& call) {
  return 14 * attention_pairs(call) * static_cast<double>(call.D);
}

}  // namespace

RLK_CPU_KERNEL(AttentionBackward, .run = attention_backward, .operations = operations, .workspace_bytes = workspace);

}  // namespace rlk::cpu
