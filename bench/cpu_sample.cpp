// Sampling: one row, a few, and a batch, with the filters that are used. Bytes are the logits read once.
#include <vector>

#include "bench/cpu_bench.hpp"
#include "core/cpu/sampling/sample.hpp"

namespace rlk::bench {
namespace {

enum Filter : int64_t { kNone, kTopK, kTopP, kTopKTopP, kMinP };

// Range: dtype, rows, vocabulary, filter.
void sample(State& state) {
  const int64_t rows = state.range(1), vocab = state.range(2);
  const Buffer logits(rows * vocab);
  std::vector<int64_t> row_ids(static_cast<size_t>(rows)), ids(row_ids);
  for (int64_t n = 0; n < rows; ++n) row_ids[static_cast<size_t>(n)] = n;
  std::vector<int64_t> workspace = words(cpu::sample_workspace_bytes(rows, vocab, false, kPool.threads));
  cpu::SampleArgs args;
  args.n = rows;
  args.vocab = vocab;
  args.dtype = dtype_of(state);
  args.logits = logits.data();
  args.row_stride = vocab;
  args.row_ids.data = row_ids.data();
  args.temperature.scalar = 0.5;  // the random scores span 8
  const int64_t filter = state.range(3);
  if (filter == kTopK || filter == kTopKTopP) args.top_k.scalar = 50;
  if (filter == kTopP || filter == kTopKTopP) args.top_p.scalar = 0.9;
  if (filter == kMinP) args.min_p.scalar = 0.02;
  args.ids = ids.data();
  args.workspace = workspace.data();
  for (auto _ : state) cpu::sample(args, kPool);
  set_bytes(state, rows * vocab * cpu::size_of(args.dtype));
}

BENCHMARK(sample)
    ->ArgNames({"bf16", "N", "V", "filter"})
    ->ArgsProduct({{0, 1}, {1, 4}, {128256}, {kNone, kTopK, kTopP, kTopKTopP, kMinP}})
    ->ArgsProduct({{0, 1}, {64}, {151936}, {kNone, kTopKTopP, kTopP}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rlk::bench
