// Which sequences, heads and tiles of the backward of attention go where. No SIMD here.
#include "core/cpu/attention/attention_backward.hpp"

#include <algorithm>

#include "core/cpu/attention/attention_backward_task.hpp"
#include "core/cpu/attention/attention_sequences.hpp"

namespace rlk::cpu {
namespace {

constexpr int64_t kTermsRows = 256;  // a task's

class Kernel {
public:
  explicit Kernel(const AttentionBackwardArgs& args)
      : args_(args),
        forward_(args.forward),
        sequences_(args.forward),
        in_f64_(sequences_.in_f64()),
        group_(sequences_.group()),
        tile_rows_(attention_backward_tile_rows(in_f64_)) {
    // Workspace: what queries have to themselves, then the numbers of tiles before each sequence.
    const int64_t q_rows = token_rows() * forward_.q_heads;
    auto* const memory = static_cast<double*>(forward_.workspace);
    terms_ = {memory, memory + q_rows};
    starts_ = reinterpret_cast<int64_t*>(memory + 2 * q_rows);
  }

  DataError check_seqlens() const { return sequences_.check(); }

  void fill_nan() const {
    sequences_.fill_nan(args_.grad_q, forward_.q_tokens, forward_.q_heads, forward_.head_size, forward_.dtype);
    sequences_.fill_nan(args_.grad_k, forward_.k_tokens, forward_.kv_heads, forward_.head_size, forward_.dtype);
    sequences_.fill_nan(args_.grad_v, forward_.k_tokens, forward_.kv_heads, forward_.head_size, forward_.dtype);
  }

  // ---- the terms of queries: tasks of up to kTermsRows rows (token, head) of one batch entry ----------------------
  int64_t terms_tasks() const { return batch_entries() * terms_per_entry(); }

  bool run_terms(int64_t index) const {
    const int64_t entry = index / terms_per_entry(), part = index % terms_per_entry();
    const AttentionSequence tokens = {entry, 0, forward_.q_tokens, 0, 0};
    const int64_t rows = forward_.q_tokens * forward_.q_heads;
    AttentionTermsTask task;
    task.in_f64 = in_f64_;
    task.out = rows_of(forward_.out, tokens, 0, 0, forward_.q_heads);
    task.grad_out = rows_of(args_.grad_out, tokens, 0, 0, forward_.q_heads);
    task.lse = sequences_.row(forward_.lse, tokens, 0, 0, accumulator(forward_.dtype));
    task.grad_lse = sequences_.row(args_.grad_lse, tokens, 0, 0, accumulator(forward_.dtype));
    task.lse_token_stride = forward_.lse.token_stride;
    task.lse_head_stride = forward_.lse.head_stride;
    task.grad_lse_token_stride = args_.grad_lse.token_stride;
    task.grad_lse_head_stride = args_.grad_lse.head_stride;
    task.terms = terms_from(entry * rows);
    task.head_size = forward_.head_size;
    task.begin = part * kTermsRows;
    task.end = std::min(task.begin + kTermsRows, rows);
    return attention_terms_task(task);
  }

  // ---- tiles: of each sequence and key head first those of queries, then those of keys --------------------------
  int64_t plan_tiles() {
    if (!forward_.packed) return forward_.batch * forward_.kv_heads * tiles_of(sequences_[0]);
    starts_[0] = 0;
    for (int64_t b = 0; b < forward_.batch; ++b) {
      starts_[b + 1] = starts_[b] + forward_.kv_heads * tiles_of(sequences_[b]);
    }
    return starts_[forward_.batch];
  }

