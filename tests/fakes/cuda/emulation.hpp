// How a kernel of plugins/simt runs on the host: the words of the CUDA language as macros and functions, and a platform
// header for simt.cuh. The threads of a block are fibers of one host thread; barriers and exchanges within a wave
// switch between them, and a barrier that not every thread reaches ends the program with a message. What a kernel
// computes here it computes on a device too, up to the last bits of exp2, tanh and the like.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

namespace rlk::emulation {

// Threads that exchange values directly, as on NVIDIA's devices unless the build says otherwise.
#if !defined(RLK_EMULATED_WAVE)
#define RLK_EMULATED_WAVE 32
#endif
constexpr int kWave = RLK_EMULATED_WAVE;
// Every lane of the wave gives 64 bytes at most; they are there until the exchange after the next one.
constexpr int kSlotBytes = 64;

struct Dim {
  unsigned x = 0, y = 0, z = 0;
};
// What the threads of a block share.
struct Place {
  Dim block, block_size, grid;
  unsigned char* dynamic_shared = nullptr;
  mutable uint64_t waits = 0;  // of threads for the kernels ahead of theirs
};
// What a thread knows of itself.
struct Seat {
  Dim thread;
  int lane = 0;
  unsigned turn = 0;  // which half of the slots is its next exchange's
  const Place* place = nullptr;
  unsigned char* slots = nullptr;  // [2][kWave][kSlotBytes], of its wave
};

// A thread's stack is aligned, and above it its seat lies: so the seat follows from the address of any frame, without
// a thread-local variable, which takes a call in a library. Of stacks that begin as far into a page as each other a
// cache keeps few: each begins at other lines.
constexpr uintptr_t kStackBytes = 256 * 1024, kSeatBytes = 128, kApart = 13 * 64, kSpread = 64 * 1024;
inline uintptr_t seat_at(uintptr_t number_of_stack) {
  return (number_of_stack + 1) * kStackBytes - kSeatBytes - number_of_stack * kApart % kSpread;
}
inline Seat& seat() {
  const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return *reinterpret_cast<Seat*>(seat_at(frame / kStackBytes));
}

void wait_for_block();
bool block_and(bool vote);  // over all threads
void wait_for_wave();
// The pointer to what each lane gave, [kWave][kSlotBytes].
inline const unsigned char* exchange(const void* value, size_t bytes) {
  Seat& own = seat();
  unsigned char* const all = own.slots + own.turn * (kWave * kSlotBytes);
  own.turn ^= 1;
  if (bytes > 0) std::memcpy(all + own.lane * kSlotBytes, value, bytes);
  wait_for_wave();
  return all;
}
inline int lane() {
  return seat().lane;
}
inline unsigned char* dynamic_shared() {
  return seat().place->dynamic_shared;
}

// Copies that happen when they are waited for, and not before: what reads too early reads old bytes.
void copy_later(void* to, const void* from, size_t bytes);
void commit_copies();
void wait_copies(int pending);

// Copies that a barrier in shared memory counts: they happen when a thread waits for it, and not before. is_over is
// asked between the turns of threads, not by this one.
void copy_for(const void* barrier, std::function<void()> copy);
void wait_for_copies(const void* barrier, const std::function<bool()>& is_over);

// Runs body once per thread of the grid.
void run_grid(const Dim& grid, const Dim& size, size_t shared_bytes, const std::function<void()>& body);

}  // namespace rlk::emulation

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define RLK_SIMT_KERNEL(...) extern "C" __attribute__((visibility("default"))) void  // found by name
#define RLK_SIMT_ARGUMENT(Args) const Args
#define threadIdx (::rlk::emulation::seat().thread)
#define blockIdx (::rlk::emulation::seat().place->block)
#define blockDim (::rlk::emulation::seat().place->block_size)
#define gridDim (::rlk::emulation::seat().place->grid)

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

inline void __syncthreads() {
  rlk::emulation::wait_for_block();
}
inline int __syncthreads_and(bool mine) {
  return rlk::emulation::block_and(mine) ? 1 : 0;
}

template <class T>
T atomicCAS(T* at, T expected, T desired) {
  const T old = *at;
  if (old == expected) *at = desired;
  return old;
}
template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = std::max(old, value);
  return old;
}
template <class T>
T atomicMin(T* at, T value) {
  const T old = *at;
  *at = std::min(old, value);
  return old;
}
template <class T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}

// No contraction: this file's users are compiled with -ffp-contract=off.
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __int_as_float(int bits) {
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}
inline int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  return __int_as_float(static_cast<int>(bits));
}
inline float __double2float_rz(double x) {
  const float near = static_cast<float>(x);
  return std::fabs(static_cast<double>(near)) > std::fabs(x) ? std::nextafterf(near, 0.0f) : near;
}

