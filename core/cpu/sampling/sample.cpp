// The rows: scores with penalties, the draw, and what is told about it; and which of it is a task.
#include "core/cpu/sampling/sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/sampling/sample_block.hpp"
#include "core/cpu/sampling/sample_filter.hpp"
#include "core/cpu/simd/element.hpp"

namespace rlk::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Rows are worked on in parts of this many tokens. Nothing depends on it: maxima and integer sums know no order.
constexpr int64_t kPart = 16384;

int64_t padded(int64_t count) {
  return (count + kSampleLanes - 1) / kSampleLanes * kSampleLanes;
}
int64_t parts_of(int64_t vocab) {
  return (vocab + kPart - 1) / kPart;
}
int64_t most_slots(int64_t threads) {
  return 2 * std::max<int64_t>(threads, 1);
}

// Rounded from fp64, which holds it exactly: nothing is left that a compiler could fuse with a subtraction.
float product(float a, float b) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b));
}

// What one task finds out about its part of a row.
struct Part {
  SampleTop top;
  SampleSums sums;
};

// One row: load() of every part, settle(), weigh() of every part where it asks for weights, finish(), and write_mask()
// of every part. Parts may be worked on side by side. It lives in its slot of the workspace, beside its scores.
class Row {
public:
  static int64_t slot_bytes(int64_t vocab) {
    constexpr int64_t kToken = sizeof(uint64_t) + sizeof(float) + sizeof(uint32_t) + sizeof(uint16_t);
    constexpr int64_t kPartBytes = kSampleBins * sizeof(SampleBin) + sizeof(Part);
    return padded(static_cast<int64_t>(sizeof(Row)) + padded(vocab) * kToken + parts_of(vocab) * kPartBytes);
  }
  // `slot` is aligned to 64 bytes.
  static Row& make(const SampleArgs& args, int64_t n, std::byte* slot) { return *new (slot) Row(args, n, slot); }

  void load(int64_t part) {
    const auto [begin, end] = range(part);
    sample_load(element(args_.logits, n_ * args_.row_stride + begin * args_.col_stride, args_.dtype), args_.dtype,
                args_.col_stride, end - begin, x_ + begin);
    penalize(begin, end);
    parts_[part].top = sample_top(x_ + begin, padded(end - begin));
  }

  // Whether weights are asked for.
  bool settle() {
    SampleTop top{kMinusInf, false};
    int64_t with_max = 0;
    for (int64_t part = 0; part < parts_of(args_.vocab); ++part) {
      top.strange |= parts_[part].top.strange;
      if (parts_[part].top.max > top.max) {
        top.max = parts_[part].top.max;
        with_max = part;
      }
    }
    max_ = top.max;
    status_ = top.strange || std::isnan(temperature_) ? kStrange : top.max == kMinusInf ? kNoFinite : kDrawn;
    if (status_ == kDrawn && temperature_ < 1e-5f) {
      status_ = kGreedy;
      id_ = std::find(x_ + with_max * kPart, x_ + args_.vocab, max_) - x_;
    }
    return weighed();
  }
  bool weighed() const { return status_ == kDrawn || status_ == kNoRound; }

  void weigh(int64_t part) {
    const auto [begin, end] = range(part);
    uint16_t* bins = counts_bins() ? bins_ + begin : nullptr;
    parts_[part].sums = sample_weights(x_ + begin, padded(end - begin), max_, temperature_, least_, w_ + begin, bins);
    if (bins == nullptr) return;
    SampleBin* totals = totals_ + part * kSampleBins;
    std::fill(totals, totals + kSampleBins, SampleBin{0, 0});
    for (int64_t v = begin; v < end; ++v) {
      SampleBin& total = totals[bins_[v]];
      total.weight += w_[v];
      ++total.tokens;
    }
  }

