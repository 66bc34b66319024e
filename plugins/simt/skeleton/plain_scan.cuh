// The commonest scan of tokens: dense rows of fp32 in packs, each of several chunks, of which every token counts and
// whose decay keeps the factors of a chunk within fp64. The host has found that out: what any other call asks takes
// several times as long as the sums. A block has a row. The bits are those of scan_work.cuh, which works on whole steps
// so, too; behind a row are tokens that do nothing, so what comes in from there must be 0 (args.start_sum is absent).
#pragma once

#include "scan_work.cuh"

namespace rlk::simt {

class PlainScan {
  static constexpr int kWaves = kScanThreads / kWave;
  using Sum = Discounted<float>;
  struct Raw {
    uint4 x[2], value[2];
  };
  static_assert(kScanItems == 8, "two packs of a thread");

public:
  __device__ __forceinline__ explicit PlainScan(const ScanArgs& args)
      : args_(args),
        sum_(args),
        lane_(static_cast<int>(threadIdx.x) % kWave),
        wave_(static_cast<int>(threadIdx.x) / kWave) {
    double of_thread = 1;
#pragma unroll
    for (int i = 0; i < kScanItems; ++i) of_thread = formula::Mul(of_thread, args_.decay_fraction);
    double all = of_thread;
#pragma unroll
    for (int lanes = 1; lanes < kWave; lanes *= 2) {
      const double other = wave_read(all, (lane_ + lanes) % kWave);
      if (lane_ + lanes < kWave) all = formula::Mul(all, other);
    }
    const double later = wave_read(all, (lane_ + 1) % kWave);
    uniform_.find(of_thread, lane_ == kWave - 1 ? 1 : later, wave_read(all, 0), wave_, kWaves);
  }

