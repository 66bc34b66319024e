// One token per row from filtered, tempered logits: the declaration's formula, section by section, with a full sort. It
// is specified to the bit, so this is integers and single fp32 operations, not fp64 arithmetic with a tolerance.
#include <rlk/sdk/ops/sample.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "core/golden/operator.hpp"
#include "core/golden/philox.hpp"
#include "core/golden/sum.hpp"

namespace rlk::golden {
using namespace sdk::ops::sample;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using SampleCall = CallOf<sdk::ops::Sample>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint64_t kOne = uint64_t{1} << 40;  // the weight of the maximum

using Ids = std::vector<int64_t>;

// The one fp32 rounding of a product of fp32 numbers, which fp64 holds exactly; no compiler can fuse it with a sum.
float product(float a, float b) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b));
}

struct Wide {
  uint64_t high, low;
};
// By hand, 32 bits at a time.
Wide multiply(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const uint64_t upper = (middle & 0xffffffffu) + a0 * b1;
  return {a1 * b1 + (middle >> 32) + (upper >> 32), a * b};
}

// A number of [0, 1) times 2^64, fraction dropped.
uint64_t fixed_point(float share) {
  return static_cast<uint64_t>(std::ldexp(static_cast<double>(share), 64));
}

uint64_t weight(float u) {
  if (!(u > -28.0f)) return 0;
  const auto q = static_cast<uint64_t>(std::ldexp(static_cast<double>(-u), 26));
  const uint64_t e = q * 1549082005u;
  if (e > uint64_t{40} << 56) return 0;
  const uint64_t d = (uint64_t{40} << 56) - e;
  const uint64_t g = (d >> 24) & 0xffffffffu;
  uint64_t h = 44521;
  for (const uint64_t c : {313739u, 2875277u, 20650546u, 119194876u, 515882451u, 1488522236u, 1u << 31}) {
    h = c + (h * g >> 32);
  }
  return (h << 9) >> (40 - (d >> 56));
}

struct Settings {
  float temperature, top_p, min_p, repetition, frequency, presence;
  int64_t top_k;
  uint64_t seed, row_id, step;
};

// One row of the call, and its answer.
class Row {
public:
  Row(const SampleCall& call, int64_t n) : call_(call), params_(call.params), n_(n) {
    row_.temperature = number(call.temperatures, params_.temperature);
    row_.top_p = number(call.top_ps, params_.top_p);
    row_.min_p = number(call.min_ps, params_.min_p);
    row_.repetition = number(call.repetition_penalties, params_.repetition_penalty);
    row_.frequency = number(call.frequency_penalties, params_.frequency_penalty);
    row_.presence = number(call.presence_penalties, params_.presence_penalty);
    row_.top_k = integer(call.top_ks, params_.top_k);
    row_.seed = static_cast<uint64_t>(integer(call.seeds, params_.seed));
    row_.step = static_cast<uint64_t>(integer(call.steps, params_.step));
    row_.row_id = static_cast<uint64_t>(call.row_ids.load_int(n));
    answer();
  }

  int64_t id = -1;
  int32_t status = 0;
  Ids kept;  // in the order of step 4
  double processed_logp = kNan, processed_cond = 0;

private:
  float number(const View& of_rows, double scalar) const {
    return static_cast<float>(of_rows.present() ? of_rows.load(n_) : scalar);
  }
  int64_t integer(const View& of_rows, int64_t scalar) const {
    return of_rows.present() ? of_rows.load_int(n_) : scalar;
  }

  float score(int64_t v) const {
    const View& allowed = call_.allowed;
    if (allowed.present() && allowed.load_int(n_, v) == 0) return -kInfinity;
    const View& counts = call_.output_counts;
    const View& prompt = call_.prompt_mask;
    const int64_t count = counts.present() ? std::max<int64_t>(counts.load_int(n_, v), 0) : 0;
    const bool seen = count > 0 || (prompt.present() && prompt.load_int(n_, v) != 0);
    const auto a = static_cast<float>(call_.logits.load(n_, v));
    float b = a;
    if (seen) b = a > 0 ? a / row_.repetition : product(a, row_.repetition);
    if (count == 0) return b;
    const float paid = b - product(row_.frequency, static_cast<float>(count));
    return paid - row_.presence;
  }

