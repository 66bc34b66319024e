// What the last kernel of sample does with a row (sample.cuh): a block of at most kPeakThreads has it.
#pragma once

#include "sample_sums.cuh"

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

namespace rlk::simt {

// One row in the hands of a block: the list of its first tokens, sorted, with the running sum of their weights.
class SampledRow {
public:
  __device__ __forceinline__ SampledRow(const MoveArgs& args, int64_t n, const SampleWeights& weight = {})
      : n_(n),
        row_(args, n),
        work_(args, n),
        shared_(sample_shared()),
        tokens_(shared_places<ShortPlace>()),
        sums_(reinterpret_cast<uint64_t*>(tokens_ + kSampleList)),
        me_(static_cast<int>(threadIdx.x)),
        threads_(static_cast<int>(blockDim.x)),
        segments_(row_.rules.segments),
        vocab_(row_.rules.vocab),
        weight_(weight) {}

  __device__ __forceinline__ void answer() {
    const int32_t status = list();
    if (status == kSampleGreedy) {
      const int64_t id = lowest_of_largest();
      if (me_ == 0 && row_.has_mask()) *row_.mask(id) = 1;
      return put(id, status, 0);
    }
    if (status != kSampleDrawn) {
      if (status == kSampleNoFinite && me_ == 0) {
        report_data_error(row_.args.errors, kDataNoFiniteLogit, row_.n, 0);
      }
      return put(-1, status, NAN);
    }
    settle();
    const SampleCut cut = shared_.cut;
    put_mask(cut);
    const bool is_listed = shared_.kept > 0 && !row_.has_rounds();
    const int64_t id = is_listed ? drawn_of_list(cut) : drawn_of_row(row_.args, n_, weight_, cut);
    if (id < 0) return put(id, kSampleNoRound, NAN);
    double processed = 0;
    if (me_ == 0 && row_.args.tensor[kSampleProcessed].data != nullptr) {
      const double below = static_cast<double>(row_.score(id)) - static_cast<double>(weight_.max);
      processed = below / static_cast<double>(weight_.temperature) - ::log(static_cast<double>(cut.sum) * 0x1p-40);
    }
    put(id, status, processed);
  }

private:
  // Lists the tokens up to a bound, mostly at least as many as are needed, in any order. The row's status.
  __device__ __forceinline__ int32_t list() {
    const int64_t peaks = row_.args.divisor[kBySampleStretches].size * kPeakLanes, length = row_.rules.stretch;
    PeakedRow<uint32_t> peaked(work_.peaks, peaks, row_.wanted(), kSampleNothing);
    const int32_t status = row_.status_of(peaked.first());
    if (status == kSampleNan || status == kSampleNoFinite) return status;
    weight_ = {sample_score(peaked.first()), row_.temperature()};
    const uint32_t bound = peaked.bound();
    is_complete_ = bound >= kSampleNothing;
    auto* const shares = reinterpret_cast<uint32_t*>(sums_);
    const int64_t listed = peaked.list_shares(bound, shares);
    unsigned& count = peak_shared().places;
    if (listed <= kSampleList) {
      const int unit = row_.unit();
      each_listed_pack(shares, listed, length, unit, [&](int64_t v) {
        row_.each<1>(v, v + unit < vocab_ ? v + unit : vocab_, 0, 1, [&](int64_t at, float x, auto) {
          const uint64_t own = token(x, at);
          if (sample_order(x) > bound || !is_active(own)) return;
          const unsigned place = atomicAdd(&count, 1u);
          if (place < static_cast<unsigned>(kSampleList)) tokens_[place] = {own};
        });
      });
    }
    __syncthreads();
    listed_ = listed <= kSampleList && count <= static_cast<unsigned>(kSampleList) ? static_cast<int>(count) : 0;
    sort_list(tokens_, listed_);
    return status;
  }

