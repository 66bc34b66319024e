// Each chunk is walked from a = 0 first, which says what it adds and how often it multiplies what comes in by the
// decay; these few numbers are composed from the end of the sequence on; then every chunk is walked again from the
// right a.
#include "core/cpu/advantages/reverse_scan.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::cpu {
namespace {

constexpr int64_t kChunk = 2048;  // tokens
using MaskRule = ReverseScanArgs::MaskRule;

struct State {
  double next_value, sum;
};

struct Chunk {
  int64_t b, first, last;  // of sequence b the tokens first .. last
  double value;            // v' for the chunk before this one
  double sum;              // what the chunk adds, later what comes into it
  int64_t steps;           // how often what comes into it is multiplied by the decay
  int32_t passes_value;    // the chunk has no value: v' is that of the chunk behind
  int32_t resets;          // nothing that comes in leaves
};
static_assert(sizeof(Chunk) % 8 == 0);

class Scan {
public:
  explicit Scan(const ReverseScanArgs& args) : args_(args) {}

  // One past the last active token.
  int64_t end_of(int64_t b) const {
    int64_t end = args_.sequences.tokens(b);
    while (end > 0 && !args_.mask.keeps(args_.sequences.at(b, end - 1))) --end;
    return end;
  }

  State start_of(int64_t b) const {
    return {args_.start_value.present() ? args_.start_value.get(b) : 0,
            args_.start_sum.present() ? args_.start_sum.get(b) : 0};
  }

  void walk(int64_t b, int64_t first, int64_t last, State state) const {
    for (int64_t t = last - 1; t >= first; --t) {
      const Position at = args_.sequences.at(b, t);
      const bool kept = step(state, at);
      args_.sums.put(at, kept ? state.sum : 0);
      if (args_.targets.present()) args_.targets.put(at, kept ? state.sum + state.next_value : 0);
    }
  }

  void clear(int64_t b, int64_t first) const {
    for (int64_t t = first; t < args_.sequences.tokens(b); ++t) {
      args_.sums.put(args_.sequences.at(b, t), 0);
      if (args_.targets.present()) args_.targets.put(args_.sequences.at(b, t), 0);
    }
  }

  // The value that the chunk before this one starts with, where it is in this chunk.
  void find_value(Chunk& chunk) const {
    chunk.passes_value = args_.mask_rule == MaskRule::carry ? 1 : 0;
    chunk.value = 0;
    for (int64_t t = chunk.first; t < chunk.last; ++t) {
      const Position at = args_.sequences.at(chunk.b, t);
      if (args_.mask.keeps(at)) {
        chunk.value = value_at(at);
        chunk.passes_value = 0;
        return;
      }
      if (args_.mask_rule != MaskRule::carry) return;
    }
  }

  // What the chunk adds and what it does to what comes in, given the value behind it.
  void summarise(Chunk& chunk, double next_value) const {
    State state = {next_value, 0};
    chunk.steps = 0;
    chunk.resets = 0;
    for (int64_t t = chunk.last - 1; t >= chunk.first; --t) {
      const bool kept = step(state, args_.sequences.at(chunk.b, t));
      if (kept || args_.mask_rule == MaskRule::zero) ++chunk.steps;
      if (!kept && args_.mask_rule == MaskRule::reset) chunk.resets = 1;
    }
    chunk.sum = state.sum;
  }

  // What leaves a chunk. Where a term of the sum leaves fp64, an infinity may still meet a decay of 0 or its opposite
  // in the recursion, or terms cancel before they grow: it is walked.
  double composed(const Chunk& chunk, double next_value, double incoming) const {
    if (chunk.resets != 0 || incoming == 0) return chunk.sum;
    if (std::isnan(incoming)) return incoming;
    const double sum = chunk.sum + decayed(incoming, chunk.steps);
    if (std::isfinite(sum)) return sum;
    State state = {next_value, incoming};
    for (int64_t t = chunk.last - 1; t >= chunk.first; --t) step(state, args_.sequences.at(chunk.b, t));
    return state.sum;
  }

private:
  // number * decay^steps, which is often a number where decay^steps is 0 or infinite.
  double decayed(double number, int64_t steps) const {
    int number_exponent = 0, decay_exponent = 0;
    double fraction = std::frexp(number, &number_exponent);
    const double decay_fraction = std::frexp(args_.decay, &decay_exponent);
    int64_t exponent = number_exponent + steps * decay_exponent;
    constexpr int64_t kPiece = 512;  // powers of a fraction of at least 1/2 are normal numbers
    for (; steps > 0; steps -= kPiece) {
      int piece_exponent = 0;
      const double power = std::pow(decay_fraction, static_cast<double>(std::min(steps, kPiece)));
      fraction = std::frexp(fraction * power, &piece_exponent);
      exponent += piece_exponent;
    }
    return std::ldexp(fraction, static_cast<int>(std::clamp<int64_t>(exponent, -4096, 4096)));
  }

