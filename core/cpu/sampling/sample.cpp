// One token per row, drawn from filtered and tempered logits: the declaration's integers, so the same bits everywhere.
//
// Cost model: logits are read once, to fp32 scores; weights are some 30 vector instructions per vector of scores. For
// top_k and top_p the scores are counted by bins of weight, one addition per token, and what follows looks at the
// tokens of one bin; nothing is sorted. Where rows are few, the parts of a row are tasks; otherwise a row is one. A
// slot of the workspace, 18 bytes per vocabulary entry and 14 KiB per part of 16384, holds a row: at most two slots per
// thread.
#include <rlk/sdk/ops/sample.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/logp/logp_rows.hpp"
#include "core/cpu/sampling/sample_block.hpp"
#include "core/cpu/sampling/sample_filter.hpp"
#include "core/cpu/sampling/sample_random.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
using namespace sdk::ops::sample;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using Call = CallOf<sdk::ops::Sample>;

enum SampleStatus : int32_t { kDrawn, kGreedy, kNoFinite, kStrange, kNoRound };

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Rows are worked on in parts of this many tokens. Nothing depends on it: maxima and integer sums know no order.
constexpr int64_t kPart = 16384;

// A mask is written in pieces of so many tokens.
constexpr int64_t kMaskTokens = 1024;

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

// A parameter of a row: its element of an input, or the scalar where there is none.
float number(const Array& of_rows, int64_t n, double scalar) {
  return static_cast<float>(of_rows.present() ? of_rows.get(n) : scalar);
}
int64_t integer(const Array& of_rows, int64_t n, int64_t scalar) {
  return of_rows.present() ? of_rows.integer(n) : scalar;
}

// An element of a tensor of this very type.
template <typename T>
T& at(const Array& array, int64_t i, int64_t j = 0) {
  return array.as<T>()[i * array.strides[0] + j * array.strides[1]];
}

// What one task finds out about its part of a row.
struct Part {
  SampleTop top;
  SampleSums sums;
};

// One row: load() of every part, settle(), weigh() of every part where it asks for weights, finish(), and write_mask()
// of every part. Parts may be worked on side by side. It lives in its slot of the workspace, beside its scores.
//
// Where top_k comes first and is far below the vocabulary, settle() narrows the row to the tokens that are no less than
// top_k of the groups' maxima, in rising order: top_k keeps none of the others, and so none of them is weighed. All
// sums are of integers, so that the answer is that of the whole row to the bit.
class Row {
public:
  static int64_t slot_bytes(int64_t vocab) {
    constexpr int64_t kToken = sizeof(uint64_t) + sizeof(float) + sizeof(uint32_t) + sizeof(uint16_t);
    constexpr int64_t kPartBytes = kSampleBins * sizeof(SampleBin) + sizeof(Part);
    return padded(static_cast<int64_t>(sizeof(Row)) + padded(vocab) * kToken + parts_of(vocab) * kPartBytes);
  }
  // `slot` is aligned to 64 bytes.
  static Row& make(const Call& call, int64_t n, std::byte* slot) { return *new (slot) Row(call, n, slot); }

  void load(int64_t part) {
    const auto [begin, end] = range(part);
    const Array& logits = call_.logits;
    sample_load(element(logits.data, n_ * logits.strides[0] + begin * logits.strides[1], logits.dtype), logits.dtype,
                logits.strides[1], end - begin, x_ + begin);
    penalize(begin, end);
    parts_[part].top = sample_top(x_ + begin, padded(end - begin), largest_ + begin / kSampleLanes);
  }

  // Whether weights are asked for: of a narrow row finish() makes them.
  bool settle() {
    SampleTop top{kMinusInf, false};
    int64_t with_max = 0;
    for (int64_t part = 0; part < parts_of(call_.V); ++part) {
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
      id_ = std::find(x_ + with_max * kPart, x_ + call_.V, max_) - x_;
    }
    return weighed() && !narrow();
  }
  bool weighed() const { return status_ == kDrawn || status_ == kNoRound; }

