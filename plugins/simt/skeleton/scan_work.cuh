// What threads do with the tokens of a sequence (scan.cuh): steps, what is behind them, and links.
#pragma once

#include "../element.cuh"
#include "scan_packs.cuh"
#include "scan_sums.cuh"
#include "seqlens.cuh"

namespace rlk::simt {

// Sum: Running or Discounted. A: float for f32, bf16 and f16, or double.
template <class Sum, class A>
class Scan {
  using Bits = typename Sum::Bits;
  using Link = typename Sum::Link;
  using State = typename Sum::State;
  static constexpr int kWaves = kScanThreads / kWave;
  static constexpr int kStep = kWave * kScanItems;  // tokens of a wave
  static constexpr int kInputs = Sum::kTokens ? 2 : 1;

  struct Raw {
    Bits x[kInputs][kScanItems];
    uint8_t mask[Sum::kTokens ? kScanItems : 1];
    double behind;  // of the last lane: the value behind its tokens, where steps are uniform
  };
  struct Behind {
    bool any;  // a token that counts
    double value;
  };
  // Of a wave: whether tokens count, whether the first lane's do, and what it leaves as the next value.
  struct Front {
    int32_t any, first;
    double value;
  };

public:
  __device__ __forceinline__ explicit Scan(const ScanArgs& args)
      : args_(args),
        sum_(args),
        lane_(static_cast<int>(threadIdx.x) % kWave),
        wave_(static_cast<int>(threadIdx.x) / kWave) {
    if constexpr (Sum::kTokens) find_factors();
  }

  // Sequence n, by the wave or by the block, or the chunk at slot n, by the block: its link or, where the links of
  // those behind it are known, its sums.
  __device__ __forceinline__ void work_on(int64_t n) {
    int64_t c = 0, first = 0, last = 0;
    if (args_.form == kScanRows) {
      seek(n);
      last = (length_ + kScanChunk - 1) / kScanChunk;
      c = last - 1;
    } else if (!find_chunk(n, c, first, last)) {
      return;
    }
    const bool sums = args_.form != kScanTotals;
    State state = sums ? sum_.start(row_) : Sum::zero();
    for (int64_t s = last - 1; args_.form == kScanChunks && s > n; --s) {
      state = Sum::after(Sum::link_of(args_.total[s]), state);
    }
    const Behind behind =
        args_.form == kScanRows ? Behind{false, sum_.start_value(row_)} : behind_chunk(c, first, last);
    walk_chunks(c, args_.form == kScanRows ? 0 : c, state, behind, sums ? nullptr : args_.total + n);
  }

  // The first token of a chunk that counts.
  __device__ __forceinline__ void kept(int64_t slot) {
    int64_t c = 0, first = 0, last = 0;
    if (!find_chunk(slot, c, first, last)) return;
    int64_t kept = INT64_MAX;
    for (int i = kScanItems - 1; i >= 0; --i) {
      const int64_t t = c * kScanChunk + i * kScanThreads + threadIdx.x;
      if (t >= length_) continue;
      if (static_cast<const uint8_t*>(args_.mask.data)[at_mask_ + t * args_.mask.column] != 0) kept = t;
    }
    kept = block_smallest<kScanThreads>(kept);
    if (threadIdx.x == 0) args_.kept[slot] = kept == INT64_MAX ? -1 : kept;
  }

  // Every output of a packed call whose cu_seqlens are in error.
  __device__ __forceinline__ void all_nan() const {
    const int64_t step = static_cast<int64_t>(gridDim.x) * kScanThreads;
    for (int64_t t = static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x; t < args_.length; t += step) {
      put(args_.out, t * args_.out.column, A(NAN));
      if (args_.targets.data != nullptr) put(args_.targets, t * args_.targets.column, A(NAN));
    }
  }

private:
  // Chunks from .. to, the last one first, or the link of one.
  __device__ __forceinline__ void walk_chunks(int64_t from, int64_t to, State state, Behind behind, ScanTotal* total) {
    const bool by_wave = args_.waves == 1;
    // Steps of the wave that have tokens.
    int64_t step = by_wave ? (length_ + kStep - 1) / kStep - 1 : from * kWaves + wave_;
    const int64_t stop = by_wave ? 0 : to * kWaves;
    if (from < to) return;
    Raw raw;
    load(step, raw);
    Link link = Sum::nothing();
    while (step >= stop) {
      const int64_t at = step;
      step -= args_.waves;
      const int64_t next = step >= stop ? step : -1;
      const State* const own_state = total == nullptr ? &state : nullptr;
      bool is_uniform = false;
      if constexpr (Sum::kTokens) {
        const int64_t end = by_wave ? at + 1 : at - wave_ + kWaves;
        is_uniform = uniform_.is_on && end * kStep <= length_;
        if (is_uniform) work_uniform(at, raw, next, own_state, link);
      }
      if (!is_uniform) work(at, raw, next, own_state, link, behind);
      if (total != nullptr && threadIdx.x == 0) *total = Sum::total_of(link);
      if (by_wave && at % kWaves != 0) continue;
      state = Sum::after(link, state);
      link = Sum::nothing();
    }
  }

