// Who owns which logits row, and which blocks go where, in the backward of logp. No SIMD here.
#include "core/cpu/logp/logp_backward.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/cpu/logp/logp_backward_block.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kGrainColumns = 32768;  // columns per task at least
constexpr int64_t kBiasColumns = 2048;    // a task's columns with grad_bias: 16 KiB of fp64 sums

constexpr int64_t kNobody = -1;    // no active row owns the logits row: its gradient is 0
constexpr int64_t kBadOwner = -2;  // a row in error names it: NaN

class Kernel {
public:
  Kernel(const LogpBackwardArgs& args, FirstBadRow& bad)
      : args_(args),
        scores_(make_scores(args.dtype, args.temperature, args.softcap, args.col_stride, args.bias, args.bias_stride)),
        bad_(bad),
        owners_(args.rows.row_indices != nullptr ? static_cast<int64_t*>(args.workspace) : nullptr),
        seen_(static_cast<uint8_t*>(args.workspace) + (owners_ != nullptr ? args.rows.logits_rows * 8 : 0)) {
    std::fill(seen_, seen_ + args.rows.logits_rows, uint8_t{0});
    if (owners_ != nullptr) assign_owners();
  }

  // Columns [begin, end) of logits row r.
  void block(int64_t r, int64_t begin, int64_t end, double* bias_sums) const {
    const int64_t n = owner(r);
    if (n < 0) return fill(r, begin, end, n == kNobody ? 0.0 : kNan);
    const bool any = gradient_block(scores_, element(args_.logits, r * args_.row_stride, args_.dtype), args_.row_stride,
                                    begin, end, gradient(n), grad_row(r), args_.grad_col_stride, bias_sums);
    std::atomic_ref<uint8_t> seen(seen_[r]);
    if (any && seen.load(std::memory_order_relaxed) == 0) seen.store(1, std::memory_order_relaxed);
  }

  // After all blocks: rows without any finite score, which only the whole row shows.
  void finish_rows() const {
    if (!args_.rows.whole_vocabulary()) return;
    for (int64_t r = 0; r < args_.rows.logits_rows; ++r) {
      if (seen_[r] != 0) continue;
      const int64_t n = owner(r);
      if (n < 0) continue;
      bad_.report(n);
      fill(r, 0, args_.rows.vocab, kNan);
    }
  }

  DataError error() const {
    if (!bad_.any()) return {};
    const int64_t n = bad_.row();
    const DataError error = args_.rows.error(n);
    if (error.kind != kNoDataError) return error;
    if (n == disordered_) return {kRowOutOfRange, n, args_.rows.logits_row(n)};
    return {kNoFiniteLogit, n, 0};
  }

private:
  // One pass over the rows in order; a logits row named twice, or after a later one, belongs to nobody.
  void assign_owners() {
    std::fill(owners_, owners_ + args_.rows.logits_rows, kNobody);
    int64_t previous = -1;
    for (int64_t n = 0; n < args_.rows.n; ++n) {
      if (args_.rows.ignored(n)) continue;
      const DataError error = args_.rows.error(n);
      const int64_t r = args_.rows.logits_row(n);
      if (error.kind != kNoDataError) bad_.report(n);
      if (r < 0 || r >= args_.rows.logits_rows) continue;
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
    if (r >= args_.rows.n) return kNobody;  // row_indices of no rows have no address
    if (args_.rows.ignored(r)) return kNobody;
    if (args_.rows.error(r).kind == kNoDataError) return r;
    bad_.report(r);
    return kBadOwner;
  }

  RowGradient gradient(int64_t n) const {
    const Dtype wide = accumulator(args_.dtype);
    const auto load = [n](const void* base, Dtype dtype, int64_t stride) {
      return base != nullptr ? load_element(base, dtype, n * stride) : 0.0;
    };
    return {load(args_.lse, wide, args_.lse_stride),
            load(args_.grad_logp, args_.grad_logp_dtype, args_.grad_logp_stride),
            load(args_.grad_lse, wide, args_.grad_lse_stride),
            load(args_.grad_entropy, wide, args_.grad_entropy_stride),
            load(args_.entropy, wide, args_.entropy_stride),
            args_.rows.id(n) - args_.rows.vocab_start};
  }

  void* grad_row(int64_t r) const { return element(args_.grad_logits, r * args_.grad_row_stride, args_.dtype); }

  void fill(int64_t r, int64_t begin, int64_t end, double value) const {
    void* row = grad_row(r);
    if (value == 0 && args_.grad_col_stride == 1) {
      std::memset(element(row, begin, args_.dtype), 0, static_cast<size_t>((end - begin) * size_of(args_.dtype)));
      return;
    }
    for (int64_t v = begin; v < end; ++v) store_element(row, args_.dtype, v * args_.grad_col_stride, value);
  }

  const LogpBackwardArgs& args_;
  const Scores scores_;
  FirstBadRow& bad_;
  int64_t* owners_;  // [R], with row_indices
  uint8_t* seen_;    // [R]: a score that is not -inf was seen
  int64_t disordered_ = -1;
};

void without_bias(const LogpBackwardArgs& args, const Kernel& kernel, const ParallelFor& hook) {
  const int64_t vocab = args.rows.vocab;
  const int64_t blocks = (vocab + kLogpBlock - 1) / kLogpBlock;
  const int64_t grain = std::max<int64_t>(1, kGrainColumns / std::min(vocab, kLogpBlock));
  parallel_for(hook, args.rows.logits_rows * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % blocks * kLogpBlock;
      kernel.block(item / blocks, first, std::min(first + kLogpBlock, vocab), nullptr);
    }
  });
  kernel.finish_rows();
}

void with_bias(const LogpBackwardArgs& args, const Kernel& kernel, const ParallelFor& hook) {
  const int64_t vocab = args.rows.vocab;
  const Dtype wide = accumulator(args.dtype);
  parallel_for(hook, (vocab + kBiasColumns - 1) / kBiasColumns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item * kBiasColumns, last = std::min(first + kBiasColumns, vocab);
      alignas(64) double sums[kBiasColumns] = {};
      for (int64_t r = 0; r < args.rows.logits_rows; ++r) kernel.block(r, first, last, sums);
      for (int64_t v = first; v < last; ++v) {
        store_element(args.grad_bias, wide, v * args.grad_bias_stride, sums[v - first]);
      }
    }
  });
  kernel.finish_rows();
  if (kernel.error().kind == kNoDataError) return;
  for (int64_t v = 0; v < vocab; ++v) store_element(args.grad_bias, wide, v * args.grad_bias_stride, kNan);
}

}  // namespace

int64_t logp_backward_workspace_bytes(int64_t logits_rows, bool has_row_indices) {
  return logits_rows * (has_row_indices ? 9 : 1);
}

DataError logp_backward(const LogpBackwardArgs& args, const ParallelFor& hook) {
  FirstBadRow bad;
  const Kernel kernel(args, bad);
  if (args.grad_bias != nullptr) {
    with_bias(args, kernel, hook);
  } else {
    without_bias(args, kernel, hook);
  }
  return kernel.error();
}

}  // namespace rlk::cpu