  __device__ __forceinline__ uint32_t order_at(int64_t i) const { return static_cast<uint32_t>(tokens_[i].word >> 32); }
  __device__ __forceinline__ uint64_t weight_at(int64_t i) const { return sums_[i] - (i > 0 ? sums_[i - 1] : 0); }
  __attribute__((noinline)) __device__ float score_of(int64_t v) const { return row_.score(v); }
  __device__ __forceinline__ uint64_t weight_of(int64_t v) const { return weight_(score_of(v)); }
  static __device__ __forceinline__ uint64_t token(float x, int64_t v) {
    return static_cast<uint64_t>(sample_order(x)) << 32 | static_cast<uint64_t>(v);
  }
  static __device__ __forceinline__ bool is_active(uint64_t token) {
    return token < static_cast<uint64_t>(kSampleNothing) << 32;
  }
  static __device__ __forceinline__ bool is_kept(const SampleCut& cut, uint64_t token, uint64_t w) {
    return is_active(token) && token <= cut.last && w >= cut.least;
  }

  __device__ __forceinline__ int64_t lowest_of_largest() {
    return listed_ > 0 ? tokens_[0].place() : lowest_of_row(row_.args, n_, weight_);
  }

  // What the filters keep.
  __device__ __forceinline__ void settle() {
    uint64_t all = 0, heavy = 0;
    if (row_.asks_all()) {
      for (int64_t s = me_; s < segments_; s += threads_) {
        all += work_.segments[s].all;
        heavy += work_.segments[s].heavy;
      }
      all = sum_of_block(all);
      heavy = sum_of_block(heavy);
    }
    if (me_ == 0) shared_.is_settled = 0;
    if (listed_ > 0) {
      sum_list(listed_);
      if (me_ == 0) settle_by_list(listed_, all, heavy);
    }
    __syncthreads();
    if (shared_.is_settled == 0) settle_by_row(row_.args, n_, weight_);
    __syncthreads();
  }

  __device__ __forceinline__ void sum_list(int64_t count) {
    for (int i = me_; i < count; i += threads_) sums_[i] = weight_(sample_score(order_at(i)));
    __syncthreads();
    const int64_t each = (count + threads_ - 1) / threads_, begin = me_ * each;
    const int64_t end = begin + each < count ? begin + each : count;
    uint64_t own = 0, total;
    for (int64_t i = begin; i < end; ++i) own += sums_[i];
    uint64_t sum = sum_before(own, total);
    for (int64_t i = begin; i < end; ++i) {
      sum += sums_[i];
      sums_[i] = sum;
    }
    __syncthreads();
  }

