// Each chunk is walked from a = 0 first, which says what it adds and how often it multiplies what comes in by the
// decay; these few numbers are composed from the end of the sequence on; then every chunk is walked again from the
// right a.
//
// A walk is one chain of products and sums, which leaves most of a processor idle: several sequences, or chunks, are
// walked side by side, each in the order that it has alone.
#include "core/cpu/advantages/reverse_scan.hpp"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/advantages/reverse_scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/simd/lines-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

constexpr int64_t kChunk = 2048;  // tokens
constexpr int64_t kBlock = 128;   // tokens that are read at a time
constexpr int kTogether = 4;      // walks side by side: their blocks fit in L1
using MaskRule = ReverseScanArgs::MaskRule;

struct State {
  double next_value, sum;
};

struct Rule {
  double discount, decay;
  MaskRule mask;
};

// Of sequence b the tokens first .. last.
struct Stretch {
  int64_t b, first, last;
};

struct Chunk {
  Stretch at;
  double value;          // v' for the chunk before this one
  double sum;            // what the chunk adds, later what comes into it
  int64_t steps;         // how often what comes into it is multiplied by the decay
  int32_t passes_value;  // the chunk has no value: v' is that of the chunk behind
  int32_t resets;        // nothing that comes in leaves
};
static_assert(sizeof(Chunk) % 8 == 0);

// Some tokens of a sequence. What their walk makes takes the place of what it read.
struct Block {
  int64_t size;
  HWY_ALIGN double rewards[kBlock], values[kBlock], mask[kBlock];
};

class Scan {
public:
  explicit Scan(const ReverseScanArgs& args) : args_(args) {}

  // One past the last active token.
  int64_t end_of(int64_t b) const {
    const Line mask = line(args_.mask, b);
    int64_t end = args_.sequences.tokens(b);
    while (end > 0 && !mask.keeps(end - 1)) --end;
    return end;
  }

  State start_of(int64_t b) const {
    return {args_.start_value.present() ? args_.start_value.get(b) : 0,
            args_.start_sum.present() ? args_.start_sum.get(b) : 0};
  }

  // Up to kTogether stretches, each from the state behind it, which becomes that in front of it.
  template <bool kWrites>
  void walk(const Stretch* stretches, State* states, int count) const {
    const Rule rule = {args_.discount, args_.decay, args_.mask_rule};  // what stores to blocks cannot change
    Block blocks[kTogether];
    State own[kTogether] = {};
    int64_t last[kTogether];
    std::copy(states, states + count, own);
    for (int k = 0; k < count; ++k) last[k] = stretches[k].last;
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      int64_t common = count == kTogether ? kBlock : 0;
      for (int k = 0; k < count; ++k) {
        blocks[k].size = std::min(kBlock, last[k] - stretches[k].first);
        last[k] -= blocks[k].size;
        goes_on = goes_on || last[k] > stretches[k].first;
        common = std::min(common, blocks[k].size);
        read(stretches[k].b, last[k], blocks[k]);
      }
      for (int64_t i = 1; i <= common; ++i) {
        for (int k = 0; k < kTogether; ++k) own[k] = step<kWrites>(rule, blocks[k], blocks[k].size - i, own[k]);
      }
      for (int k = 0; k < count; ++k) {
        for (int64_t i = blocks[k].size - common - 1; i >= 0; --i) own[k] = step<kWrites>(rule, blocks[k], i, own[k]);
        if constexpr (kWrites) write(blocks[k], stretches[k].b, last[k]);
      }
    }
    std::copy(own, own + count, states);
  }

  void clear(int64_t b, int64_t first) const {
    static constexpr double kZeros[kBlock] = {};
    for (int64_t t = first, end = args_.sequences.tokens(b); t < end; t += kBlock) {
      const int64_t count = std::min(kBlock, end - t);
      write_line(kZeros, count, line(args_.sums, b).from(t));
      if (args_.targets.present()) write_line(kZeros, count, line(args_.targets, b).from(t));
    }
  }

  // The value that the chunk before this one starts with, where it is in this chunk.
  void find_value(Chunk& chunk) const {
    chunk.passes_value = args_.mask_rule == MaskRule::carry ? 1 : 0;
    chunk.value = 0;
    const Line mask = line(args_.mask, chunk.at.b);
    for (int64_t t = chunk.at.first; t < chunk.at.last; ++t) {
      if (mask.keeps(t)) {
        chunk.value = or_zero(line(args_.values, chunk.at.b)).get(t);
        chunk.passes_value = 0;
        return;
      }
      if (args_.mask_rule != MaskRule::carry) return;
    }
  }

  // What a chunk does to what comes in.
  void count_steps(Chunk& chunk) const {
    const Line mask = line(args_.mask, chunk.at.b);
    int64_t kept = 0;
    for (int64_t t = chunk.at.first; t < chunk.at.last; ++t) kept += mask.keeps(t) ? 1 : 0;
    const int64_t size = chunk.at.last - chunk.at.first;
    chunk.steps = args_.mask_rule == MaskRule::zero ? size : kept;
    chunk.resets = args_.mask_rule == MaskRule::reset && kept < size ? 1 : 0;
  }

  // What leaves a chunk. Where a term of the sum leaves fp64, an infinity may still meet a decay of 0 or its opposite
  // in the recursion, or terms cancel before they grow: it is walked.
  double composed(const Chunk& chunk, double next_value, double incoming) const {
    if (chunk.resets != 0 || incoming == 0) return chunk.sum;
    if (std::isnan(incoming)) return incoming;
    const double sum = chunk.sum + decayed(incoming, chunk.steps);
    if (std::isfinite(sum)) return sum;
    State state = {next_value, incoming};
    walk<false>(&chunk.at, &state, 1);
    return state.sum;
  }