  __device__ __forceinline__ void work_on(int64_t row) {
    const int64_t begin_in = row * args_.in.row, begin_values = row * args_.values.row;
    const int own = static_cast<int>(threadIdx.x) * kScanItems;
    const auto start_value = static_cast<float>(sum_.start_value(row));
    int64_t at = (args_.length - 1) / kScanChunk * kScanChunk + own;
    Raw raw = read(begin_in, begin_values, at);
    // A token's value is what the one before has behind it: the last lane's neighbour has another wave.
    float behind = value_behind(begin_values, at, start_value);
    double state = 0;
    int turn = 0;
#pragma unroll 1
    for (; at >= 0; at -= kScanChunk) {
      Tokens<float> tokens;
      const bool is_there = at < args_.length;
      take(raw, is_there, start_value, tokens);
      tokens.next_value = wave_read(static_cast<double>(tokens.value[0]), (lane_ + 1) % kWave);
      if (lane_ == kWave - 1) tokens.next_value = static_cast<double>(behind);
      if (at >= kScanChunk) {
        raw = read(begin_in, begin_values, at - kScanChunk);
        behind = value_behind(begin_values, at - kScanChunk, start_value);
      }
      double sum = is_there ? sum_of(tokens) : 0;
#pragma unroll
      for (int k = 0, lanes = 1; lanes < kWave; ++k, lanes *= 2) {
        const double other = wave_read(sum, (lane_ + lanes) % kWave);
        if (lane_ + lanes < kWave) sum = formula::Add(sum, formula::Mul(uniform_.steps[k], other));
      }
      double incoming = wave_read(sum, (lane_ + 1) % kWave);
      if (lane_ == kWave - 1) incoming = 0;
      __shared__ double sums[2][kWaves];
      if (lane_ == 0) sums[turn][wave_] = sum;
      __syncthreads();
      double all = 0, behind_wave = 0;
#pragma unroll
      for (int w = kWaves - 1; w >= 0; --w) {
        if (w == wave_) behind_wave = all;
        all = formula::Add(sums[turn][w], formula::Mul(uniform_.wave, all));
      }
      turn ^= 1;
      incoming = formula::Add(incoming, formula::Mul(uniform_.lanes_behind, behind_wave));
      const double factor = formula::Mul(uniform_.lanes_behind, uniform_.waves_behind);
      walk(tokens, formula::Add(incoming, formula::Mul(factor, state)));
      if (is_there) write(row, at, tokens);
      state = formula::Add(all, formula::Mul(uniform_.chunk, state));
    }
    __syncthreads();  // what other waves have written of this row has been read
  }

private:
  __device__ __forceinline__ Raw read(int64_t begin_in, int64_t begin_values, int64_t at) const {
    Raw raw = {};
    if (at >= args_.length) return raw;
    const float* const in = static_cast<const float*>(args_.in.data) + begin_in + at;
#pragma unroll
    for (int p = 0; p < 2; ++p) raw.x[p] = load_stream(in + 4 * p);
    if (args_.values.data == nullptr) return raw;
    const float* const values = static_cast<const float*>(args_.values.data) + begin_values + at;
#pragma unroll
    for (int p = 0; p < 2; ++p) raw.value[p] = load_stream(values + 4 * p);
    return raw;
  }
  __device__ __forceinline__ float value_behind(int64_t begin_values, int64_t at, float start_value) const {
    if (lane_ != kWave - 1 || at + kScanItems >= args_.length) return start_value;
    return args_.values.data == nullptr ? 0
                                        : static_cast<const float*>(args_.values.data)[begin_values + at + kScanItems];
  }
  __device__ __forceinline__ void take(const Raw& raw, bool is_there, float start_value, Tokens<float>& tokens) const {
    __builtin_memcpy(tokens.x, raw.x, sizeof(tokens.x));
    __builtin_memcpy(tokens.value, raw.value, sizeof(tokens.value));
    if (!is_there) tokens.value[0] = start_value;
  }
  // What the token adds: the callers compute it twice, which saves the registers to keep it.
  __device__ __forceinline__ double delta(const Tokens<float>& tokens, int i, double next) const {
    const double x = static_cast<double>(tokens.x[i]), value = static_cast<double>(tokens.value[i]);
    return formula::Sub(formula::MulAdd(args_.discount, next, x), value);
  }
  __device__ __forceinline__ double sum_of(const Tokens<float>& tokens) const {
    double next = tokens.next_value, sum = 0;
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      sum = formula::MulAdd(args_.decay, sum, delta(tokens, i, next));
      next = static_cast<double>(tokens.value[i]);
    }
    return sum;
  }
  __device__ __forceinline__ void walk(Tokens<float>& tokens, double state) const {
    double next = tokens.next_value;
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      const double value = static_cast<double>(tokens.value[i]);
      state = formula::MulAdd(args_.decay, state, delta(tokens, i, next));
      next = value;
      tokens.x[i] = static_cast<float>(state);
      if (args_.targets.data != nullptr) tokens.value[i] = static_cast<float>(formula::Add(state, value));
    }
  }
  __device__ __forceinline__ void write(int64_t row, int64_t at, const Tokens<float>& tokens) const {
    const auto put = [&](const GridTensor& tensor, const float(&number)[kScanItems]) {
      uint4 pack[2];
      __builtin_memcpy(pack, number, sizeof(pack));
      float* const to = static_cast<float*>(tensor.data) + row * tensor.row + at;
      store_stream(to, pack[0]);
      store_stream(to + 4, pack[1]);
    };
    if (args_.out.data != nullptr) put(args_.out, tokens.x);
    if (args_.targets.data != nullptr) put(args_.targets, tokens.value);
  }

  const ScanArgs& args_;
  const Sum sum_;
  const int lane_, wave_;
  UniformLinks uniform_{};
};

__device__ __forceinline__ void plain_scan(const ScanArgs& args) {
  PlainScan scan(args);
  for (int64_t row = blockIdx.x; row < args.rows; row += gridDim.x) scan.work_on(row);
}

}  // namespace rlk::simt