  bool is_whole() const { return names_ == nullptr; }

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
      if (!is_whole()) {
        for (int64_t part = 0; part < parts_of(vocab_); ++part) weigh(part);
      }
      filter();
      status_ = call_.uniform_samples.given() ? draw_in_rounds() : draw();
    }
    const int64_t token = is_whole() ? id_ : names_[id_];
    if (call_.ids.dtype == Dtype::i64) {
      at<int64_t>(call_.ids, n_) = token;
    } else {
      at<int32_t>(call_.ids, n_) = static_cast<int32_t>(token);
    }
    if (call_.status.present()) at<int32_t>(call_.status, n_) = status_;
    if (call_.success.present()) at<uint8_t>(call_.success, n_) = id_ >= 0 ? 1 : 0;
    if (call_.processed_logp.present()) {
      call_.processed_logp.put(n_, status_ == kDrawn ? processed_logp() : status_ == kGreedy ? 0 : kNan);
    }
    return status_;
  }

  void write_mask(int64_t part) const {
    const auto [begin, end] = range(part);
    const int64_t stride = call_.keep_mask.strides[1];
    auto* const mask = &at<uint8_t>(call_.keep_mask, n_, begin);
    uint8_t some[kMaskTokens];
    for (int64_t v = begin; v < end; v += kMaskTokens) {
      const int64_t count = std::min(kMaskTokens, end - v);
      uint8_t* const to = mask + (v - begin) * stride;
      uint8_t* const keep = stride == 1 ? to : some;
      if (weighed()) {
        const int64_t middle = std::clamp(cut_.last_id + 1, v, v + count);
        sample_kept(x_ + v, w_ + v, middle - v, cut_.score, true, least_, keep);
        sample_kept(x_ + middle, w_ + middle, v + count - middle, cut_.score, false, least_, keep + (middle - v));
      } else {
        std::fill(keep, keep + count, uint8_t{0});
        if (status_ == kGreedy && id_ >= v && id_ < v + count) keep[id_ - v] = 1;
      }
      for (int64_t i = 0; stride != 1 && i < count; ++i) to[i * stride] = some[i];
    }
  }