  double value_at(Position at) const { return args_.values.present() ? args_.values.get(at) : 0; }

  // From the token behind to this one; whether it is active.
  bool step(State& state, Position at) const {
    const bool kept = args_.mask.keeps(at);
    if (!kept && args_.mask_rule == MaskRule::carry) return false;
    if (!kept && args_.mask_rule == MaskRule::reset) {
      state = {0, 0};
      return false;
    }
    const double value = kept ? value_at(at) : 0;
    const double delta = (kept ? args_.rewards.get(at) : 0) + args_.discount * state.next_value - value;
    state = {value, delta + args_.decay * state.sum};
    return kept;
  }

  const ReverseScanArgs& args_;
};

class LongSequences {
public:
  // Sequences with ends[b] > 0, each from its end on.
  LongSequences(const ReverseScanArgs& args, const Scan& scan, const int64_t* ends, Chunk* chunks)
      : scan_(scan), chunks_(chunks) {
    for (int64_t b = 0; b < args.sequences.count; ++b) {
      for (int64_t last = ends[b]; last > 0; last -= kChunk) {
        chunks_[count_++] = {b, std::max<int64_t>(last - kChunk, 0), last, 0, 0, 0, 0, 0};
      }
    }
  }

  void run(const ParallelFor& hook) {
    for_each(hook, [&](int64_t c) { scan_.find_value(chunks_[c]); });
    for (int64_t c = 0; c < count_; ++c) {
      if (chunks_[c].passes_value != 0) chunks_[c].value = value_behind(c);
    }
    for_each(hook, [&](int64_t c) { scan_.summarise(chunks_[c], value_behind(c)); });
    double sum = 0;
    for (int64_t c = 0; c < count_; ++c) {
      if (is_last(c)) sum = scan_.start_of(chunks_[c].b).sum;
      const double leaving = scan_.composed(chunks_[c], value_behind(c), sum);
      chunks_[c].sum = sum;
      sum = leaving;
    }
    for_each(hook, [&](int64_t c) {
      const Chunk& chunk = chunks_[c];
      scan_.walk(chunk.b, chunk.first, chunk.last, {value_behind(c), chunk.sum});
    });
  }

private:
  bool is_last(int64_t c) const { return c == 0 || chunks_[c - 1].b != chunks_[c].b; }
  double value_behind(int64_t c) const {
    return is_last(c) ? scan_.start_of(chunks_[c].b).next_value : chunks_[c - 1].value;
  }
  template <typename Function>
  void for_each(const ParallelFor& hook, Function&& function) const {
    parallel_for(hook, count_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) function(c);
    });
  }

  const Scan& scan_;
  Chunk* chunks_;
  int64_t count_ = 0;
};

}  // namespace

int64_t reverse_scan_workspace_bytes(int64_t sequences, int64_t longest, int64_t total) {
  if (longest <= kChunk) return 0;
  // A long sequence has less than twice as many chunks as would fill it.
  const int64_t chunks = 2 * (total / kChunk + 1);
  return sequences * static_cast<int64_t>(sizeof(int64_t)) + chunks * static_cast<int64_t>(sizeof(Chunk));
}

void reverse_scan(const ReverseScanArgs& args, const ParallelFor& hook) {
  const Scan scan(args);
  // Of long sequences; 0 for the others. Where none can be long there is no workspace.
  auto* ends = args.sequences.length > kChunk ? static_cast<int64_t*>(args.workspace) : nullptr;
  std::atomic<bool> any_long{false};
  for_each_sequence(args.sequences, hook, [&](int64_t b) {
    const int64_t end = scan.end_of(b);
    scan.clear(b, end);
    if (end <= kChunk) scan.walk(b, 0, end, scan.start_of(b));
    if (end > kChunk) any_long.store(true, std::memory_order_relaxed);
    if (ends != nullptr) ends[b] = end > kChunk ? end : 0;
  });
  if (!any_long) return;
  LongSequences(args, scan, ends, reinterpret_cast<Chunk*>(ends + args.sequences.count)).run(hook);
}

}  // namespace rlk::cpu
