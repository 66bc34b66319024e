// Sampling: one row, a few, and a batch, with the filters that are used. Bytes are the logits read once.
#include <rlk/sdk/ops/sample.hpp>

#include <vector>

#include "bench/cpu_bench.hpp"

namespace rlk::bench {
namespace {

enum Filter : int64_t { kNone, kTopK, kTopP, kTopKTopP, kMinP };

// Range: dtype, rows, vocabulary, filter.
void sample(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2);
  const Buffer logits(rows * vocab);
  std::vector<int64_t> row_ids(static_cast<size_t>(rows)), ids(row_ids);
  for (int64_t n = 0; n < rows; ++n) row_ids[static_cast<size_t>(n)] = n;
  cpu::CallOf<sdk::ops::Sample> call;
  call.N = rows;
  call.V = vocab;
  call.logits = {logits.data(), dtype_of(state), 2, {rows, vocab}, {vocab, 1}};
  call.row_ids = cpu::Array::vector(row_ids.data(), Dtype::i64);
  call.ids = cpu::Array::vector(ids.data(), Dtype::i64);
  call.params.temperature = 0.5;  // the random scores span 8
  const int64_t filter = state.range(3);
  if (filter == kTopK || filter == kTopKTopP) call.params.top_k = 50;
  if (filter == kTopP || filter == kTopKTopP) call.params.top_p = 0.9;
  if (filter == kMinP) call.params.min_p = 0.02;
  measure<sdk::ops::Sample>(state, call);
  set_bytes(state, rows * vocab * cpu::size_of(dtype_of(state)));
}

BENCHMARK(sample)
    ->ArgNames({"bf16", "N", "V", "filter"})
    ->ArgsProduct({{0, 1}, {1, 4}, {128256}, {kNone, kTopK, kTopP, kTopKTopP, kMinP}})
    ->ArgsProduct({{0, 1}, {64}, {151936}, {kNone, kTopKTopP, kTopP}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rlk::bench