private:
  Row(const Call& call, int64_t n, std::byte* slot)
      : call_(call),
        n_(n),
        filter_{number(call.min_ps, n, call.params.min_p),  number(call.top_ps, n, call.params.top_p),
                integer(call.top_ks, n, call.params.top_k), call.params.filter_order == FilterOrder::joint,
                call.params.top_k_ties == TopKTies::keep,   call.params.top_p_boundary == TopPBoundary::exceed,
                call.params.top_p_ties == TopPTies::keep,   call.params.min_p_order == MinPOrder::last},
        temperature_(number(call.temperatures, n, call.params.temperature)),
        least_(filter_.least()),
        vocab_(call.V) {
    const int64_t count = padded(call.V);
    w_ = reinterpret_cast<uint64_t*>(slot + sizeof(Row));
    totals_ = reinterpret_cast<SampleBin*>(w_ + count);
    parts_ = reinterpret_cast<Part*>(totals_ + parts_of(call.V) * kSampleBins);
    x_ = reinterpret_cast<float*>(parts_ + parts_of(call.V));
    list_ = reinterpret_cast<uint32_t*>(x_ + count);
    bins_ = reinterpret_cast<uint16_t*>(list_ + count);
    largest_ = reinterpret_cast<float*>(bins_);  // until there are bins
  }

  std::pair<int64_t, int64_t> range(int64_t part) const { return {part * kPart, std::min((part + 1) * kPart, vocab_)}; }
  bool counts_bins() const { return filter_.by_k(call_.V) || filter_.by_p(); }

  // The scores and names of a narrow row lie where the weights of the others would. False: the row stays whole.
  bool narrow() {
    const int64_t groups = padded(vocab_) / kSampleLanes, most = padded(vocab_) / 4 - kSampleLanes;
    const bool needs_all = filter_.joint || call_.uniform_samples.given() || call_.keep_mask.present();
    if (needs_all || !filter_.by_k(vocab_) || 2 * filter_.top_k > groups) return false;
    auto* const order = reinterpret_cast<float*>(list_);
    std::copy(largest_, largest_ + groups, order);
    std::nth_element(order, order + filter_.top_k - 1, order + groups, std::greater<>());
    const float least = order[filter_.top_k - 1];
    if (least == kMinusInf) return false;
    auto* const scores = reinterpret_cast<float*>(w_ + padded(vocab_) / 2);
    auto* const names = reinterpret_cast<uint32_t*>(scores + padded(vocab_) / 2);
    int64_t count = 0;
    for (int64_t group = 0; group < groups; ++group) {
      if (largest_[group] < least) continue;
      if (count > most - kSampleLanes) return false;
      for (int64_t v = group * kSampleLanes; v < (group + 1) * kSampleLanes; ++v) {
        if (x_[v] < least) continue;
        scores[count] = x_[v];
        names[count++] = static_cast<uint32_t>(v);
      }
    }
    for (int64_t i = count; i % kSampleLanes != 0; ++i) scores[i] = kMinusInf;
    x_ = scores;
    names_ = names;
    vocab_ = count;
    return true;
  }

  void penalize(int64_t begin, int64_t end) {
    const Array &counts = call_.output_counts, &prompt = call_.prompt_mask;
    const float r = number(call_.repetition_penalties, n_, call_.params.repetition_penalty);
    const float f = number(call_.frequency_penalties, n_, call_.params.frequency_penalty);
    const float s = number(call_.presence_penalties, n_, call_.params.presence_penalty);
    const bool penalizes = counts.present() || prompt.present();
    for (int64_t v = begin; v < end && penalizes; ++v) {
      const int32_t count = counts.present() ? at<int32_t>(counts, n_, v) : 0;
      float& x = x_[v];
      if (count > 0 || (prompt.present() && prompt.keeps(n_, v))) {
        x = x > 0 ? x / r : product(x, r);
      }
      if (count > 0) x = (x - product(f, static_cast<float>(count))) - s;
    }
    if (!call_.allowed.present()) return;
    for (int64_t v = begin; v < end; ++v) {
      if (!call_.allowed.keeps(n_, v)) x_[v] = kMinusInf;
    }
  }

  void filter() {
    uint64_t heavy = 0;
    for (int64_t part = 0; part < parts_of(vocab_); ++part) {
      sum_ += parts_[part].sums.all;
      heavy += parts_[part].sums.heavy;
      for (int bin = 0; part > 0 && counts_bins() && bin < kSampleBins; ++bin) {
        totals_[bin].weight += totals_[part * kSampleBins + bin].weight;
        totals_[bin].tokens += totals_[part * kSampleBins + bin].tokens;
      }
    }
    cut_ = sample_cut(filter_, {x_, w_, bins_, vocab_, totals_, list_}, sum_, heavy, &kept_sum_);
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
      sum = kept_sum(begin, std::min(begin + kStep, vocab_));
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
    const uint64_t random = sample_random(static_cast<uint64_t>(integer(call_.seeds, n_, call_.params.seed)),
                                          static_cast<uint64_t>(call_.row_ids.integer(n_)),
                                          static_cast<uint64_t>(integer(call_.steps, n_, call_.params.step)));
    const uint64_t target = multiply_high(random, kept_sum_);
    id_ = kept_sum_ == sum_ ? drawn_of_all(target) : drawn_of_kept(target);
    return kDrawn;
  }

  SampleStatus draw_in_rounds() {
    for (int64_t k = 0; k < call_.uniform_samples.shape[0]; ++k) {
      const float share = at<float>(call_.uniform_samples, k, n_);
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

  const Call& call_;
  int64_t n_;
  SampleFilter filter_;
  float temperature_;
  uint64_t least_;  // the least weight that is kept
  int64_t vocab_;   // of a narrow row: the number of tokens that are left
  uint64_t* w_;
  SampleBin* totals_;  // of each part; at last the first has the sums of all
  Part* parts_;
  float* x_;
  uint32_t* list_;
  uint16_t* bins_;
  float* largest_;                   // of the scores in groups of kSampleLanes
  const uint32_t* names_ = nullptr;  // of a narrow row: the tokens
  float max_ = 0;
  SampleStatus status_ = kDrawn;
  int64_t id_ = -1;
  uint64_t sum_ = 0, kept_sum_ = 0;
  SampleCut cut_;
};
static_assert(std::is_trivially_destructible_v<Row> && sizeof(Row) % sizeof(uint64_t) == 0);

// The log-probability of what was drawn, by the kernel of logp; rows without a token are its ignored rows.
void raw_logp(const Call& call, void* workspace, const ParallelFor& hook) {
  CallOf<sdk::ops::Logp> of_logits;
  of_logits.logits = call.logits;
  of_logits.ids = call.ids;
  of_logits.logp = call.logp;
  of_logits.N = of_logits.R = call.N;
  of_logits.V = call.V;
  of_logits.params.ignore_index = -1;
  cpu::logp(of_logits, {hook, workspace});
  for (int64_t n = 0; n < call.N; ++n) {
    if (is_ignored(of_logits, n)) call.logp.put(n, kNan);
  }
}

void whole_row(const Call& call, int64_t n, int64_t parts, std::byte* slot, FirstBadRow& bad) {
  Row& row = Row::make(call, n, slot);
  for (int64_t part = 0; part < parts; ++part) row.load(part);
  if (row.settle()) {
    for (int64_t part = 0; part < parts; ++part) row.weigh(part);
  }
  if (row.finish() == kNoFinite) bad.report(n);
  if (!call.keep_mask.present()) return;
  for (int64_t part = 0; part < parts; ++part) row.write_mask(part);
}

// Every row has a slot, and the parts of all rows are tasks.
template <typename Slot>
void few_rows(const Call& call, const ParallelFor& hook, int64_t parts, const Slot& slot, FirstBadRow& bad) {
  const auto row = [&](int64_t n) -> Row& { return *std::launder(reinterpret_cast<Row*>(slot(n))); };
  const auto for_parts = [&](const auto& step) {
    parallel_for(hook, call.N * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) step(row(i / parts), i % parts);
    });
  };
  for (int64_t n = 0; n < call.N; ++n) Row::make(call, n, slot(n));
  for_parts([](Row& r, int64_t part) { r.load(part); });
  parallel_for(hook, call.N, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) row(n).settle();
  });
  for_parts([](Row& r, int64_t part) {
    if (r.weighed() && r.is_whole()) r.weigh(part);
  });
  parallel_for(hook, call.N, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (row(n).finish() == kNoFinite) bad.report(n);
    }
  });
  if (!call.keep_mask.present()) return;
  for_parts([](Row& r, int64_t part) { r.write_mask(part); });
}