private:
  Line line(const Array& array, int64_t b) const { return line_of(args_.sequences, array, b); }

  // Block.size tokens from `first` on. The processor does not foresee blocks that come from the end.
  void read(int64_t b, int64_t first, Block& block) const {
    read_line(line(args_.rewards, b).from(first), block.size, block.rewards);
    read_line(or_zero(line(args_.values, b).from(first)), block.size, block.values);
    read_line(or_one(line(args_.mask, b).from(first)), block.size, block.mask);
    const int64_t before = std::max<int64_t>(first - kBlock, 0);
    for (const Array* array : {&args_.rewards, &args_.values, &args_.sums, &args_.targets}) {
      const Line next = line(*array, b).from(before);
      for (int64_t i = 0; next.present() && i < first - before; i += 16) __builtin_prefetch(next.from(i).data);
    }
  }
  void write(const Block& block, int64_t b, int64_t first) const {
    write_line(block.rewards, block.size, line(args_.sums, b).from(first));
    if (args_.targets.present()) write_line(block.values, block.size, line(args_.targets, b).from(first));
  }

  // From the state behind token i to that in front of it.
  template <bool kWrites>
  static HWY_INLINE State step(const Rule& rule, Block& block, int64_t i, State state) {
    const bool kept = block.mask[i] != 0;
    if (kept || rule.mask == MaskRule::zero) {
      const double reward = kept ? block.rewards[i] : 0, value = kept ? block.values[i] : 0;
      const double delta = reward + rule.discount * state.next_value - value;
      state = {value, delta + rule.decay * state.sum};
    } else if (rule.mask == MaskRule::reset) {
      state = {0, 0};
    }
    if constexpr (kWrites) {
      block.rewards[i] = kept ? state.sum : 0;
      block.values[i] = kept ? state.sum + state.next_value : 0;
    }
    return state;
  }

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

  const ReverseScanArgs& args_;
};

class LongSequences {
public:
  // Sequences with ends[b] > 0, each from its end on.
  LongSequences(const ReverseScanArgs& args, const Scan& scan, const int64_t* ends, Chunk* chunks)
      : scan_(scan), chunks_(chunks) {
    for (int64_t b = 0; b < args.sequences.count; ++b) {
      for (int64_t last = ends[b]; last > 0; last -= kChunk) {
        chunks_[count_++] = {{b, std::max<int64_t>(last - kChunk, 0), last}, 0, 0, 0, 0, 0};
      }
    }
  }