  // How many tokens of the list there are before the first that is_beyond(i).
  template <class IsBeyond>
  static __device__ __forceinline__ int64_t count_until(int64_t count, const IsBeyond& is_beyond) {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (is_beyond(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
  // `kept` of them, and those that equal the last one: all tokens of such a score are listed.
  __device__ __forceinline__ int64_t with_equals(int64_t kept, int64_t count) const {
    const uint32_t order = order_at(kept - 1);
    return count_until(count, [&](int64_t i) { return order_at(i) > order; });
  }

  // By one thread. Each filter keeps the first tokens; more than the list has is kEveryone. Not settled: it might be.
  __device__ __forceinline__ void settle_by_list(int64_t count, uint64_t all, uint64_t heavy) {
    constexpr int64_t kEveryone = int64_t{1} << 62;
    const SampleRules& rules = row_.rules;
    const bool is_complete = is_complete_, asks_all = row_.asks_all();
    const uint64_t least = row_.least(), listed = sums_[count - 1];
    if (is_complete) all = listed;
    int64_t heavy_ones = kEveryone;
    bool knows_heavy = true;
    if (least > 0) {
      const int64_t found = count_until(count, [&](int64_t i) { return weight_at(i) < least; });
      knows_heavy = found < count || is_complete;
      if (knows_heavy) {
        heavy_ones = found;
        heavy = sums_[found - 1];
      }
    } else {
      heavy = all;
    }
    const int64_t given = rules.min_p_last != 0 ? kEveryone : heavy_ones;
    int64_t by_k = kEveryone;
    if (row_.by_k()) {
      const int64_t k = row_.top_k();
      if (k <= count) {
        by_k = rules.keeps_k_ties != 0 ? with_equals(k, count) : k;
      } else if (!is_complete) {
        return;
      }
    }
    int64_t by_p = kEveryone;
    if (row_.by_p()) {
      const int64_t of = rules.is_joint != 0 || given < by_k ? given : by_k;
      if (of == kEveryone && !is_complete && !asks_all) return;
      const uint64_t sum = of <= count ? sums_[of - 1] : rules.min_p_last != 0 ? all : heavy;
      const uint64_t limit = limit_of(sum);
      if (listed >= limit) {
        by_p = 1 + count_until(count, [&](int64_t i) { return sums_[i] >= limit; });
        if (rules.keeps_p_ties != 0) by_p = with_equals(by_p, count);
      } else if (!is_complete) {
        return;
      }
    }
    int64_t kept = by_k < by_p ? by_k : by_p;
    kept = heavy_ones < kept ? heavy_ones : kept;
    if (kept == kEveryone) {
      if (!knows_heavy) return;
      if (is_complete) kept = count;
    }
    shared_.is_settled = 1;
    shared_.kept = kept == kEveryone ? 0 : static_cast<int>(kept);
    shared_.cut = {kept == kEveryone ? kSampleAll : tokens_[kept - 1].word, 0,
                   kept == kEveryone ? all : sums_[kept - 1]};
  }

  // Of top_p: tokens before which there is less weight than that are kept.
  __device__ __forceinline__ uint64_t limit_of(uint64_t sum) const {
    const float share = row_.top_p();
    uint64_t rest = 0;
    const uint64_t whole = formula::multiply_high(formula::fixed_point(share > 0 ? share : 0.0f), sum, &rest);
    const uint64_t limit = whole + (row_.rules.exceeds_p != 0 || rest != 0 ? 1 : 0);
    return limit < 1 ? 1 : limit;
  }

  // What is asked of a row's tokens. One walk for all questions: the loop is made for every dtype.
  enum Question { kLowest, kSum, kMass, kWeightMass, kMark };
  struct Walk {
    Question question;
    SampleCut cut;
    uint64_t known;  // of the digits before
    int low, bits;   // of the digit
  };
  __attribute__((noinline)) __device__ uint64_t walk(const Walk& by) const {
    const int above = by.low + by.bits;
    uint64_t sum = 0;
    row_.each<1>(0, vocab_, me_, threads_, [&](int64_t v, float x, auto) {
      const uint64_t own = token(x, v);
      if (!is_active(own)) return;
      if (by.question == kLowest) {
        // HIP has no minimum of signed numbers of 64 bits.
        auto* const first = reinterpret_cast<unsigned long long*>(&shared_.found);
        if (x == weight_.max) atomicMin(first, static_cast<unsigned long long>(v));
        return;
      }
      const bool of_mass = by.question == kMass || by.question == kWeightMass;
      if (of_mass && above < 64 && own >> above != by.known >> above) return;
      const uint64_t w = by.question == kMass ? 1 : weight_(x);
      if (of_mass) {
        add_mass(static_cast<int>(own >> by.low & ((1u << by.bits) - 1)), w);
      } else if (is_kept(by.cut, own, w)) {
        sum += w;
        if (by.question == kMark) *row_.mask(v) = 1;
      }
    });
    return sum;
  }
  __device__ __forceinline__ uint64_t kept_sum(const SampleCut& cut) const {
    return sum_of_block(walk({kSum, cut, 0, 0, 0}));
  }

  // The mass of each digit, in the memory of the list, which no longer counts. Where a row is short its weights are
  // added in pieces whose sums fit 32 bits: atomics of 64 bits in shared memory are loops.
  static constexpr int kPieceBits = 14;
  static constexpr int64_t kShort = int64_t{1} << (32 - kPieceBits);
  __device__ __forceinline__ void add_mass(int digit, uint64_t w) const {
    if (vocab_ > kShort) {
      if (w > 0) atomicAdd(reinterpret_cast<unsigned long long*>(tokens_) + digit, static_cast<unsigned long long>(w));
      return;
    }
    auto* at = reinterpret_cast<unsigned*>(tokens_) + digit;
    for (; w > 0; w >>= kPieceBits, at += kSampleDigits) {
      const auto piece = static_cast<unsigned>(w & ((1u << kPieceBits) - 1));
      if (piece > 0) atomicAdd(at, piece);
    }
  }
  __device__ __forceinline__ uint64_t mass_of(int64_t digit) const {
    if (vocab_ > kShort) return reinterpret_cast<const uint64_t*>(tokens_)[digit];
    const auto* const at = reinterpret_cast<const unsigned*>(tokens_) + digit;
    return at[0] + (static_cast<uint64_t>(at[kSampleDigits]) << kPieceBits) +
           (static_cast<uint64_t>(at[2 * kSampleDigits]) << (2 * kPieceBits));
  }

  // The token with which the mass, of tokens or of weight, reaches the limit, found by its digits; kSampleAll where
  // there is less. With ties, the last of its score.
  __attribute__((noinline)) __device__ uint64_t token_at(bool of_weight, uint64_t limit, bool with_ties) const {
    constexpr int kDigits = ShortPlace::kDigits, kBits = 11, kLastBits = 64 - kBits * (kDigits - 1);
    uint64_t known = 0, before = 0;
    for (int d = 0; d < kDigits; ++d) {
      const int shift = 64 - kBits * (d + 1), low = shift > 0 ? shift : 0, bits = d < kDigits - 1 ? kBits : kLastBits;
      for (int i = me_; i < 3 * kSampleDigits; i += threads_) reinterpret_cast<unsigned*>(tokens_)[i] = 0;
      __syncthreads();
      walk({of_weight ? kWeightMass : kMass, {}, known, low, bits});
      __syncthreads();
      uint64_t rest;
      const int64_t digits = int64_t{1} << bits;
      const int64_t digit = first_beyond(
          digits, limit - before - 1, [&](int64_t i) { return mass_of(i); }, &rest);
      if (digit == digits) return kSampleAll;
      known |= static_cast<uint64_t>(digit) << low;
      before = limit - 1 - rest;
    }
    return with_ties ? known | 0xffffffffu : known;
  }

  __device__ __forceinline__ void settle_by_digits() {
    const SampleRules& rules = row_.rules;
    const uint64_t least = row_.least(), of_given = rules.min_p_last != 0 ? 0 : least;
    SampleCut cut = {kSampleAll, least, 0};
    if (row_.by_k()) cut.last = token_at(false, static_cast<uint64_t>(row_.top_k()), rules.keeps_k_ties != 0);
    if (row_.by_p()) {
      const uint64_t sum = kept_sum({rules.is_joint != 0 ? kSampleAll : cut.last, of_given, 0});
      const uint64_t by_p = token_at(true, limit_of(sum), rules.keeps_p_ties != 0);
      cut.last = by_p < cut.last ? by_p : cut.last;
    }
    cut.sum = kept_sum(cut);
    if (me_ == 0) {
      shared_.cut = cut;
      shared_.kept = 0;
    }
  }

  __device__ __forceinline__ void put_mask(const SampleCut& cut) const {
    if (!row_.has_mask()) return;
    const int kept = shared_.kept;
    if (kept > 0) {
      for (int i = me_; i < kept; i += threads_) *row_.mask(tokens_[i].place()) = 1;
      return;
    }
    mark_row(row_.args, n_, weight_, cut);
  }

  __device__ __forceinline__ int64_t drawn_of_all(uint64_t target) const {
    uint64_t rest;
    const int64_t segment = first_beyond(
        segments_, target, [&](int64_t s) { return work_.segments[s].all; }, &rest);
    const int64_t begin = segment * row_.rules.segment, end = begin + row_.rules.segment;
    return begin + first_beyond((end < vocab_ ? end : vocab_) - begin, rest,
                                [&](int64_t i) { return weight_of(begin + i); }, &rest);
  }

  __device__ __forceinline__ uint64_t target_of(const SampleCut& cut) const {
    const uint64_t random = formula::sample_random(static_cast<uint64_t>(row_.integer(kSampleSeeds, row_.rules.seed)),
                                                   static_cast<uint64_t>(row_.integer(kSampleRowIds, 0)),
                                                   static_cast<uint64_t>(row_.integer(kSampleSteps, row_.rules.step)));
    return formula::multiply_high(random, cut.sum);
  }
  // By rising id.
  __device__ __forceinline__ int64_t drawn_of_list(const SampleCut& cut) const {
    const int kept = shared_.kept;
    const uint64_t target = target_of(cut);
    uint64_t rest;
    __syncthreads();
    for (int i = me_; i < kept; i += threads_) {
      tokens_[i] = {static_cast<uint64_t>(tokens_[i].place()) << 32 | static_cast<uint64_t>(i)};
    }
    sort_list(tokens_, kept);
    const int64_t at = first_beyond(
        kept, target, [&](int64_t i) { return weight_at(tokens_[i].place()); }, &rest);
    return static_cast<int64_t>(tokens_[at].word >> 32);
  }
  __device__ __forceinline__ int64_t drawn(const SampleCut& cut) const {
    const uint64_t target = target_of(cut);
    if (cut.last == kSampleAll && cut.least == 0 && row_.asks_all()) return drawn_of_all(target);
    uint64_t rest;
    return first_beyond(
        vocab_, target,
        [&](int64_t v) {
          const float x = score_of(v);
          const uint64_t w = weight_(x);
          return is_kept(cut, token(x, v), w) ? w : 0;
        },
        &rest);
  }

  __device__ __forceinline__ int64_t drawn_in_rounds(const SampleCut& cut) const {
    uint64_t all = 0;
    for (int64_t s = me_; s < segments_; s += threads_) all += work_.segments[s].all;
    all = sum_of_block(all);
    const MoveTensor& uniform = row_.args.tensor[kSampleUniform];
    for (int64_t k = 0; k < row_.rules.rounds; ++k) {
      const float share = static_cast<const float*>(uniform.data)[k * uniform.stride[0] + row_.n * uniform.stride[1]];
      if (!(share >= 0 && share < 1)) continue;
      const int64_t candidate = drawn_of_all(formula::multiply_high(formula::fixed_point(share), all));
      const float x = score_of(candidate);
      if (is_kept(cut, token(x, candidate), weight_(x))) return candidate;
    }
    return -1;
  }

  // What the list does not answer. Each function makes a row of its own, so that the caller's may stay in registers.
  static __attribute__((noinline)) __device__ int64_t lowest_of_row(const MoveArgs& args, int64_t n,
                                                                    SampleWeights weight) {
    const SampledRow row(args, n, weight);
    if (row.me_ == 0) row.shared_.found = row.vocab_;
    __syncthreads();
    row.walk({kLowest, {}, 0, 0, 0});
    __syncthreads();
    return row.shared_.found;
  }
  static __attribute__((noinline)) __device__ void settle_by_row(const MoveArgs& args, int64_t n,
                                                                 SampleWeights weight) {
    SampledRow(args, n, weight).settle_by_digits();
  }
  static __attribute__((noinline)) __device__ void mark_row(const MoveArgs& args, int64_t n, SampleWeights weight,
                                                            SampleCut cut) {
    SampledRow(args, n, weight).walk({kMark, cut, 0, 0, 0});
  }
  static __attribute__((noinline)) __device__ int64_t drawn_of_row(const MoveArgs& args, int64_t n,
                                                                   SampleWeights weight, SampleCut cut) {
    const SampledRow row(args, n, weight);
    return row.row_.has_rounds() ? row.drawn_in_rounds(cut) : row.drawn(cut);
  }

  __device__ __forceinline__ void put(int64_t id, int32_t status, double processed) const {
    const MoveArgs& args = row_.args;
    const MoveTensor* const tensor = args.tensor;
    double raw_sum = 0;
    double raw_max = -INFINITY;
    if (tensor[kSampleLogp].data != nullptr && id >= 0) raw_sum = sum_of_raw(raw_max);
    if (me_ != 0) return;
    const auto at = [&](int t) { return row_.n * tensor[t].stride[0]; };
    if (tensor[kSampleIds].dtype == kMapI64) {
      static_cast<int64_t*>(tensor[kSampleIds].data)[at(kSampleIds)] = id;
    } else {
      static_cast<int32_t*>(tensor[kSampleIds].data)[at(kSampleIds)] = static_cast<int32_t>(id);
    }
    if (tensor[kSampleStatus].data != nullptr) {
      static_cast<int32_t*>(tensor[kSampleStatus].data)[at(kSampleStatus)] = status;
    }
    if (tensor[kSampleSuccess].data != nullptr) {
      static_cast<uint8_t*>(tensor[kSampleSuccess].data)[at(kSampleSuccess)] = id >= 0 ? 1 : 0;
    }
    move_put(tensor[kSampleProcessed], at(kSampleProcessed), processed);
    if (tensor[kSampleLogp].data == nullptr) return;
    const double logp = id < 0 ? NAN : row_.logit(id) - raw_max - ::log(raw_sum);
    move_put(tensor[kSampleLogp], at(kSampleLogp), logp);
  }

  // Of all tokens as given, to the first thread; sums of threads, lanes and waves in the order of their numbers.
  __device__ __forceinline__ double sum_of_raw(double& raw_max) const {
    auto* const of_wave = reinterpret_cast<double*>(sums_);
    auto* const max_of_wave = of_wave + kPeakThreads / 32;
    double sum = 0;
    for (int64_t s = me_; s < row_.args.divisor[kBySampleStretches].size; s += threads_) {
      const double raw = work_.stretches[s].raw_max;
      raw_max = raw > raw_max ? raw : raw_max;
    }
    for (int64_t s = me_; s < segments_; s += threads_) sum = formula::Add(sum, work_.segments[s].raw_sum);
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      const double raw = wave_xor(raw_max, lanes);
      raw_max = raw > raw_max ? raw : raw_max;
      sum = formula::Add(sum, wave_xor(sum, lanes));
    }
    __syncthreads();
    if (me_ % kWave == 0) {
      of_wave[me_ / kWave] = sum;
      max_of_wave[me_ / kWave] = raw_max;
    }
    __syncthreads();
    for (int w = 0; w < threads_ / kWave; ++w) {
      raw_max = max_of_wave[w] > raw_max ? max_of_wave[w] : raw_max;
      sum = w == 0 ? of_wave[0] : formula::Add(sum, of_wave[w]);
    }
    return sum;
  }

  const int64_t n_;  // of the launch
  const SampleRow row_;
  const SampleWork work_;
  SampleShared& shared_;
  ShortPlace* const tokens_;
  uint64_t* const sums_;
  const int me_, threads_;
  const int64_t segments_, vocab_;
  SampleWeights weight_;      // of the row, once it is listed
  bool is_complete_ = false;  // the list has all active tokens
  int listed_ = 0;            // 0: too many
};

__device__ __forceinline__ void sample_draw(const MoveArgs& args) {
  for (int64_t n = blockIdx.x; n < args.units; n += gridDim.x) {
    SampledRow(args, n).answer();
    __syncthreads();
  }
}

}  // namespace rlk::simt

#endif