namespace rlk::simt {

using std::exp2;
using std::expm1;
using std::fma;
using std::fmax;
using std::isinf;
using std::isnan;
using std::log;
using std::log2;
using std::max;
using std::min;
using std::tanh;

#if !defined(RLK_EMULATED_PLAIN)
struct bf16 {
  uint16_t bits;
};
struct f16 {
  _Float16 value;
};
inline float __bfloat162float(bf16 x) {
  return __int_as_float(static_cast<int>(static_cast<uint32_t>(x.bits) << 16));
}
inline bf16 __float2bfloat16(float x) {
  uint32_t bits = static_cast<uint32_t>(__float_as_int(x));
  if (std::isnan(x)) return {0x7fff};
  bits += 0x7fff + (bits >> 16 & 1);
  return {static_cast<uint16_t>(bits >> 16)};
}
inline float __half2float(f16 x) {
  return static_cast<float>(x.value);
}
inline f16 __float2half_rn(float x) {
  return {static_cast<_Float16>(x)};
}
#endif

constexpr int kWave = emulation::kWave;

template <class T>
T wave_read(T value, int lane) {
  T out;
  std::memcpy(&out, emulation::exchange(&value, sizeof(T)) + lane * emulation::kSlotBytes, sizeof(T));
  return out;
}
template <class T>
T wave_xor(T value, int lanes) {
  return wave_read(value, emulation::lane() ^ lanes);
}
inline uint64_t wave_ballot(bool flag) {
  const unsigned char mine = flag ? 1 : 0;
  const unsigned char* all = emulation::exchange(&mine, 1);
  uint64_t flags = 0;
  for (int lane = 0; lane < kWave; ++lane) flags |= static_cast<uint64_t>(all[lane * emulation::kSlotBytes]) << lane;
  return flags;
}
inline void wave_sync() {
  emulation::exchange(nullptr, 0);
}
inline unsigned char* dynamic_shared() {
  return emulation::dynamic_shared();
}
#if !defined(RLK_EMULATED_PLAIN)
#define RLK_SIMT_APART inline
inline void wait_for_earlier() {
  ++emulation::seat().place->waits;
}
inline double inverse_root(double x) {
  return 1 / std::sqrt(x);
}
inline uint4 opaque(uint4 v) {
  return v;
}
inline float exp2_fast(float x) {
  const float y = std::exp2(x);
  return std::fabs(y) < 0x1p-126f ? 0.0f : y;
}
inline void prefetch(const void*) {}
inline uint4 load_stream(const void* address) {
  uint4 v;
  std::memcpy(&v, __builtin_assume_aligned(address, 16), 16);
  return v;
}
inline void store_stream(void* address, uint4 v) {
  std::memcpy(__builtin_assume_aligned(address, 16), &v, 16);
}

inline uint32_t funnel_shift(uint32_t low, uint32_t high, unsigned bits) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> bits);
}

inline uint32_t narrow_pair(float a, float b, bf16) {
  const bf16 pair[] = {__float2bfloat16(a), __float2bfloat16(b)};
  uint32_t bits;
  std::memcpy(&bits, pair, 4);
  return bits;
}
inline uint32_t narrow_pair(float a, float b, f16) {
  const f16 pair[] = {__float2half_rn(a), __float2half_rn(b)};
  uint32_t bits;
  std::memcpy(&bits, pair, 4);
  return bits;
}
template <class T, class Widen>
uint32_t max_pair_of(uint32_t a, uint32_t b, Widen widen) {
  T x[2], y[2];
  std::memcpy(x, &a, 4);
  std::memcpy(y, &b, 4);
  for (int i = 0; i < 2; ++i) {
    if (std::isnan(widen(x[i])) || widen(y[i]) > widen(x[i])) x[i] = y[i];
  }
  std::memcpy(&a, x, 4);
  return a;
}
inline uint32_t max_pair(uint32_t a, uint32_t b, bf16) {
  return max_pair_of<bf16>(a, b, __bfloat162float);
}
inline uint32_t max_pair(uint32_t a, uint32_t b, f16) {
  return max_pair_of<f16>(a, b, __half2float);
}
#endif

}  // namespace rlk::simt

// RLK_EMULATED_PLAIN: conversions and memory are those of the plain platform that HIP's and MACA's share.
#if defined(RLK_EMULATED_PLAIN)
#undef RLK_SIMT_KERNEL
#undef RLK_SIMT_ARGUMENT
#define __launch_bounds__(threads)
#include "plugins/simt/platform_plain.cuh"
#undef RLK_SIMT_KERNEL
#define RLK_SIMT_KERNEL(...) extern "C" __attribute__((visibility("default"))) void
#endif