  void run(const ParallelFor& hook) {
    parallel_for(hook, count_, kTogether, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        scan_.find_value(chunks_[c]);
        scan_.count_steps(chunks_[c]);
      }
    });
    for (int64_t c = 0; c < count_; ++c) {
      if (chunks_[c].passes_value != 0) chunks_[c].value = value_behind(c);
    }
    walk<false>(hook);
    double sum = 0;
    for (int64_t c = 0; c < count_; ++c) {
      if (is_last(c)) sum = scan_.start_of(chunks_[c].at.b).sum;
      const double leaving = scan_.composed(chunks_[c], value_behind(c), sum);
      chunks_[c].sum = sum;
      sum = leaving;
    }
    walk<true>(hook);
  }

private:
  bool is_last(int64_t c) const { return c == 0 || chunks_[c - 1].at.b != chunks_[c].at.b; }
  double value_behind(int64_t c) const {
    return is_last(c) ? scan_.start_of(chunks_[c].at.b).next_value : chunks_[c - 1].value;
  }
  // Every chunk from the sum that comes into it, or (without writing) from 0 for what it adds.
  template <bool kWrites>
  void walk(const ParallelFor& hook) const {
    parallel_for(hook, count_, kTogether, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += kTogether) {
        const int count = static_cast<int>(std::min<int64_t>(kTogether, end - first));
        Stretch stretches[kTogether];
        State states[kTogether];
        for (int k = 0; k < count; ++k) {
          stretches[k] = chunks_[first + k].at;
          states[k] = {value_behind(first + k), kWrites ? chunks_[first + k].sum : 0};
        }
        scan_.walk<kWrites>(stretches, states, count);
        for (int k = 0; !kWrites && k < count; ++k) chunks_[first + k].sum = states[k].sum;
      }
    });
  }

  const Scan& scan_;
  Chunk* chunks_;
  int64_t count_ = 0;
};

void reverse_scan_of(const ReverseScanArgs& args, const ParallelFor& hook) {
  const Scan scan(args);
  // Of long sequences; 0 for the others. Where none can be long there is no workspace.
  auto* ends = args.sequences.length > kChunk ? static_cast<int64_t*>(args.workspace) : nullptr;
  std::atomic<bool> any_long{false};
  const int64_t tokens = args.sequences.elements() / std::max<int64_t>(1, args.sequences.count);
  const int64_t grain = std::max<int64_t>(kTogether, kGrainElements / std::max<int64_t>(1, tokens));
  parallel_for(hook, args.sequences.count, grain, [&](int64_t begin, int64_t end) {
    Stretch stretches[kTogether];
    State states[kTogether];
    int waiting = 0;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t last = scan.end_of(b);
      scan.clear(b, last);
      if (last > kChunk) any_long.store(true, std::memory_order_relaxed);
      if (ends != nullptr) ends[b] = last > kChunk ? last : 0;
      if (last > 0 && last <= kChunk) {
        stretches[waiting] = {b, 0, last};
        states[waiting++] = scan.start_of(b);
      }
      if (waiting == kTogether || b + 1 == end) {
        scan.walk<true>(stretches, states, waiting);
        waiting = 0;
      }
    }
  });
  if (!any_long) return;
  LongSequences(args, scan, ends, reinterpret_cast<Chunk*>(ends + args.sequences.count)).run(hook);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(reverse_scan_of);

int64_t reverse_scan_workspace_bytes(int64_t sequences, int64_t longest, int64_t total) {
  using HWY_NAMESPACE::Chunk;
  using HWY_NAMESPACE::kChunk;
  if (longest <= kChunk) return 0;
  // A long sequence has less than twice as many chunks as would fill it.
  const int64_t chunks = 2 * (total / kChunk + 1);
  return sequences * static_cast<int64_t>(sizeof(int64_t)) + chunks * static_cast<int64_t>(sizeof(Chunk));
}

void reverse_scan(const ReverseScanArgs& args, const ParallelFor& hook) {
  HWY_DYNAMIC_DISPATCH(reverse_scan_of)(args, hook);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
