// The rows: scores with penalties, the draw, and what is told about it.
#include "core/cpu/kernels/sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/kernels/element.hpp"
#include "core/cpu/kernels/logp.hpp"
#include "core/cpu/kernels/sample_block.hpp"
#include "core/cpu/kernels/sample_filter.hpp"

namespace rlk::cpu {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t padded_vocab(int64_t vocab) {
  return (vocab + kSampleLanes - 1) / kSampleLanes * kSampleLanes;
}
int64_t slot_bytes(int64_t vocab) {
  return padded_vocab(vocab) * static_cast<int64_t>(sizeof(uint64_t) + sizeof(float) + 2);
}
int64_t slots_of(int64_t n, int64_t threads) {
  return std::min(n, 2 * std::max<int64_t>(threads, 1));
}

// Rounded from fp64, which holds it exactly: nothing is left that a compiler could fuse with a subtraction.
float product(float a, float b) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b));
}

// What a thread works in.
struct Slot {
  Slot(std::byte* memory, int64_t vocab)
      : w(reinterpret_cast<uint64_t*>(memory)),
        x(reinterpret_cast<float*>(w + padded_vocab(vocab))),
        keep(reinterpret_cast<uint8_t*>(x + padded_vocab(vocab))),
        other(keep + padded_vocab(vocab)) {}
  uint64_t* w;
  float* x;
  uint8_t *keep, *other;
};

class Row {
public:
  Row(const SampleArgs& args, const Slot& slot, int64_t n) : args_(args), slot_(slot), n_(n) {}

  SampleStatus run() {
    const SampleStatus status = sample();
    if (args_.ids_are_i64) {
      static_cast<int64_t*>(args_.ids)[n_ * args_.ids_stride] = id_;
    } else {
      static_cast<int32_t*>(args_.ids)[n_ * args_.ids_stride] = static_cast<int32_t>(id_);
    }
    if (args_.status != nullptr) args_.status[n_ * args_.status_stride] = status;
    if (args_.success != nullptr) args_.success[n_ * args_.success_stride] = id_ >= 0 ? 1 : 0;
    if (args_.processed_logp != nullptr) {
      const double logp = status == kDrawn ? processed_logp() : status == kGreedy ? 0 : kNan;
      store_element(args_.processed_logp, accumulator(args_.dtype), n_ * args_.processed_logp_stride, logp);
    }
    if (args_.keep_mask.data != nullptr) write_keep_mask(status);
    return status;
  }

private:
  SampleStatus sample() {
    const int64_t padded = padded_vocab(args_.vocab);
    sample_load(element(args_.logits, n_ * args_.row_stride, args_.dtype), args_.dtype, args_.col_stride, args_.vocab,
                slot_.x);
    penalize();
    const SampleTop top = sample_top(slot_.x, padded);
    temperature_ = args_.temperature[n_];
    if (top.strange || std::isnan(temperature_)) return kStrange;
    if (top.max == kMinusInf) return kNoFinite;
    max_ = top.max;
    if (temperature_ < 1e-5f) {
      id_ = std::find(slot_.x, slot_.x + args_.vocab, max_) - slot_.x;
      return kGreedy;
    }
    sum_ = kept_sum_ = sample_weights(slot_.x, padded, max_, temperature_, slot_.w);
    filtered_ = sample_filter({args_.min_p[n_], args_.top_p[n_], args_.top_k[n_], args_.joint, args_.top_k_keeps_ties,
                               args_.top_p_exceeds, args_.top_p_keeps_ties},
                              slot_.x, slot_.w, args_.vocab, slot_.keep, slot_.other);
    if (filtered_) {
      kept_sum_ = 0;
      for (int64_t v = 0; v < args_.vocab; ++v) kept_sum_ += slot_.keep[v] != 0 ? slot_.w[v] : 0;
    }
    return args_.in_rounds ? draw_in_rounds() : draw();
  }

