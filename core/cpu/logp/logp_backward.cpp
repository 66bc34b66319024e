// Which token owns which logits row, and which blocks go where, in the backward of logp. No SIMD here.
#include "core/cpu/logp/logp_backward.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/cpu/logp/logp_backward_block.hpp"
#include "core/cpu/logp/logp_rows.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::LogpBackward>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kGrainColumns = 32768;  // columns per task at least
constexpr int64_t kBiasColumns = 2048;    // a task's columns with grad_bias: 16 KiB of fp64 sums

constexpr int64_t kNobody = -1;    // no active row owns the logits row: its gradient is 0
constexpr int64_t kBadOwner = -2;  // a row in error names it: NaN

class Gradients {
public:
  Gradients(const Call& call, void* workspace, FirstBadRow& bad)
      : call_(call),
        scores_(make_scores(call.logits.dtype, call.params.temperature, call.params.softcap, call.logits.strides[1],
                            call.bias)),
        bad_(bad),
        owners_(call.row_indices.present() ? static_cast<int64_t*>(workspace) : nullptr),
        seen_(static_cast<uint8_t*>(workspace) + (owners_ != nullptr ? call.R * 8 : 0)) {
    std::fill(seen_, seen_ + call.R, uint8_t{0});
    if (owners_ != nullptr) assign_owners();
  }

  // Columns [begin, end) of logits row r.
  void block(int64_t r, int64_t begin, int64_t end, double* bias_sums) const {
    const int64_t n = owner(r);
    if (n < 0) return fill(r, begin, end, n == kNobody ? 0.0 : kNan);
    const Array& logits = call_.logits;
    const bool any =
        gradient_block(scores_.of_row(call_.keep_mask, r), element(logits.data, r * logits.strides[0], logits.dtype),
                       logits.strides[0], begin, end, gradient(n), line_of(call_.grad_logits, r), bias_sums);
    std::atomic_ref<uint8_t> seen(seen_[r]);
    if (any && seen.load(std::memory_order_relaxed) == 0) seen.store(1, std::memory_order_relaxed);
  }

  // After all blocks: rows without any finite score, which only the whole row shows.
  void finish_rows() const {
    if (!has_whole_vocabulary(call_)) return;
    for (int64_t r = 0; r < call_.R; ++r) {
      if (seen_[r] != 0) continue;
      const int64_t n = owner(r);
      if (n < 0) continue;
      bad_.report(n);
      fill(r, 0, call_.V, kNan);
    }
  }

  DataError error() const {
    if (!bad_.any()) return {};
    const int64_t n = bad_.row();
    const DataError error = row_error(call_, n);
    if (error.kind != kNoDataError) return error;
    if (n == disordered_) return {kRowOutOfRange, n, logits_row(call_, n)};
    return {kNoFiniteLogit, n, 0};
  }

private:
  // One pass over the rows in order; a logits row named twice, or after a later one, gets kBadOwner.
  void assign_owners() {
    std::fill(owners_, owners_ + call_.R, kNobody);
    int64_t previous = -1;
    for (int64_t n = 0; n < call_.N; ++n) {
      if (is_ignored(call_, n)) continue;
      const DataError error = row_error(call_, n);
      const int64_t r = logits_row(call_, n);
      if (error.kind != kNoDataError) bad_.report(n);
      if (r < 0 || r >= call_.R) continue;
      const bool in_order = r > previous;
      owners_[r] = in_order && error.kind == kNoDataError ? n : kBadOwner;
      if (!in_order && error.kind == kNoDataError) {
        bad_.report(n);
        if (disordered_ < 0) disordered_ = n;
      }
      previous = std::max(previous, r);
    }
  }

  int64_t owner(int64_t r) const {
    if (owners_ != nullptr) return owners_[r];
    if (r >= call_.N) return kNobody;  // row_indices of no rows have no address
    if (is_ignored(call_, r)) return kNobody;
    if (row_error(call_, r).kind == kNoDataError) return r;
    bad_.report(r);
    return kBadOwner;
  }

  RowGradient gradient(int64_t n) const { return row_gradient(call_, n); }

  void* grad_row(int64_t r) const {
    return element(call_.grad_logits.data, r * call_.grad_logits.strides[0], call_.logits.dtype);
  }

  void fill(int64_t r, int64_t begin, int64_t end, double value) const {
    const Dtype dtype = call_.logits.dtype;
    if (value == 0 && call_.grad_logits.strides[1] == 1) {
      std::memset(element(grad_row(r), begin, dtype), 0, static_cast<size_t>((end - begin) * size_of(dtype)));
      return;
    }
    for (int64_t v = begin; v < end; ++v) call_.grad_logits.put(r, v, value);
  }

  const Call& call_;
  const Scores scores_;
  FirstBadRow& bad_;
  int64_t* owners_;  // [R], with row_indices
  uint8_t* seen_;    // [R]: a score that is not -inf was seen
  int64_t disordered_ = -1;
};

void without_bias(const Call& call, const Gradients& gradients, const ParallelFor& hook) {
  const int64_t blocks = (call.V + kLogpBlock - 1) / kLogpBlock;
  const int64_t grain = std::max<int64_t>(1, kGrainColumns / std::min(call.V, kLogpBlock));
  parallel_for(hook, call.R * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % blocks * kLogpBlock;
      gradients.block(item / blocks, first, std::min(first + kLogpBlock, call.V), nullptr);
    }
  });
  gradients.finish_rows();
}

void with_bias(const Call& call, const Gradients& gradients, const ParallelFor& hook) {
  parallel_for(hook, (call.V + kBiasColumns - 1) / kBiasColumns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item * kBiasColumns, last = std::min(first + kBiasColumns, call.V);
      alignas(64) double sums[kBiasColumns] = {};
      for (int64_t r = 0; r < call.R; ++r) gradients.block(r, first, last, sums);
      for (int64_t v = first; v < last; ++v) call.grad_bias.put(v, sums[v - first]);
    }
  });
  gradients.finish_rows();
  if (gradients.error().kind == kNoDataError) return;
  for (int64_t v = 0; v < call.V; ++v) call.grad_bias.put(v, kNan);
}

int64_t workspace(const Call& call) {
  return logp_backward_workspace_bytes(call.R, call.row_indices.given());
}

double operations(const Call& call) {
  return static_cast<double>(call.R) * static_cast<double>(call.V) * 25;
}

constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", kLogpBlock + 1}};  // a second block of columns

}  // namespace

int64_t logp_backward_workspace_bytes(int64_t logits_rows, bool has_row_indices) {
  return logits_rows * (has_row_indices ? 9 : 1);
}

DataError logp_backward(const Call& call, const Context& context) {
  FirstBadRow bad;
  const Gradients gradients(call, context.workspace, bad);
  if (call.grad_bias.present()) {
    with_bias(call, gradients, context.parallel);
  } else {
    without_bias(call, gradients, context.parallel);
  }
  return gradients.error();
}

RLK_CPU_KERNEL(LogpBackward, .run = logp_backward, .operations = operations, .workspace_bytes = workspace,
               .switches = kSwitches);

}  // namespace rlk::cpu