  __device__ __forceinline__ int64_t first_token(int64_t b) const {
    return read_index(args_.cu_seqlens, b * args_.cu_stride, args_.cu_are_i64 != 0);
  }
  __device__ __forceinline__ void seek(int64_t b) {
    row_ = b;
    length_ = args_.length;
    int64_t begin = 0;
    const bool packed = args_.cu_seqlens != nullptr;
    if (packed) {
      begin = first_token(b);
      length_ = first_token(b + 1) - begin;
    }
    const auto place = [&](const GridTensor& tensor) { return packed ? begin * tensor.column : b * tensor.row; };
    at_in_ = place(args_.in);
    at_values_ = place(args_.values);
    at_mask_ = place(args_.mask);
    at_out_ = place(args_.out);
    at_targets_ = place(args_.targets);
  }

  // The sequence and its chunk at a slot, and the slots of all its chunks. Packed sequences have slots that do not
  // overlap, some of which no chunk has.
  __device__ __forceinline__ bool find_chunk(int64_t slot, int64_t& c, int64_t& first, int64_t& last) {
    if (args_.cu_seqlens == nullptr) {
      first = slot / args_.chunks * args_.chunks;
      seek(slot / args_.chunks);
    } else {
      const auto slot_of = [&](int64_t b) { return first_token(b) / kScanChunk + b; };
      int64_t low = 0, high = args_.rows;  // the sequence is in [low, high)
      while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        slot_of(middle) <= slot ? low = middle : high = middle;
      }
      first = slot_of(low);
      seek(low);
    }
    last = first + (length_ + kScanChunk - 1) / kScanChunk;
    c = slot - first;
    return slot < last;
  }

  __device__ __forceinline__ Behind behind_chunk(int64_t c, int64_t first, int64_t last) const {
    if constexpr (!Sum::kTokens) return {false, 0};
    Behind behind = {false, sum_.start_value(row_)};
    int64_t next = c + 1 < last - first ? (c + 1) * kScanChunk : -1;
    if (args_.mask.data != nullptr) {
      if (args_.kept == nullptr) return behind;  // the rule does not ask
      next = -1;
      for (int64_t s = first + c + 1; s < last && next < 0; s += kWave) {
        const int64_t own = s + lane_ < last ? args_.kept[s + lane_] : -1;
        const uint64_t found = wave_ballot(own >= 0);
        if (found != 0) next = wave_read(own, lowest_lane(found));
      }
    }
    if (next < 0) return behind;
    behind.any = true;
    behind.value = args_.rule == kScanZero && next != (c + 1) * kScanChunk ? 0 : value_at(next);
    return behind;
  }
  __device__ __forceinline__ double value_at(int64_t t) const {
    if (args_.values.data == nullptr) return 0;
    return grid_number<A>(args_.values, at_values_ + t * args_.values.column, args_.dtype);
  }

  // The wave's tokens of a step, one in kWave each lane; 0 behind the sequence.
  __device__ __forceinline__ void load(int64_t step, Raw& raw) const {
    if (args_.packs != 0) return load_packs(step * kStep + lane_ * kScanItems, raw);
    const int64_t t = step * kStep + lane_;
    load_from(args_.in, at_in_, t, raw.x[0]);
    if constexpr (Sum::kTokens) {
      load_from(args_.values, at_values_, t, raw.x[1]);
#pragma unroll
      for (int i = 0; i < kScanItems; ++i) {
        const bool there = t + i * kWave < length_;
        raw.mask[i] = there ? 1 : 0;
        if (there && args_.mask.data != nullptr) {
          raw.mask[i] = static_cast<const uint8_t*>(args_.mask.data)[at_mask_ + (t + i * kWave) * args_.mask.column];
        }
      }
    }
  }
  // The same by neighbours; all or none of a thread's are there.
  __device__ __forceinline__ void load_packs(int64_t t, Raw& raw) const {
    const bool there = t < length_;
    const auto load_numbers = [&](const GridTensor& tensor, int64_t at, Bits(&out)[kScanItems]) {
#pragma unroll
      for (int i = 0; i < kScanItems; ++i) out[i] = 0;
      if (there && tensor.data != nullptr) load_neighbours(tensor, args_.dtype, at + t * tensor.column, out);
    };
    load_numbers(args_.in, at_in_, raw.x[0]);
    if constexpr (Sum::kTokens) {
      load_numbers(args_.values, at_values_, raw.x[1]);
#pragma unroll
      for (int i = 0; i < kScanItems; ++i) raw.mask[i] = there ? 1 : 0;
      if (there && args_.mask.data != nullptr) {
        load_neighbours_mask(args_.mask, at_mask_ + t * args_.mask.column, raw.mask);
      }
      if (uniform_.is_on && lane_ == kWave - 1 && t + kScanItems <= length_) {
        raw.behind = t + kScanItems < length_ ? value_at(t + kScanItems) : sum_.start_value(row_);
      }
    }
  }
  __device__ __forceinline__ void load_from(const GridTensor& tensor, int64_t at, int64_t t,
                                            Bits (&out)[kScanItems]) const {
    grid_bits(tensor, args_.dtype, at + t * tensor.column, kWave * tensor.column, (length_ - t + kWave - 1) / kWave,
              out);
  }

