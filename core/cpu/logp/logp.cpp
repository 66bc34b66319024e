// Which rows and blocks of logp go where, and how block sums become log-probabilities. No SIMD here.
#include "core/cpu/logp/logp.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/logp/logp_rows.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::Logp>;

// Below this many rows the blocks of a row are spread over threads. Bits do not depend on it.
constexpr int64_t kFewRows = 64;
constexpr int64_t kGrainColumns = 32768;  // columns per task at least: several microseconds of work

int64_t blocks_of(int64_t vocab) {
  return (vocab + kLogpBlock - 1) / kLogpBlock;
}
bool splits(int64_t n, int64_t vocab) {
  return n < kFewRows && blocks_of(vocab) > 1;
}

struct Rows {
  const Call& call;
  const Scores scores;
  FirstBadRow& bad;

  BlockSums block(int64_t n, int64_t index) const {
    const int64_t begin = index * kLogpBlock;
    const int64_t end = std::min(begin + kLogpBlock, call.V);
    return block_sums(scores_of(n), row_of(n), begin, end, sums_for(call.entropy.present(), call.sum_p2.present()));
  }
  void finish(int64_t n, const RowSums& sums) const {
    finish_row(call, n, sums, bad, [&](int64_t column) { return capped_logit(scores_of(n), row_of(n), column); });
  }

private:
  Scores scores_of(int64_t n) const { return scores.of_row(call.keep_mask, logits_row(call, n)); }
  const void* row_of(int64_t n) const {
    return element(call.logits.data, logits_row(call, n) * call.logits.strides[0], call.logits.dtype);
  }
};

void whole_rows(const Rows& rows, const ParallelFor& hook) {
  const int64_t vocab = rows.call.V, blocks = blocks_of(vocab);
  const int64_t grain = std::max<int64_t>(1, kGrainColumns / std::max<int64_t>(1, vocab));
  parallel_for(hook, rows.call.N, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (settled(rows.call, n, rows.bad)) continue;
      RowSums sums(rows.scores);
      for (int64_t b = 0; b < blocks; ++b) sums.add(rows.block(n, b));
      rows.finish(n, sums);
    }
  });
}

void split_rows(const Rows& rows, const Context& context) {
  const Call& call = rows.call;
  const int64_t blocks = blocks_of(call.V);
  auto* partial = static_cast<BlockSums*>(context.workspace);
  parallel_for(context.parallel, call.N * blocks, kGrainColumns / kLogpBlock, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t n = item / blocks;
      if (is_ignored(call, n) || row_error(call, n).kind != kNoDataError) continue;
      partial[item] = rows.block(n, item % blocks);
    }
  });
  for (int64_t n = 0; n < call.N; ++n) {
    if (settled(call, n, rows.bad)) continue;
    RowSums sums(rows.scores);
    for (int64_t b = 0; b < blocks; ++b) sums.add(partial[n * blocks + b]);
    rows.finish(n, sums);
  }
}

int64_t workspace(const Call& call) {
  return logp_workspace_bytes(call.N, call.V);
}

double operations(const Call& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.V) * 20;
}

// A second block of columns, and so many rows that blocks of one row are no longer spread over threads.
constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", kLogpBlock + 1},
                                    {sizeof(rlk_switch), 0, "N", kFewRows}};

}  // namespace

int64_t logp_workspace_bytes(int64_t n, int64_t vocab) {
  return splits(n, vocab) ? n * blocks_of(vocab) * static_cast<int64_t>(sizeof(BlockSums)) : 0;
}

DataError logp(const Call& call, const Context& context) {
  FirstBadRow bad;
  const Rows rows{
      call,
      make_scores(call.logits.dtype, call.params.temperature, call.params.softcap, call.logits.strides[1], call.bias),
      bad};
  if (splits(call.N, call.V)) {
    split_rows(rows, context);
  } else {
    whole_rows(rows, context.parallel);
  }
  return first_error(call, bad);
}

RLK_CPU_KERNEL(Logp, .run = logp, .operations = operations, .workspace_bytes = workspace, .switches = kSwitches);

}  // namespace rlk::cpu