  void answer() {
    for (int64_t v = 0; v < call_.V; ++v) x_.push_back(score(v));
    const auto strange = [](float x) { return std::isnan(x) || x == kInfinity; };
    if (std::any_of(x_.begin(), x_.end(), strange) || std::isnan(row_.temperature)) {
      status = 3;
      return;
    }
    max_ = *std::max_element(x_.begin(), x_.end());
    if (max_ == -kInfinity) {
      status = 2;
      return;
    }
    if (row_.temperature < 1e-5f) {
      status = 1;
      id = std::find(x_.begin(), x_.end(), max_) - x_.begin();
      kept = {id};
      processed_logp = 0;
      return;
    }
    for (const float x : x_) {
      const float below = x - max_;
      w_.push_back(weight(below / row_.temperature));
    }
    Ids active;
    for (int64_t v = 0; v < call_.V; ++v) {
      if (x_[at(v)] > -kInfinity) active.push_back(v);
    }
    std::stable_sort(active.begin(), active.end(), [&](int64_t a, int64_t b) { return x_[at(a)] > x_[at(b)]; });
    kept = filtered(active);
    draw(active);
    if (id < 0) return;
    const double tempered = (static_cast<double>(x_[at(id)]) - static_cast<double>(max_)) / row_.temperature;
    const double log_sum = std::log(static_cast<double>(sum(kept)) / static_cast<double>(kOne));
    processed_logp = tempered - log_sum;
    processed_cond = kTiny + 1 + std::fabs(tempered) + std::fabs(log_sum);
  }

  static size_t at(int64_t v) { return static_cast<size_t>(v); }
  uint64_t sum(const Ids& tokens) const {
    return std::accumulate(tokens.begin(), tokens.end(), uint64_t{0},
                           [&](uint64_t s, int64_t v) { return s + w_[at(v)]; });
  }
  // The first `count` of sorted tokens, and with `ties` those that equal the last of them.
  Ids first(const Ids& sorted, size_t count, bool ties) const {
    while (ties && count < sorted.size() && x_[at(sorted[count])] == x_[at(sorted[count - 1])]) ++count;
    return {sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count, sorted.size()))};
  }

  Ids by_min_p(const Ids& sorted) const {
    if (!(row_.min_p > 0)) return sorted;
    const double limit = std::min(std::ceil(static_cast<double>(row_.min_p) * kOne), static_cast<double>(kOne));
    Ids left;
    for (const int64_t v : sorted) {
      if (static_cast<double>(w_[at(v)]) >= limit) left.push_back(v);
    }
    return left;
  }
  Ids by_top_k(const Ids& sorted) const {
    if (row_.top_k <= 0 || row_.top_k >= call_.V) return sorted;
    return first(sorted, static_cast<size_t>(row_.top_k), params_.top_k_ties == TopKTies::keep);
  }
  Ids by_top_p(const Ids& sorted) const {
    if (!(row_.top_p < 1)) return sorted;
    const Wide share = multiply(fixed_point(std::max(row_.top_p, 0.0f)), sum(sorted));
    const bool round_up = params_.top_p_boundary == TopPBoundary::exceed || share.low != 0;
    const uint64_t limit = std::max<uint64_t>(1, share.high + (round_up ? 1 : 0));
    size_t count = 0;
    for (uint64_t before = 0; count < sorted.size() && before < limit; ++count) before += w_[at(sorted[count])];
    return first(sorted, count, params_.top_p_ties == TopPTies::keep);
  }
  Ids filtered(const Ids& active) const {
    if (params_.min_p_order == MinPOrder::last) return by_min_p(by_top_k_and_top_p(active));
    return by_top_k_and_top_p(by_min_p(active));
  }
  Ids by_top_k_and_top_p(const Ids& given) const {
    if (params_.filter_order == FilterOrder::top_k_first) return by_top_p(by_top_k(given));
    const Ids by_k = by_top_k(given), by_p = by_top_p(given);
    Ids both;
    for (const int64_t v : by_k) {
      if (std::find(by_p.begin(), by_p.end(), v) != by_p.end()) both.push_back(v);
    }
    return both;
  }

  int64_t drawn(Ids tokens, uint64_t number) const {
    std::sort(tokens.begin(), tokens.end());
    const uint64_t target = multiply(number, sum(tokens)).high;
    uint64_t reached = 0;
    for (const int64_t v : tokens) {
      reached += w_[at(v)];
      if (reached > target) return v;
    }
    return -1;
  }
  void draw(const Ids& active) {
    const View& samples = call_.uniform_samples;
    if (!samples.present()) {
      id = drawn(kept, philox(row_.seed, row_.row_id, row_.step));
      return;
    }
    for (int64_t round = 0; round < samples.shape[0]; ++round) {
      const auto share = static_cast<float>(samples.load(round, n_));
      if (!(share >= 0 && share < 1)) continue;
      const int64_t candidate = drawn(active, fixed_point(share));
      if (std::find(kept.begin(), kept.end(), candidate) == kept.end()) continue;
      id = candidate;
      return;
    }
    status = 4;
  }

  const SampleCall& call_;
  const Params& params_;
  int64_t n_;
  Settings row_{};
  std::vector<float> x_;
  std::vector<uint64_t> w_;
  float max_ = 0;
};