  SampleStatus finish() {
    if (weighed()) {
      filter();
      status_ = args_.in_rounds ? draw_in_rounds() : draw();
    }
    if (args_.ids_are_i64) {
      static_cast<int64_t*>(args_.ids)[n_ * args_.ids_stride] = id_;
    } else {
      static_cast<int32_t*>(args_.ids)[n_ * args_.ids_stride] = static_cast<int32_t>(id_);
    }
    if (args_.status != nullptr) args_.status[n_ * args_.status_stride] = status_;
    if (args_.success != nullptr) args_.success[n_ * args_.success_stride] = id_ >= 0 ? 1 : 0;
    if (args_.processed_logp != nullptr) {
      const double logp = status_ == kDrawn ? processed_logp() : status_ == kGreedy ? 0 : kNan;
      store_element(args_.processed_logp, accumulator(args_.dtype), n_ * args_.processed_logp_stride, logp);
    }
    return status_;
  }

  void write_mask(int64_t part) const {
    const auto [begin, end] = range(part);
    for (int64_t v = begin; v < end; ++v) {
      args_.keep_mask(n_, v) = (weighed() ? is_kept(v) : status_ == kGreedy && v == id_) ? 1 : 0;
    }
  }

private:
  Row(const SampleArgs& args, int64_t n, std::byte* slot)
      : args_(args),
        n_(n),
        filter_{args.min_p[n],         args.top_p[n],      args.top_k[n],        args.joint,
                args.top_k_keeps_ties, args.top_p_exceeds, args.top_p_keeps_ties},
        temperature_(args.temperature[n]),
        least_(filter_.least()) {
    const int64_t count = padded(args.vocab);
    w_ = reinterpret_cast<uint64_t*>(slot + sizeof(Row));
    totals_ = reinterpret_cast<SampleBin*>(w_ + count);
    parts_ = reinterpret_cast<Part*>(totals_ + parts_of(args.vocab) * kSampleBins);
    x_ = reinterpret_cast<float*>(parts_ + parts_of(args.vocab));
    list_ = reinterpret_cast<uint32_t*>(x_ + count);
    bins_ = reinterpret_cast<uint16_t*>(list_ + count);
  }

  std::pair<int64_t, int64_t> range(int64_t part) const {
    return {part * kPart, std::min((part + 1) * kPart, args_.vocab)};
  }
  bool counts_bins() const { return filter_.by_k(args_.vocab) || filter_.by_p(); }

  void penalize(int64_t begin, int64_t end) {
    const float r = args_.repetition[n_], f = args_.frequency[n_], s = args_.presence[n_];
    const bool penalizes = args_.output_counts.data != nullptr || args_.prompt_mask.data != nullptr;
    for (int64_t v = begin; v < end && penalizes; ++v) {
      const int32_t count = args_.output_counts.data != nullptr ? args_.output_counts(n_, v) : 0;
      float& x = x_[v];
      if (count > 0 || (args_.prompt_mask.data != nullptr && args_.prompt_mask(n_, v) != 0)) {
        x = x > 0 ? x / r : product(x, r);
      }
      if (count > 0) x = (x - product(f, static_cast<float>(count))) - s;
    }
    if (args_.allowed.data == nullptr) return;
    for (int64_t v = begin; v < end; ++v) {
      if (args_.allowed(n_, v) == 0) x_[v] = kMinusInf;
    }
  }

  void filter() {
    uint64_t heavy = 0;
    for (int64_t part = 0; part < parts_of(args_.vocab); ++part) {
      sum_ += parts_[part].sums.all;
      heavy += parts_[part].sums.heavy;
      for (int bin = 0; part > 0 && counts_bins() && bin < kSampleBins; ++bin) {
        totals_[bin].weight += totals_[part * kSampleBins + bin].weight;
        totals_[bin].tokens += totals_[part * kSampleBins + bin].tokens;
      }
    }
    cut_ = sample_cut(filter_, {x_, w_, bins_, args_.vocab, totals_, list_}, sum_, heavy, &kept_sum_);
  }

