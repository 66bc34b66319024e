// Which rows and blocks of logp go where, and how block sums become log-probabilities. No SIMD here.
#include "core/cpu/logp/logp.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/logp/logp_sums.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Below this many rows the blocks of a row are spread over threads. Bits do not depend on it.
constexpr int64_t kFewRows = 64;
constexpr int64_t kGrainColumns = 32768;  // columns per task at least: several microseconds of work

int64_t blocks_of(int64_t vocab) {
  return (vocab + kLogpBlock - 1) / kLogpBlock;
}

struct Kernel {
  const LogpArgs& args;
  const Scores scores;
  FirstBadRow& bad;

  const void* row_of(int64_t n) const {
    return element(args.logits, args.rows.logits_row(n) * args.row_stride, args.dtype);
  }
  void put(int64_t n, double logp, double lse, double entropy) const {
    const Dtype wide = accumulator(args.dtype);
    store_element(args.logp, args.logp_dtype, n * args.logp_stride, logp);
    if (args.lse != nullptr) store_element(args.lse, wide, n * args.lse_stride, lse);
    if (args.entropy != nullptr) store_element(args.entropy, wide, n * args.entropy_stride, entropy);
  }
  // Writes rows that need no logits; false for the others.
  bool settled(int64_t n) const {
    if (args.rows.ignored(n)) {
      put(n, 0, 0, 0);
      return true;
    }
    if (args.rows.error(n).kind != kNoDataError) {
      bad.report(n);
      put(n, kNan, kNan, kNan);
      return true;
    }
    return false;
  }
  void finish(int64_t n, const RowSums& sums) const {
    if (sums.all_masked()) {
      if (args.rows.whole_vocabulary()) {
        bad.report(n);
        return put(n, kNan, kNan, kNan);
      }
      return put(n, -kInfinity, -kInfinity, 0);
    }
    const int64_t target = args.rows.id(n) - args.rows.vocab_start;
    const bool here = target >= 0 && target < args.rows.vocab;
    put(n, here ? sums.logp(capped_logit(scores, row_of(n), target)) : -kInfinity, sums.lse(),
        args.entropy != nullptr ? sums.entropy() : 0);
  }
  BlockSums block(int64_t n, int64_t index) const {
    const int64_t begin = index * kLogpBlock;
    const int64_t end = std::min(begin + kLogpBlock, args.rows.vocab);
    return block_sums(scores, row_of(n), begin, end, args.entropy != nullptr);
  }
};

void whole_rows(const Kernel& kernel, const ParallelFor& hook) {
  const int64_t blocks = blocks_of(kernel.args.rows.vocab);
  const int64_t grain = std::max<int64_t>(1, kGrainColumns / std::max<int64_t>(1, kernel.args.rows.vocab));
  parallel_for(hook, kernel.args.rows.n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (kernel.settled(n)) continue;
      RowSums sums(kernel.scores);
      for (int64_t b = 0; b < blocks; ++b) sums.add(kernel.block(n, b));
      kernel.finish(n, sums);
    }
  });
}

void split_rows(const Kernel& kernel, const ParallelFor& hook) {
  const LogpRows& rows = kernel.args.rows;
  const int64_t blocks = blocks_of(rows.vocab);
  auto* partial = static_cast<BlockSums*>(kernel.args.workspace);
  const auto needs_logits = [&rows](int64_t n) { return !rows.ignored(n) && rows.error(n).kind == kNoDataError; };
  parallel_for(hook, rows.n * blocks, kGrainColumns / kLogpBlock, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t n = item / blocks;
      if (needs_logits(n)) partial[item] = kernel.block(n, item % blocks);
    }
  });
  for (int64_t n = 0; n < rows.n; ++n) {
    if (kernel.settled(n)) continue;
    RowSums sums(kernel.scores);
    for (int64_t b = 0; b < blocks; ++b) sums.add(partial[n * blocks + b]);
    kernel.finish(n, sums);
  }
}

bool splits(int64_t n, int64_t vocab) {
  return n < kFewRows && blocks_of(vocab) > 1;
}

}  // namespace

DataError LogpRows::error(int64_t row) const {
  const int64_t token = id(row);
  if (token < 0 || token >= (global_vocab > 0 ? global_vocab : vocab)) return {kIdOutOfRange, row, token};
  const int64_t index = logits_row(row);
  if (index < 0 || index >= logits_rows) return {kRowOutOfRange, row, index};
  return {};
}

int64_t logp_workspace_bytes(int64_t n, int64_t vocab) {
  return splits(n, vocab) ? n * blocks_of(vocab) * static_cast<int64_t>(sizeof(BlockSums)) : 0;
}

DataError logp(const LogpArgs& args, const ParallelFor& hook) {
  FirstBadRow bad;
  const Kernel kernel{
      args, make_scores(args.dtype, args.temperature, args.softcap, args.col_stride, args.bias, args.bias_stride), bad};
  if (splits(args.rows.n, args.rows.vocab)) {
    split_rows(kernel, hook);
  } else {
    whole_rows(kernel, hook);
  }
  if (!bad.any()) return {};
  const DataError error = args.rows.error(bad.row());
  return error.kind != kNoDataError ? error : DataError{kNoFiniteLogit, bad.row(), 0};
}

}  // namespace rlk::cpu