// log softmax(logits[n])[id], and its condition: as in the operator logp.
std::pair<double, double> raw_logp(const View& logits, int64_t n, int64_t id) {
  double max = -std::numeric_limits<double>::infinity(), mean_abs = 0;
  Sum powers;
  const int64_t vocab = logits.shape[1];
  for (int64_t v = 0; v < vocab; ++v) {
    if (std::isnan(logits.load(n, v))) return {kNan, 0};
    max = std::max(max, logits.load(n, v));
  }
  for (int64_t v = 0; v < vocab; ++v) {
    const double z = logits.load(n, v), power = std::exp(z - max);
    powers.add(power);
    if (power > 0) mean_abs += power * std::fabs(z);
  }
  const double sum = powers.value();
  const double z = logits.load(n, id), lse = max + std::log(sum);
  if (!std::isfinite(lse)) return {kNan, 0};
  return {z - lse, kTiny + 1 + std::fabs(max) + std::fabs(lse) + mean_abs / sum + std::fabs(z)};
}

}  // namespace

DataError sample(SampleCall& call) {
  DataError error;
  const auto put = [](Output& output, double value, double cond) {
    output.value.push_back(value);
    output.cond.push_back(std::isfinite(value) ? cond : 0);
  };
  for (int64_t n = 0; n < call.N; ++n) {
    const Row row(call, n);
    if (row.status == 2 && error.kind == kNoDataError) error = {kNoFiniteLogit, n, 0};
    put(call.ids, static_cast<double>(row.id), 0);
    put(call.status, row.status, 0);
    put(call.success, row.status <= 1 ? 1 : 0, 0);
    put(call.processed_logp, row.processed_logp, row.processed_cond);
    const auto [logp, cond] = row.id < 0 ? std::pair{kNan, 0.0} : raw_logp(call.logits, n, row.id);
    put(call.logp, logp, cond);
    std::vector<bool> keep(static_cast<size_t>(call.V));
    for (const int64_t v : row.kept) keep[static_cast<size_t>(v)] = true;
    for (const bool kept : keep) put(call.keep_mask, kept ? 1 : 0, 0);
  }
  return error;
}

}  // namespace rlk::golden