  bool is_kept(int64_t v) const { return cut_.keeps(x_[v], v) && w_[v] >= least_; }

  uint64_t kept_sum(int64_t begin, int64_t end) const {
    const int64_t middle = std::clamp(cut_.last_id + 1, begin, end);
    return sample_kept_sum(x_ + begin, w_ + begin, middle - begin, cut_.score, true, least_) +
           sample_kept_sum(x_ + middle, w_ + middle, end - middle, cut_.score, false, least_);
  }

  // The first token up to which the weights of kept tokens exceed the target.
  int64_t drawn_of_kept(uint64_t target) const {
    constexpr int64_t kStep = 1024;
    int64_t begin = 0;
    for (uint64_t sum = 0;; begin += kStep, target -= sum) {
      sum = kept_sum(begin, std::min(begin + kStep, args_.vocab));
      if (sum > target) break;
    }
    for (int64_t v = begin;; ++v) {
      if (!is_kept(v)) continue;
      if (w_[v] > target) return v;
      target -= w_[v];
    }
  }

  // The same of all tokens.
  int64_t drawn_of_all(uint64_t target) const {
    int64_t part = 0;
    for (; parts_[part].sums.all <= target; ++part) target -= parts_[part].sums.all;
    int64_t v = part * kPart;
    for (; w_[v] <= target; ++v) target -= w_[v];
    return v;
  }

  SampleStatus draw() {
    const uint64_t random =
        sample_random(static_cast<uint64_t>(args_.seed[n_]), static_cast<uint64_t>(args_.row_ids[n_]),
                      static_cast<uint64_t>(args_.step[n_]));
    const uint64_t target = multiply_high(random, kept_sum_);
    id_ = kept_sum_ == sum_ ? drawn_of_all(target) : drawn_of_kept(target);
    return kDrawn;
  }

  SampleStatus draw_in_rounds() {
    for (int64_t k = 0; k < args_.rounds; ++k) {
      const float share = args_.uniform_samples[k * args_.round_stride + n_ * args_.sample_stride];
      if (!(share >= 0 && share < 1)) continue;
      const int64_t candidate = drawn_of_all(multiply_high(fixed_point(share), sum_));
      if (!is_kept(candidate)) continue;
      id_ = candidate;
      return kDrawn;
    }
    return kNoRound;
  }

  double processed_logp() const {
    const double below = static_cast<double>(x_[id_]) - static_cast<double>(max_);
    return below / static_cast<double>(temperature_) - std::log(static_cast<double>(kept_sum_) * 0x1p-40);
  }

  const SampleArgs& args_;
  int64_t n_;
  SampleFilter filter_;
  float temperature_;
  uint64_t least_;  // the least weight that is kept
  uint64_t* w_;
  SampleBin* totals_;  // of each part; at last the first has the sums of all
  Part* parts_;
  float* x_;
  uint32_t* list_;
  uint16_t* bins_;
  float max_ = 0;
  SampleStatus status_ = kDrawn;
  int64_t id_ = -1;
  uint64_t sum_ = 0, kept_sum_ = 0;
  SampleCut cut_;
};
static_assert(std::is_trivially_destructible_v<Row> && sizeof(Row) % sizeof(uint64_t) == 0);

// The log-probability of what was drawn, by the kernel of logp; rows without a token are its ignored rows.
void raw_logp(const SampleArgs& args, void* workspace, const ParallelFor& hook) {
  LogpArgs logp;
  logp.rows.n = logp.rows.logits_rows = args.n;
  logp.rows.vocab = args.vocab;
  logp.rows.ids = args.ids;
  logp.rows.ids_are_i64 = args.ids_are_i64;
  logp.rows.ids_stride = args.ids_stride;
  logp.rows.ignore_index = -1;
  logp.dtype = args.dtype;
  logp.logits = args.logits;
  logp.row_stride = args.row_stride;
  logp.col_stride = args.col_stride;
  logp.logp = args.logp;
  logp.logp_dtype = accumulator(args.dtype);
  logp.logp_stride = args.logp_stride;
  logp.workspace = workspace;
  cpu::logp(logp, hook);
  for (int64_t n = 0; n < args.n; ++n) {
    if (logp.rows.ignored(n)) store_element(args.logp, logp.logp_dtype, n * args.logp_stride, kNan);
  }
}

