// What attention and its backward agree on: where a sequence lies, which keys a query sees, how a score is scaled.
#pragma once

#include <rlk/sdk/ops/attention.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/cpu/attention/attention_task.hpp"
#include "core/cpu/simd/data_error.hpp"
#include "core/cpu/simd/operator.hpp"
#include "core/cpu/simd/scratch.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

// In the second input of lengths that an operator has.
inline DataError in_second(DataError error) {
  if (error.kind == kBadSeqlens) error.kind = kBadSecondSeqlens;
  return error;
}

// A call of attention, or what its backward has of one.
using AttentionCall = CallOf<sdk::ops::Attention>;

struct AttentionSequence {
  int64_t batch, q_first, q_length, k_first, k_length;
};

// Query i sees keys max(0, i + first) .. min(k_length - 1, i + last), but masked ones.
struct AttentionWindow {
  int64_t first, last;
};

template <class Call>
bool is_packed(const Call& call) {
  return call.params.layout == sdk::ops::attention::Layout::packed;
}
// Tensors of one sequence after the other are one entry of the batch.
template <class Call>
int64_t batch_entries(const Call& call) {
  return is_packed(call) ? 1 : call.B;
}
// Of a batch entry.
template <class Call>
int64_t queries_of(const Call& call) {
  return is_packed(call) ? call.Tq : call.Sq;
}

// Pairs of query and key that see each other, roughly.
template <class Call>
double attention_pairs(const Call& call) {
  const auto queries = static_cast<double>(batch_entries(call) * queries_of(call) * call.Hq);
  const double keys = is_packed(call) ? static_cast<double>(call.Tk) / static_cast<double>(std::max<int64_t>(call.B, 1))
                                      : static_cast<double>(call.Sk);
  return queries * (call.params.causal == sdk::ops::attention::Causal::on ? keys / 2 : keys);
}

// Of the operators that are attention over keys of one kind or another, whose parameters have the same names.
template <class Call>
double attention_scale(const Call& call) {
  return call.params.scale > 0 ? call.params.scale : 1 / std::sqrt(static_cast<double>(call.D));
}
// Extreme parameters leave the range of fp32.
template <class Call>
bool attention_in_f64(const Call& call) {
  const double softcap = call.params.softcap;
  const bool ordinary_cap = softcap == 0 || (softcap > 0x1p-60 && softcap < 0x1p60);
  return call.q.dtype == Dtype::f64 || attention_scale(call) > 0x1p60 || !ordinary_cap;
}
// Of queries of which the first stands at key `diagonal`.
template <class Params>
AttentionWindow attention_window(const Params& params, int64_t diagonal) {
  constexpr int64_t kUnlimited = int64_t{1} << 60;  // positions stay far below; sums of two stay in range
  const auto limit = [&](int64_t window) { return window < 0 ? kUnlimited : std::min(window, kUnlimited); };
  const int64_t after = params.causal == decltype(params.causal)::on ? 0 : kUnlimited;
  return {diagonal - limit(params.window_left), diagonal + std::min(after, limit(params.window_right))};
}
// What all tasks of a call have in common.
template <class Call>
AttentionTask attention_task_of(const Call& call) {
  AttentionTask task{};
  task.in_f64 = attention_in_f64(call);
  task.head_size = call.D;
  task.scale = attention_scale(call);
  task.softcap = call.params.softcap;
  return task;
}
// Rows of a tensor [token, head, (D)] at the address: `group` heads of each token, from `head` on. The first of the
// tensor's dimensions that counts tokens is `axis`.
inline AttentionRows attention_rows(const Array& array, int64_t offset, int axis, int64_t head, int64_t group) {
  const int64_t* strides = array.strides + axis;
  return {array.dtype, element(array.data, offset + head * strides[1], array.dtype), strides[0], strides[1], strides[2],
          group};
}

class AttentionSequences {
public:
  explicit AttentionSequences(const AttentionCall& call) : call_(call) {}

  double scale() const { return attention_scale(call_); }
  bool in_f64() const { return attention_in_f64(call_); }
  int64_t group() const { return call_.Hq / call_.Hkv; }

  DataError check() const {
    if (!is_packed(call_)) return {};
    const DataError error = check_seqlens(call_.cu_seqlens_q.integers(), call_.B, call_.Tq);
    if (error.kind != kNoDataError) return error;
    return in_second(check_seqlens(call_.cu_seqlens_k.integers(), call_.B, call_.Tk));
  }

  AttentionSequence operator[](int64_t b) const {
    if (!is_packed(call_)) return {b, 0, call_.Sq, 0, call_.Sk};
    const int64_t q = call_.cu_seqlens_q.integer(b), k = call_.cu_seqlens_k.integer(b);
    return {b, q, call_.cu_seqlens_q.integer(b + 1) - q, k, call_.cu_seqlens_k.integer(b + 1) - k};
  }

  AttentionWindow window(const AttentionSequence& s) const {
    const bool top_left = call_.params.causal_alignment == sdk::ops::attention::CausalAlignment::top_left;
    const int64_t diagonal = top_left ? 0 : s.k_length - s.q_length;
    return attention_window(call_.params, diagonal);
  }

  // Rows of a tensor [B, S, H, (D)] or [T, H, (D)]: `group` heads of each token, from the sequence's token and a head
  // on.
  AttentionRows rows(const Array& array, const AttentionSequence& s, int64_t token, int64_t head, int64_t group) const {
    const int axis = is_packed(call_) ? 0 : 1;
    const int64_t batch = is_packed(call_) ? 0 : s.batch * array.strides[0];
    return attention_rows(array, batch + token * array.strides[axis], axis, head, group);
  }
  Line key_mask(const AttentionSequence& s) const {
    const Array& mask = call_.key_mask;
    return {element(mask.data, s.batch * mask.strides[0], mask.dtype), mask.dtype, mask.strides[1]};
  }

private:
  const AttentionCall& call_;
};

// Calls run(task) of every task.
template <typename Run>
void run_attention_tasks(const ParallelFor& hook, int64_t tasks, Run&& run) {
  std::atomic<bool> had_memory{true};
  parallel_for(hook, tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      if (!run(task)) had_memory.store(false, std::memory_order_relaxed);
    }
  });
  if (!had_memory.load()) throw_no_scratch();
}

}  // namespace rlk::cpu
