// What a scan sums (scan.cuh): links of tokens, how they compose, and what becomes of what comes in from behind.
#pragma once

#include "grid_tensor.cuh"
#include "row_parts.cuh"
#include "scan.h"

namespace rlk::simt {

// What a thread has: neighbours, the first one first. Results take the place of what they were made from.
template <class A>
struct Tokens {
  A x[kScanItems], value[kScanItems];
  uint32_t kept;      // a bit each: the token counts
  bool any_behind;    // a token behind these counts
  double next_value;  // behind these
};

__device__ __forceinline__ int lowest_lane(uint64_t flags) {
  int lane = 0;
#pragma unroll
  for (int bits = 32; bits > 0; bits /= 2) {
    if ((flags & ((uint64_t{1} << bits) - 1)) == 0) {
      lane += bits;
      flags >>= bits;
    }
  }
  return lane;
}

// Sums of the numbers from each one on, in fp64; of fp64 itself compensated.
template <class A>
struct Running {
  static constexpr bool kTokens = false;
  static constexpr int kBlocks = 4;  // waves with rows of their own: a few numbers each, many on their way
  using Bits = typename GridBits<sizeof(A)>::type;
  using Link = RowSum<sizeof(A) == 8>;
  using State = Link;

  __device__ __forceinline__ explicit Running(const ScanArgs&) {}
  __device__ __forceinline__ State start(int64_t) const { return {}; }
  __device__ __forceinline__ double start_value(int64_t) const { return 0; }
  static __device__ __forceinline__ State zero() { return {}; }
  static __device__ __forceinline__ Link nothing() { return {}; }
  static __device__ __forceinline__ Link compose(const Link& front, Link back) {
    back.add(front);
    return back;
  }
  static __device__ __forceinline__ State after(const Link& link, const State& state) { return compose(link, state); }
  static __device__ __forceinline__ Link read(const Link& link, int lane) {
    Link other;
    other.sum = wave_read(link.sum, lane);
    if constexpr (sizeof(A) == 8) other.lost = wave_read(link.lost, lane);
    return other;
  }
  static __device__ __forceinline__ ScanTotal total_of(const Link& link) { return {link.lost, link.sum, 0}; }
  static __device__ __forceinline__ Link link_of(const ScanTotal& total) {
    Link link;
    link.sum = total.sum;
    link.lost = total.factor;
    return link;
  }
  __device__ __forceinline__ Link link(const Tokens<A>& tokens) const {
    Link link;
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) link.add(tokens.x[i]);
    return link;
  }
  __device__ __forceinline__ void walk(Tokens<A>& tokens, State state) const {
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      state.add(tokens.x[i]);
      tokens.x[i] = static_cast<A>(state.value());
    }
  }
};

// a = x + discount v' - v + decay a, v' = v, over tokens that may be masked, in fp64. Targets are a + v.
template <class A>
struct Discounted {
  static constexpr bool kTokens = true;
  static constexpr int kBlocks = 2;
  using Bits = typename GridBits<sizeof(A)>::type;
  using State = double;
  // sum + factor 2^power a. Powers of the decay leave the range of fp64 where what they are multiplied with brings them
  // back. factor is blocked, which no product is, where nothing comes through.
  struct Link {
    double factor, sum;
    int32_t power;
  };
  static constexpr double kBlocked = -1;

  __device__ __forceinline__ explicit Discounted(const ScanArgs& args) : args_(args) {}
  __device__ __forceinline__ State start(int64_t b) const { return number(args_.start_sum, b); }
  __device__ __forceinline__ double start_value(int64_t b) const { return number(args_.start_value, b); }
  static __device__ __forceinline__ State zero() { return 0; }
  static __device__ __forceinline__ Link nothing() { return {1, 0, 0}; }
  static __device__ __forceinline__ State after(const Link& link, State state) {
    return link.factor == kBlocked ? link.sum : formula::Add(link.sum, times(link, state));
  }
  static __device__ __forceinline__ Link compose(const Link& front, const Link& back) {
    if (front.factor == kBlocked) return front;
    Link both = {kBlocked, after(front, back.sum), 0};
    if (back.factor == kBlocked) return both;
    both.factor = formula::Mul(front.factor, back.factor);
    both.power = front.power + back.power;
    if (both.factor < 0x1p-400 && both.factor > 0) {
      both.factor *= 0x1p400;
      both.power -= 400;
    } else if (both.factor > 0x1p400) {
      both.factor *= 0x1p-400;
      both.power += 400;
    }
    return both;
  }
  static __device__ __forceinline__ Link read(const Link& link, int lane) {
    return {wave_read(link.factor, lane), wave_read(link.sum, lane), wave_read(link.power, lane)};
  }
  static __device__ __forceinline__ ScanTotal total_of(const Link& link) { return {link.factor, link.sum, link.power}; }
  static __device__ __forceinline__ Link link_of(const ScanTotal& total) {
    return {total.factor, total.sum, static_cast<int32_t>(total.power)};
  }