void whole_row(const SampleArgs& args, int64_t n, int64_t parts, std::byte* slot, FirstBadRow& bad) {
  Row& row = Row::make(args, n, slot);
  for (int64_t part = 0; part < parts; ++part) row.load(part);
  if (row.settle()) {
    for (int64_t part = 0; part < parts; ++part) row.weigh(part);
  }
  if (row.finish() == kNoFinite) bad.report(n);
  if (args.keep_mask.data == nullptr) return;
  for (int64_t part = 0; part < parts; ++part) row.write_mask(part);
}

// Every row has a slot, and the parts of all rows are tasks.
template <typename Slot>
void few_rows(const SampleArgs& args, const ParallelFor& hook, int64_t parts, const Slot& slot, FirstBadRow& bad) {
  const auto row = [&](int64_t n) -> Row& { return *std::launder(reinterpret_cast<Row*>(slot(n))); };
  const auto for_parts = [&](const auto& step) {
    parallel_for(hook, args.n * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) step(row(i / parts), i % parts);
    });
  };
  for (int64_t n = 0; n < args.n; ++n) Row::make(args, n, slot(n));
  for_parts([](Row& r, int64_t part) { r.load(part); });
  for (int64_t n = 0; n < args.n; ++n) row(n).settle();
  for_parts([](Row& r, int64_t part) {
    if (r.weighed()) r.weigh(part);
  });
  parallel_for(hook, args.n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (row(n).finish() == kNoFinite) bad.report(n);
    }
  });
  if (args.keep_mask.data == nullptr) return;
  for_parts([](Row& r, int64_t part) { r.write_mask(part); });
}

}  // namespace

uint64_t sample_random(uint64_t seed, uint64_t row_id, uint64_t step) {
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  uint64_t even = row_id, odd = step;  // (c1, c0) and (c3, c2)
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t a = (even & 0xffffffffu) * 0xD2511F53u, b = (odd & 0xffffffffu) * 0xCD9E8D57u;
    const uint64_t c0 = (b >> 32) ^ (even >> 32) ^ k0, c2 = (a >> 32) ^ (odd >> 32) ^ k1;
    even = b << 32 | c0;
    odd = a << 32 | c2;
  }
  return even;
}

int64_t sample_workspace_bytes(int64_t n, int64_t vocab, bool wants_logp, int64_t threads) {
  return std::min(n, most_slots(threads)) * Row::slot_bytes(vocab) + (wants_logp ? logp_workspace_bytes(n, vocab) : 0);
}

DataError sample(const SampleArgs& args, const ParallelFor& hook) {
  const int64_t slots = std::min(args.n, most_slots(hook.threads)), parts = parts_of(args.vocab);
  auto* workspace = static_cast<std::byte*>(args.workspace);
  const auto slot = [&](int64_t s) { return workspace + s * Row::slot_bytes(args.vocab); };
  FirstBadRow bad;
  if (args.n < most_slots(hook.threads) && parts > 1) {
    few_rows(args, hook, parts, slot, bad);
  } else {
    parallel_for(hook, slots, 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        for (int64_t n = args.n * s / slots; n < args.n * (s + 1) / slots; ++n) whole_row(args, n, parts, slot(s), bad);
      }
    });
  }
  if (args.logp != nullptr) raw_logp(args, slot(slots), hook);
  return bad.any() ? DataError{kNoFiniteLogit, bad.row(), 0} : DataError{};
}

}  // namespace rlk::cpu