  bool run_tile(int64_t index) const {
    int64_t b = 0;
    if (forward_.packed) {
      b = std::upper_bound(starts_, starts_ + forward_.batch + 1, index) - starts_ - 1;
      index -= starts_[b];
    } else {
      const int64_t per_sequence = forward_.kv_heads * tiles_of(sequences_[0]);
      b = index / per_sequence;
      index %= per_sequence;
    }
    const AttentionSequence s = sequences_[b];
    const int64_t kv_head = index / tiles_of(s), tile = index % tiles_of(s);
    const AttentionWindow window = sequences_.window(s);
    const int64_t head = kv_head * group_, q_tiles = tiles(s.q_length * group_);
    const int64_t row = (forward_.packed ? 0 : s.batch * forward_.q_tokens) + s.q_first;
    AttentionBackwardTask task;
    task.in_f64 = in_f64_;
    task.of_keys = tile >= q_tiles;
    task.q = rows_of(forward_.q, s, s.q_first, head, group_);
    task.k = rows_of(forward_.k, s, s.k_first, kv_head, 1);
    task.v = rows_of(forward_.v, s, s.k_first, kv_head, 1);
    task.grad_out = rows_of(args_.grad_out, s, s.q_first, head, group_);
    task.grad_q = rows_of(args_.grad_q, s, s.q_first, head, group_);
    task.grad_k = rows_of(args_.grad_k, s, s.k_first, kv_head, 1);
    task.grad_v = rows_of(args_.grad_v, s, s.k_first, kv_head, 1);
    task.terms = terms_from(row * forward_.q_heads + head);
    task.terms_stride = forward_.q_heads;
    task.key_mask = sequences_.key_mask(s);
    task.key_mask_stride = forward_.key_mask_token_stride;
    task.head_size = forward_.head_size;
    task.q_length = s.q_length;
    task.k_length = s.k_length;
    task.first_visible = window.first;
    task.last_visible = window.last;
    task.scale = sequences_.scale();
    task.softcap = forward_.softcap;
    task.begin = (task.of_keys ? tile - q_tiles : tile) * tile_rows_;
    task.end = std::min(task.begin + tile_rows_, task.of_keys ? s.k_length : s.q_length * group_);
    return attention_backward_task(task);
  }

private:
  int64_t batch_entries() const { return forward_.packed ? 1 : forward_.batch; }
  int64_t token_rows() const { return batch_entries() * forward_.q_tokens; }
  int64_t terms_per_entry() const { return (forward_.q_tokens * forward_.q_heads + kTermsRows - 1) / kTermsRows; }
  int64_t tiles(int64_t rows) const { return (rows + tile_rows_ - 1) / tile_rows_; }
  int64_t tiles_of(const AttentionSequence& s) const { return tiles(s.q_length * group_) + tiles(s.k_length); }

  AttentionRows rows_of(const AttentionTensor& tensor, const AttentionSequence& s, int64_t token, int64_t head,
                        int64_t group) const {
    return {forward_.dtype,      sequences_.row(tensor, s, token, head, forward_.dtype),
            tensor.token_stride, tensor.head_stride,
            tensor.d_stride,     group};
  }
  AttentionQueryTerms terms_from(int64_t row) const {
    const Dtype dtype = in_f64_ ? Dtype::f64 : Dtype::f32;
    return {element(terms_.lse, row, dtype), element(terms_.offset, row, dtype)};
  }

  const AttentionBackwardArgs& args_;
  const AttentionArgs& forward_;
  const AttentionSequences sequences_;
  const bool in_f64_;
  const int64_t group_, tile_rows_;
  AttentionQueryTerms terms_;
  int64_t* starts_;
};

}  // namespace

int64_t attention_backward_workspace_bytes(int64_t batch, int64_t q_rows, bool packed) {
  return 16 * q_rows + (packed ? (batch + 1) * 8 : 0);
}

AttentionStatus attention_backward(const AttentionBackwardArgs& args, const ParallelFor& hook, DataError* error) {
  Kernel kernel(args);
  *error = kernel.check_seqlens();
  if (error->kind != kNoDataError) {
    kernel.fill_nan();
    return AttentionStatus::ok;
  }
  std::atomic<bool> had_memory{true};
  const auto for_each = [&](int64_t tasks, auto&& run) {
    parallel_for(hook, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t index = begin; index < end; ++index) {
        if (!run(index)) had_memory.store(false, std::memory_order_relaxed);
      }
    });
  };
  for_each(kernel.terms_tasks(), [&](int64_t index) { return kernel.run_terms(index); });
  for_each(kernel.plan_tiles(), [&](int64_t index) { return kernel.run_tile(index); });
  return had_memory.load() ? AttentionStatus::ok : AttentionStatus::out_of_memory;
}

}  // namespace rlk::cpu