  void penalize() {
    const float r = args_.repetition[n_], f = args_.frequency[n_], s = args_.presence[n_];
    for (int64_t v = 0; v < args_.vocab && (args_.output_counts.data != nullptr || args_.prompt_mask.data != nullptr);
         ++v) {
      const int32_t count = args_.output_counts.data != nullptr ? args_.output_counts(n_, v) : 0;
      float& x = slot_.x[v];
      if (count > 0 || (args_.prompt_mask.data != nullptr && args_.prompt_mask(n_, v) != 0)) {
        x = x > 0 ? x / r : product(x, r);
      }
      if (count > 0) x = (x - product(f, static_cast<float>(count))) - s;
    }
    if (args_.allowed.data == nullptr) return;
    for (int64_t v = 0; v < args_.vocab; ++v) {
      if (args_.allowed(n_, v) == 0) slot_.x[v] = kMinusInf;
    }
  }

  bool is_kept(int64_t v) const { return filtered_ ? slot_.keep[v] != 0 : slot_.x[v] > kMinusInf; }

  // The first token, of those that are kept or of all active ones, up to which the weights exceed the target.
  template <bool kAmongKept>
  int64_t drawn(uint64_t target) const {
    uint64_t reached = 0;
    int64_t v = -1;
    while (reached <= target) {
      ++v;
      if (!kAmongKept || slot_.keep[v] != 0) reached += slot_.w[v];
    }
    return v;
  }

  SampleStatus draw() {
    const uint64_t random =
        sample_random(static_cast<uint64_t>(args_.seed[n_]), static_cast<uint64_t>(args_.row_ids[n_]),
                      static_cast<uint64_t>(args_.step[n_]));
    const uint64_t target = multiply_high(random, kept_sum_);
    id_ = filtered_ ? drawn<true>(target) : drawn<false>(target);
    return kDrawn;
  }

  SampleStatus draw_in_rounds() {
    for (int64_t k = 0; k < args_.rounds; ++k) {
      const float share = args_.uniform_samples[k * args_.round_stride + n_ * args_.sample_stride];
      if (!(share >= 0 && share < 1)) continue;
      const int64_t candidate = drawn<false>(multiply_high(fixed_point(share), sum_));
      if (!is_kept(candidate)) continue;
      id_ = candidate;
      return kDrawn;
    }
    return kNoRound;
  }

  double processed_logp() const {
    const double below = static_cast<double>(slot_.x[id_]) - static_cast<double>(max_);
    return below / static_cast<double>(temperature_) - std::log(static_cast<double>(kept_sum_) * 0x1p-40);
  }

  void write_keep_mask(SampleStatus status) const {
    for (int64_t v = 0; v < args_.vocab; ++v) {
      const bool kept = status == kGreedy ? v == id_ : (status == kDrawn || status == kNoRound) && is_kept(v);
      args_.keep_mask(n_, v) = kept ? 1 : 0;
    }
  }

  const SampleArgs& args_;
  const Slot& slot_;
  int64_t n_;
  int64_t id_ = -1;
  float max_ = 0, temperature_ = 1;
  uint64_t sum_ = 0, kept_sum_ = 0;
  bool filtered_ = false;  // slot_.keep says which; otherwise every active token is kept
};

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
  return slots_of(n, threads) * slot_bytes(vocab) + (wants_logp ? logp_workspace_bytes(n, vocab) : 0);
}

DataError sample(const SampleArgs& args, const ParallelFor& hook) {
  const int64_t slots = slots_of(args.n, hook.threads);
  auto* workspace = static_cast<std::byte*>(args.workspace);
  FirstBadRow bad;
  parallel_for(hook, slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const Slot slot(workspace + s * slot_bytes(args.vocab), args.vocab);
      for (int64_t n = args.n * s / slots; n < args.n * (s + 1) / slots; ++n) {
        if (Row(args, slot, n).run() == kNoFinite) bad.report(n);
      }
    }
  });
  if (args.logp != nullptr) raw_logp(args, workspace + slots * slot_bytes(args.vocab), hook);
  return bad.any() ? DataError{kNoFiniteLogit, bad.row(), 0} : DataError{};
}

}  // namespace rlk::cpu