int64_t workspace_of_threads(const Call& call, int64_t threads) {
  return std::min(call.N, most_slots(threads)) * Row::slot_bytes(call.V) +
         (call.logp.given() ? logp_workspace_bytes(call.N, call.V) : 0);
}

double operations(const Call& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.V) * 100;
}

// The data error is that of the lowest row without a finite logit.
DataError sample(const Call& call, const Context& context) {
  const ParallelFor& hook = context.parallel;
  const int64_t slots = std::min(call.N, most_slots(hook.threads)), parts = parts_of(call.V);
  auto* workspace = static_cast<std::byte*>(context.workspace);
  const auto slot = [&](int64_t s) { return workspace + s * Row::slot_bytes(call.V); };
  FirstBadRow bad;
  if (call.N < most_slots(hook.threads) && parts > 1) {
    few_rows(call, hook, parts, slot, bad);
  } else {
    parallel_for(hook, slots, 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        for (int64_t n = call.N * s / slots; n < call.N * (s + 1) / slots; ++n) whole_row(call, n, parts, slot(s), bad);
      }
    });
  }
  if (call.logp.present()) raw_logp(call, slot(slots), hook);
  return bad.any() ? DataError{kNoFiniteLogit, bad.row(), 0} : DataError{};
}

}  // namespace

RLK_CPU_KERNEL(Sample, .run = sample, .operations = operations, .workspace_of_threads = workspace_of_threads);

}  // namespace rlk::cpu
