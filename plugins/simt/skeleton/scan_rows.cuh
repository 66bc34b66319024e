// Running sums of rows that a wave has each, in packs of one dtype of 16 or 32 bits: what scan_work.cuh makes of them,
// to the bit, in a kernel that asks nothing of a row but its numbers. Three steps are on their way while one is worked
// on.
#pragma once

#include "scan_packs.cuh"
#include "scan_sums.cuh"

namespace rlk::simt {

// kBackwards: the first number of a row is the last in memory.
template <class T, bool kBackwards>
class RunningRow {
  static constexpr int kStep = kWave * kScanItems, kSteps = kScanThreads / kWave;  // of a chunk
  static constexpr int kAhead = 3, kPacks = kScanItems / Pack<T>::kSize;

public:
  __device__ __forceinline__ RunningRow(const ScanArgs& args, int64_t n)
      : lane_(static_cast<int>(threadIdx.x) % kWave),
        length_(args.length),
        step_((args.length + kStep - 1) / kStep - 1),
        in_(first_of(static_cast<const T*>(args.in.data) + n * args.in.row)),
        out_(first_of(static_cast<T*>(args.out.data) + n * args.out.row)) {}

  __device__ __forceinline__ void work() {
    double state = 0, link = 0;
    Pack<T> ahead[kAhead][kPacks];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) load(a, ahead[a]);
#pragma unroll 1
    for (; step_ >= 0; --step_) {
      float x[kScanItems];
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        Accumulator<T> own[Pack<T>::kSize];
        unpack(ahead[0][p], own);
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) x[in_turn(p * Pack<T>::kSize + i)] = own[i];
      }
#pragma unroll
      for (int a = 1; a < kAhead; ++a) {
#pragma unroll
        for (int p = 0; p < kPacks; ++p) ahead[a - 1][p] = ahead[a][p];
      }
      const bool there = is_there(0);
      T* const to = out_;
      load(kAhead, ahead[kAhead - 1]);
      if (!there) {
#pragma unroll
        for (float& one : x) one = 0;
      }
      work_on(x, there, to, state, link);
      in_ -= kStride;
      out_ -= kStride;
    }
  }

private:
  static constexpr int kStride = kBackwards ? -kStep : kStep;

  static __device__ __forceinline__ int in_turn(int i) {
    return kBackwards ? kScanItems - 1 - i : i;
  }
  // Of the lane's neighbours of the last step, in memory.
  template <class P>
  __device__ __forceinline__ P first_of(P row) const {
    const int64_t t = step_ * kStep + lane_ * kScanItems;
    return row + (kBackwards ? -t - (kScanItems - 1) : t);
  }
  // Whether the row has this lane's neighbours so many steps on.
  __device__ __forceinline__ bool is_there(int steps) const {
    const int64_t step = step_ - steps;
    return step >= 0 && step * kStep + lane_ * kScanItems < length_;
  }
  __device__ __forceinline__ void load(int steps, Pack<T> (&to)[kPacks]) const {
    if (!is_there(steps)) return;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) to[p].bits = reinterpret_cast<const uint4*>(in_ - steps * kStride)[p];
  }
  __device__ __forceinline__ void work_on(float (&x)[kScanItems], bool there, T* to, double& state,
                                          double& link) const {
    double number[kScanItems], all = 0;
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      number[i] = static_cast<double>(x[i]);
      all = formula::Add(all, number[i]);
    }
#pragma unroll
    for (int lanes = 1; lanes < kWave; lanes *= 2) {
      const double other = wave_read(all, (lane_ + lanes) % kWave);
      if (lane_ + lanes < kWave) all = formula::Add(other, all);
    }
    double incoming = wave_read(all, (lane_ + 1) % kWave);
    if (lane_ == kWave - 1) incoming = 0;
    const double of_wave = wave_read(all, 0);
    double sum = formula::Add(state, formula::Add(link, incoming));
    link = formula::Add(link, of_wave);
    if (step_ % kSteps == 0) {
      state = formula::Add(state, link);
      link = 0;
    }
    if (!there) return;
    float value[kScanItems];
#pragma unroll
    for (int i = kScanItems - 1; i >= 0; --i) {
      sum = formula::Add(sum, number[i]);
      value[in_turn(i)] = static_cast<float>(sum);
    }
    T element[kScanItems];
    narrow(value, element);
    store_words(to, element);
  }

  const int lane_;
  const int64_t length_;
  int64_t step_;
  const T* in_;  // of the step
  T* out_;
};

template <class T, bool kBackwards>
__device__ __forceinline__ void running_rows(const ScanArgs& args) {
  const int64_t own = (static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x) / kWave;
  const int64_t waves = static_cast<int64_t>(gridDim.x) * (kScanThreads / kWave);
  for (int64_t n = own; n < args.rows; n += waves) RunningRow<T, kBackwards>(args, n).work();
}
template <class T>
__device__ __forceinline__ void running_rows(const ScanArgs& args) {
  args.in.column == kScanBackwards ? running_rows<T, true>(args) : running_rows<T, false>(args);
}

}  // namespace rlk::simt