  static __device__ __forceinline__ int place_of(int e) {
    return e + e / kScanItems;
  }  // no two lanes' in one bank

  // The wave's step at `at`, whose numbers are in raw; those of step `next` are read into it, if there is one. link is
  // that of the chunk's tokens behind all steps that waves of the row work on now, behind is what is behind them.
  // Without a state only the link is wanted.
  __device__ __forceinline__ void work(int64_t at, Raw& raw, int64_t next, const State* state, Link& link,
                                       Behind& behind) {
    Tokens<A> tokens;
    uint32_t striped = 0;  // of packs not asked
    if (args_.packs != 0) {
      take_packs(raw, tokens);
      if (next >= 0) load(next, raw);
    } else {
      striped = exchange(raw, next, tokens);
    }
    if constexpr (Sum::kTokens) find_behind(tokens, behind);
    const Link all = wave_scan(sum_.link(tokens));
    Link incoming = all;
    // Of the lanes behind.
    incoming = Sum::read(all, (lane_ + 1) % kWave);
    if (lane_ == kWave - 1) incoming = Sum::nothing();
    const Link of_wave = Sum::read(all, 0);
    if (args_.waves == 1) {
      incoming = Sum::compose(incoming, link);
      link = Sum::compose(of_wave, link);
    } else {
      __shared__ unsigned char links[2][kWaves][sizeof(Link)];
      if (lane_ == 0) __builtin_memcpy(links[turn_][wave_], &of_wave, sizeof(Link));
      __syncthreads();
      Link behind_wave = link;
#pragma unroll 1
      for (int w = kWaves - 1; w >= 0; --w) {
        if ((at - wave_ + w) * kStep >= length_) continue;  // as one wave would
        if (w == wave_) behind_wave = link;
        Link other = link;
        __builtin_memcpy(&other, links[turn_][w], sizeof(Link));
        link = Sum::compose(other, link);
      }
      incoming = Sum::compose(incoming, behind_wave);
      turn_ ^= 1;
    }
    if (state == nullptr) return;
    sum_.walk(tokens, Sum::after(incoming, *state));
    if (args_.packs != 0) {
      const int64_t t = at * kStep + lane_ * kScanItems;
      if (t >= length_) return;
#pragma unroll
      for (int i = 0; i < kScanItems; ++i) {
        if ((tokens.kept >> i & 1) == 0) tokens.x[i] = tokens.value[i] = 0;
      }
      if (args_.out.data != nullptr) store_neighbours(args_.out, at_out_ + t * args_.out.column, tokens.x);
      if constexpr (Sum::kTokens) {
        if (args_.targets.data == nullptr) return;
        store_neighbours(args_.targets, at_targets_ + t * args_.targets.column, tokens.value);
      }
      return;
    }
    A* const own = own_numbers(0);
    A* const own_values = own_numbers(kInputs - 1);
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) {
      own[place_of(kScanItems * lane_ + i)] = tokens.x[i];
      if constexpr (Sum::kTokens) own_values[place_of(kScanItems * lane_ + i)] = tokens.value[i];
    }
    wave_sync();
    store(args_.out, at_out_, at * kStep + lane_, striped, own);
    if constexpr (Sum::kTokens) store(args_.targets, at_targets_, at * kStep + lane_, striped, own_values);
  }

  __device__ __forceinline__ void find_factors() {
    if (args_.packs == 0 || args_.mask.data != nullptr || args_.decay_power != 0 || !(args_.decay > 0)) return;
    Link own = Sum::nothing();
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) own.factor = formula::Mul(own.factor, args_.decay_fraction);
    const Link all = wave_scan(own), later = Sum::read(all, (lane_ + 1) % kWave);
    uniform_.find(own.factor, lane_ == kWave - 1 ? 1 : later.factor, Sum::read(all, 0).factor, wave_, kWaves);
  }
  // What work() does with a whole step, to the bit.
  __device__ __forceinline__ void work_uniform(int64_t at, Raw& raw, int64_t next, const State* state, Link& link) {
    Tokens<A> tokens;
    take_packs(raw, tokens);
    const double behind = raw.behind;
    if (next >= 0) load(next, raw);
    tokens.next_value = wave_read(static_cast<double>(tokens.value[0]), (lane_ + 1) % kWave);
    if (lane_ == kWave - 1) tokens.next_value = behind;
    double delta[kScanItems];
    double sum = sum_.deltas(tokens, delta);
#pragma unroll
    for (int k = 0, lanes = 1; lanes < kWave; ++k, lanes *= 2) {
      const double other = wave_read(sum, (lane_ + lanes) % kWave);
      if (lane_ + lanes < kWave) sum = formula::Add(sum, formula::Mul(uniform_.steps[k], other));
    }
    Link incoming = {uniform_.lanes_behind, wave_read(sum, (lane_ + 1) % kWave), 0};
    if (lane_ == kWave - 1) incoming.sum = 0;
    const Link of_wave = {uniform_.wave, wave_read(sum, 0), 0};
    if (args_.waves == 1) {
      incoming = Sum::compose(incoming, link);
      link = Sum::compose(of_wave, link);
    } else {
      __shared__ double sums[2][kWaves];
      if (lane_ == 0) sums[turn_][wave_] = of_wave.sum;
      __syncthreads();
      double all = 0, behind_wave = 0;
#pragma unroll
      for (int w = kWaves - 1; w >= 0; --w) {
        if (w == wave_) behind_wave = all;
        all = formula::Add(sums[turn_][w], formula::Mul(uniform_.wave, all));
      }
      incoming.sum = formula::Add(incoming.sum, formula::Mul(uniform_.lanes_behind, behind_wave));
      incoming.factor = formula::Mul(uniform_.lanes_behind, uniform_.waves_behind);
      link = {uniform_.chunk, all, 0};
      turn_ ^= 1;
    }
    if (state == nullptr) return;
    sum_.walk_deltas(tokens, delta, Sum::after(incoming, *state));
    const int64_t t = at * kStep + lane_ * kScanItems;
    if (args_.out.data != nullptr) store_neighbours(args_.out, at_out_ + t * args_.out.column, tokens.x);
    if (args_.targets.data == nullptr) return;
    store_neighbours(args_.targets, at_targets_ + t * args_.targets.column, tokens.value);
  }

  // The wave's room to exchange numbers.
  __device__ __forceinline__ A* own_numbers(int input) const {
    __shared__ A numbers[kInputs][kScanThreads * (kScanItems + 1)];
    return numbers[input] + wave_ * kWave * (kScanItems + 1);
  }
  __device__ __forceinline__ void take_packs(const Raw& raw, Tokens<A>& tokens) const {
    tokens.kept = 0xff;
    if constexpr (Sum::kTokens) tokens.kept = 0;
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) {
      tokens.x[i] = grid_widen<A>(raw.x[0][i], args_.dtype);
      tokens.value[i] = 0;
      if constexpr (Sum::kTokens) {
        tokens.value[i] = grid_widen<A>(raw.x[1][i], args_.dtype);
        tokens.kept |= raw.mask[i] != 0 ? 1u << i : 0;
      }
    }
  }
  // From one in kWave each lane to neighbours. Which of the numbers that this lane writes count.
  __device__ __forceinline__ uint32_t exchange(Raw& raw, int64_t next, Tokens<A>& tokens) const {
    A* const own = own_numbers(0);
    A* const own_values = own_numbers(kInputs - 1);
    wave_sync();  // what was written from there has been read
    tokens.kept = 0xff;
    if constexpr (Sum::kTokens) {
      const int from = kScanItems * lane_ / kWave, shift = kScanItems * lane_ % kWave;
#pragma unroll
      for (int i = 0; i < kScanItems; ++i) {
        const uint64_t flags = wave_ballot(raw.mask[i] != 0);
        if (i == from) tokens.kept = static_cast<uint32_t>(flags >> shift) & 0xff;
      }
    }
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) {
      own[place_of(lane_ + i * kWave)] = grid_widen<A>(raw.x[0][i], args_.dtype);
      if constexpr (Sum::kTokens) {
        own_values[place_of(lane_ + i * kWave)] = grid_widen<A>(raw.x[1][i], args_.dtype);
      }
    }
    uint32_t striped = 0xff;
    if constexpr (Sum::kTokens) {
      striped = 0;
#pragma unroll
      for (int i = 0; i < kScanItems; ++i) striped |= raw.mask[i] != 0 ? 1u << i : 0;
    }
    wave_sync();
    if (next >= 0) load(next, raw);
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) {
      tokens.x[i] = own[place_of(kScanItems * lane_ + i)];
      if constexpr (Sum::kTokens) tokens.value[i] = own_values[place_of(kScanItems * lane_ + i)];
    }
    return striped;
  }

  // What is behind the lane's tokens, and behind the steps that come next.
  __device__ __forceinline__ void find_behind(Tokens<A>& tokens, Behind& behind) {
    const bool carries = args_.rule == kScanCarry;
    // The first token that counts, or (zero) the first token.
    double front = 0;
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      const bool counts = (tokens.kept >> i & 1) != 0;
      front = counts ? static_cast<double>(tokens.value[i]) : carries ? front : 0;
    }
    const uint64_t flags = wave_ballot(tokens.kept != 0);
    const uint64_t later = flags & ~((uint64_t{2} << lane_) - 1);
    const int nearest = later != 0 ? lowest_lane(later) : lane_;
    const double next_value = wave_read(front, nearest);
    const Front own = {flags != 0 ? 1 : 0, static_cast<int32_t>(flags & 1),
                       wave_read(front, carries && flags != 0 ? lowest_lane(flags) : 0)};
    Behind behind_wave = behind;
    if (args_.waves == 1) {
      behind = in_front(own, behind);
    } else {
      __shared__ Front fronts[2][kWaves];
      if (lane_ == 0) fronts[turn_][wave_] = own;
      __syncthreads();
#pragma unroll 1
      for (int w = kWaves - 1; w >= 0; --w) {
        if (w == wave_) behind_wave = behind;
        behind = in_front(fronts[turn_][w], behind);
      }
    }
    const bool last = lane_ == kWave - 1;
    tokens.any_behind = later != 0 || behind_wave.any;
    if (later != 0) {
      tokens.next_value = carries || nearest == lane_ + 1 ? next_value : 0;
    } else {
      tokens.next_value = !last && !carries && behind_wave.any ? 0 : behind_wave.value;
    }
  }
  __device__ __forceinline__ Behind in_front(const Front& of_wave, const Behind& behind) const {
    const bool any = of_wave.any != 0 || behind.any;
    if (args_.rule == kScanCarry) return {any, of_wave.any != 0 ? of_wave.value : behind.value};
    return {any, of_wave.first != 0 ? of_wave.value : any ? 0 : behind.value};
  }

  // Of each lane the link of its tokens and all behind them in the wave.
  __device__ __forceinline__ Link wave_scan(Link link) const {
#pragma unroll
    for (int lanes = 1; lanes < kWave; lanes *= 2) {
      const Link other = Sum::read(link, (lane_ + lanes) % kWave);
      if (lane_ + lanes < kWave) link = Sum::compose(link, other);
    }
    return link;
  }

  static __device__ __forceinline__ void put(const GridTensor& tensor, int64_t at, A value) {
    if (tensor.dtype == kMapBf16) {
      static_cast<bf16*>(tensor.data)[at] = Narrow<bf16>::of(value);
    } else if (tensor.dtype == kMapF16) {
      static_cast<f16*>(tensor.data)[at] = Narrow<f16>::of(value);
    } else {
      static_cast<A*>(tensor.data)[at] = value;
    }
  }
  __device__ __forceinline__ void store(const GridTensor& tensor, int64_t at, int64_t t, uint32_t striped,
                                        const A* own) const {
    if (tensor.data == nullptr) return;
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) {
      const int64_t own_t = t + i * kWave;
      const A value = (striped >> i & 1) != 0 ? own[place_of(lane_ + i * kWave)] : A(0);
      if (own_t < length_) put(tensor, at + own_t * tensor.column, value);
    }
  }

  const ScanArgs& args_;
  const Sum sum_;
  const int lane_, wave_;
  int turn_ = 0;
  UniformLinks uniform_{};
  int64_t row_ = 0, length_ = 0;
  int64_t at_in_ = 0, at_values_ = 0, at_mask_ = 0, at_out_ = 0, at_targets_ = 0;
};

}  // namespace rlk::simt