  __device__ __forceinline__ Link link(const Tokens<A>& tokens) const {
    Link link = nothing();
    each(
        tokens,
        [&](int, bool, double delta, double) {
          if (link.factor != kBlocked) {
            link.factor = formula::Mul(link.factor, args_.decay_fraction);
            link.power += args_.decay_power;
          }
          link.sum = formula::MulAdd(args_.decay, link.sum, delta);
        },
        [&] {
          link = {kBlocked, 0, 0};
        });
    return link;
  }
  __device__ __forceinline__ void walk(Tokens<A>& tokens, State state) const {
    each(
        tokens,
        [&](int i, bool, double delta, double value) {
          state = formula::MulAdd(args_.decay, state, delta);
          tokens.x[i] = static_cast<A>(state);
          tokens.value[i] = static_cast<A>(formula::Add(state, value));
        },
        [&] { state = 0; });
  }

  // Where every token counts: what link() and walk() do, to the bit.
  __device__ __forceinline__ double deltas(const Tokens<A>& tokens, double (&delta)[kScanItems]) const {
    double next = tokens.next_value, sum = 0;
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      const double x = static_cast<double>(tokens.x[i]), value = static_cast<double>(tokens.value[i]);
      delta[i] = formula::Sub(formula::MulAdd(args_.discount, next, x), value);
      sum = formula::MulAdd(args_.decay, sum, delta[i]);
      next = value;
    }
    return sum;
  }
  __device__ __forceinline__ void walk_deltas(Tokens<A>& tokens, const double (&delta)[kScanItems], State state) const {
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      state = formula::MulAdd(args_.decay, state, delta[i]);
      tokens.x[i] = static_cast<A>(state);
      tokens.value[i] = static_cast<A>(formula::Add(state, static_cast<double>(tokens.value[i])));
    }
  }

private:
  // Calls step(i, counts, delta, value) for every token that does something, from the last one on, and reset().
  template <class Step, class Reset>
  __device__ __forceinline__ void each(const Tokens<A>& tokens, const Step& step, const Reset& reset) const {
    double next = tokens.next_value;
    bool any = tokens.any_behind;
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      const bool counts = (tokens.kept >> i & 1) != 0;
      any = any || counts;
      if (counts || (args_.rule == kScanZero && any)) {
        const double x = counts ? static_cast<double>(tokens.x[i]) : 0;
        const double value = counts ? static_cast<double>(tokens.value[i]) : 0;
        step(i, counts, formula::Sub(formula::MulAdd(args_.discount, next, x), value), value);
        next = value;
      } else if (args_.rule == kScanReset && any) {
        reset();
        next = 0;
      }
    }
  }
  static __device__ __forceinline__ double times(const Link& link, double x) {
    if (link.power == 0) return formula::Mul(link.factor, x);
    if (x == 0 || !is_finite(x)) return link.factor * x;
    const int power = ::ilogb(x);
    return ::ldexp(::ldexp(x, -power) * link.factor, power + link.power);
  }
  __device__ __forceinline__ double number(const GridTensor& tensor, int64_t b) const {
    return tensor.data == nullptr ? 0 : grid_number<A>(tensor, b * tensor.row, args_.dtype);
  }

  const ScanArgs& args_;
};

// Where all tokens count, and the decay is in [3/4, 3/2), links of whole steps differ in their sums alone. Their
// factors: of the scan's steps over lanes, of the lanes and of the waves behind this one, of a wave, of a chunk.
struct UniformLinks {
  double steps[kWave == 64 ? 6 : 5];
  double lanes_behind, waves_behind, wave, chunk;
  bool is_on;

  __device__ __forceinline__ void find(double of_thread, double of_lanes_behind, double of_wave, int own_wave,
                                       int waves) {
    for (double& step : steps) {
      step = of_thread;
      of_thread = formula::Mul(of_thread, of_thread);
    }
    lanes_behind = of_lanes_behind;
    wave = of_wave;
    chunk = 1;
    for (int w = waves - 1; w >= 0; --w) {
      if (w == own_wave) waves_behind = chunk;
      chunk = formula::Mul(wave, chunk);
    }
    is_on = chunk > 0x1p-400 && chunk < 0x1p400;
  }
};

}  // namespace rlk::simt
