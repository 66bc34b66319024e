// The sm_90a instructions that the attention kernel uses, as functions: products of a warpgroup (128 threads) with
// operands in shared memory, and barriers in shared memory.
//
// An operand in shared memory is described by {address, leading offset, stride offset} with 128-byte swizzle: rows of
// 128 bytes, eight rows an atom of 1024 bytes, the 16-byte piece c of row r stored at piece c ^ (r % 8).
//   K-major (Q and K, reduced along a row): stride offset = from one atom to the next eight rows; 16 more of the
//   reduced
//     dimension are 32 bytes further.
//   MN-major (V, reduced across rows): leading offset = from 64 columns to the next 64, stride offset = from eight rows
//   to
//     the next eight; 16 more of the reduced dimension are 16 rows further.
// Accumulators: warp w of the warpgroup holds rows 16 w .. 16 w + 15 in the layout of m16n8k16's C, d[n] for columns
// 8 n .. 8 n + 7; A in registers likewise has the layout of m16n8k16's A.
#pragma once

#include "mma.cuh"

#if defined(RLK_SIMT_PLATFORM)
#include RLK_WGMMA_PLATFORM
#else

namespace rlk::cuda_kernels {

__device__ __forceinline__ uint64_t describe(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}

// Before the first product that reads registers or accumulators which ordinary instructions wrote.
__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending of the newest groups are still under way.
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// After a wait: keeps the compiler from reading the accumulators earlier.
template <int kTiles>
__device__ __forceinline__ void pin(float (&d)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
  }
}
// Before a product: has the operands computed by now, and not between the products.
template <int kTiles>
__device__ __forceinline__ void pin(uint32_t (&a)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3])::"memory");
  }
}

#define RLK_WGMMA_N64_SHARED(type)                                                                      \
  asm volatile(                                                                                         \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                                      \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                       \
      " {"                                                                                              \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                  \
      "}, %32, %33, p, 1, 1, 0, 0;\n}\n"                                                                \
      : "+f"(d[kFirst + 0][0]), "+f"(d[kFirst + 0][1]), "+f"(d[kFirst + 0][2]), "+f"(d[kFirst + 0][3]), \
        "+f"(d[kFirst + 1][0]), "+f"(d[kFirst + 1][1]), "+f"(d[kFirst + 1][2]), "+f"(d[kFirst + 1][3]), \
        "+f"(d[kFirst + 2][0]), "+f"(d[kFirst + 2][1]), "+f"(d[kFirst + 2][2]), "+f"(d[kFirst + 2][3]), \
        "+f"(d[kFirst + 3][0]), "+f"(d[kFirst + 3][1]), "+f"(d[kFirst + 3][2]), "+f"(d[kFirst + 3][3]), \
        "+f"(d[kFirst + 4][0]), "+f"(d[kFirst + 4][1]), "+f"(d[kFirst + 4][2]), "+f"(d[kFirst + 4][3]), \
        "+f"(d[kFirst + 5][0]), "+f"(d[kFirst + 5][1]), "+f"(d[kFirst + 5][2]), "+f"(d[kFirst + 5][3]), \
        "+f"(d[kFirst + 6][0]), "+f"(d[kFirst + 6][1]), "+f"(d[kFirst + 6][2]), "+f"(d[kFirst + 6][3]), \
        "+f"(d[kFirst + 7][0]), "+f"(d[kFirst + 7][1]), "+f"(d[kFirst + 7][2]), "+f"(d[kFirst + 7][3])  \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))

#define RLK_WGMMA_N64_REGISTERS(type)                                                                   \
  asm volatile(                                                                                         \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                      \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                       \
      " {"                                                                                              \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                  \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"                                                  \
      : "+f"(d[kFirst + 0][0]), "+f"(d[kFirst + 0][1]), "+f"(d[kFirst + 0][2]), "+f"(d[kFirst + 0][3]), \
        "+f"(d[kFirst + 1][0]), "+f"(d[kFirst + 1][1]), "+f"(d[kFirst + 1][2]), "+f"(d[kFirst + 1][3]), \
        "+f"(d[kFirst + 2][0]), "+f"(d[kFirst + 2][1]), "+f"(d[kFirst + 2][2]), "+f"(d[kFirst + 2][3]), \
        "+f"(d[kFirst + 3][0]), "+f"(d[kFirst + 3][1]), "+f"(d[kFirst + 3][2]), "+f"(d[kFirst + 3][3]), \
        "+f"(d[kFirst + 4][0]), "+f"(d[kFirst + 4][1]), "+f"(d[kFirst + 4][2]), "+f"(d[kFirst + 4][3]), \
        "+f"(d[kFirst + 5][0]), "+f"(d[kFirst + 5][1]), "+f"(d[kFirst + 5][2]), "+f"(d[kFirst + 5][3]), \
        "+f"(d[kFirst + 6][0]), "+f"(d[kFirst + 6][1]), "+f"(d[kFirst + 6][2]), "+f"(d[kFirst + 6][3]), \
        "+f"(d[kFirst + 7][0]), "+f"(d[kFirst + 7][1]), "+f"(d[kFirst + 7][2]), "+f"(d[kFirst + 7][3])  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)))

#define RLK_WGMMA_N128_SHARED(type)                                                                         \
  asm volatile(                                                                                             \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                          \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                          \
      " {"                                                                                                  \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                              \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                    \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                      \
      "}, %64, %65, p, 1, 1, 0, 0;\n}\n"                                                                    \
      : "+f"(d[kFirst + 0][0]), "+f"(d[kFirst + 0][1]), "+f"(d[kFirst + 0][2]), "+f"(d[kFirst + 0][3]),     \
        "+f"(d[kFirst + 1][0]), "+f"(d[kFirst + 1][1]), "+f"(d[kFirst + 1][2]), "+f"(d[kFirst + 1][3]),     \
        "+f"(d[kFirst + 2][0]), "+f"(d[kFirst + 2][1]), "+f"(d[kFirst + 2][2]), "+f"(d[kFirst + 2][3]),     \
        "+f"(d[kFirst + 3][0]), "+f"(d[kFirst + 3][1]), "+f"(d[kFirst + 3][2]), "+f"(d[kFirst + 3][3]),     \
        "+f"(d[kFirst + 4][0]), "+f"(d[kFirst + 4][1]), "+f"(d[kFirst + 4][2]), "+f"(d[kFirst + 4][3]),     \
        "+f"(d[kFirst + 5][0]), "+f"(d[kFirst + 5][1]), "+f"(d[kFirst + 5][2]), "+f"(d[kFirst + 5][3]),     \
        "+f"(d[kFirst + 6][0]), "+f"(d[kFirst + 6][1]), "+f"(d[kFirst + 6][2]), "+f"(d[kFirst + 6][3]),     \
        "+f"(d[kFirst + 7][0]), "+f"(d[kFirst + 7][1]), "+f"(d[kFirst + 7][2]), "+f"(d[kFirst + 7][3]),     \
        "+f"(d[kFirst + 8][0]), "+f"(d[kFirst + 8][1]), "+f"(d[kFirst + 8][2]), "+f"(d[kFirst + 8][3]),     \
        "+f"(d[kFirst + 9][0]), "+f"(d[kFirst + 9][1]), "+f"(d[kFirst + 9][2]), "+f"(d[kFirst + 9][3]),     \
        "+f"(d[kFirst + 10][0]), "+f"(d[kFirst + 10][1]), "+f"(d[kFirst + 10][2]), "+f"(d[kFirst + 10][3]), \
        "+f"(d[kFirst + 11][0]), "+f"(d[kFirst + 11][1]), "+f"(d[kFirst + 11][2]), "+f"(d[kFirst + 11][3]), \
        "+f"(d[kFirst + 12][0]), "+f"(d[kFirst + 12][1]), "+f"(d[kFirst + 12][2]), "+f"(d[kFirst + 12][3]), \
        "+f"(d[kFirst + 13][0]), "+f"(d[kFirst + 13][1]), "+f"(d[kFirst + 13][2]), "+f"(d[kFirst + 13][3]), \
        "+f"(d[kFirst + 14][0]), "+f"(d[kFirst + 14][1]), "+f"(d[kFirst + 14][2]), "+f"(d[kFirst + 14][3]), \
        "+f"(d[kFirst + 15][0]), "+f"(d[kFirst + 15][1]), "+f"(d[kFirst + 15][2]), "+f"(d[kFirst + 15][3])  \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)))

#define RLK_WGMMA_N128_REGISTERS(type)                                                                      \
  asm volatile(                                                                                             \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                                          \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                          \
      " {"                                                                                                  \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                              \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                    \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                      \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n"                                                      \
      : "+f"(d[kFirst + 0][0]), "+f"(d[kFirst + 0][1]), "+f"(d[kFirst + 0][2]), "+f"(d[kFirst + 0][3]),     \
        "+f"(d[kFirst + 1][0]), "+f"(d[kFirst + 1][1]), "+f"(d[kFirst + 1][2]), "+f"(d[kFirst + 1][3]),     \
        "+f"(d[kFirst + 2][0]), "+f"(d[kFirst + 2][1]), "+f"(d[kFirst + 2][2]), "+f"(d[kFirst + 2][3]),     \
        "+f"(d[kFirst + 3][0]), "+f"(d[kFirst + 3][1]), "+f"(d[kFirst + 3][2]), "+f"(d[kFirst + 3][3]),     \
        "+f"(d[kFirst + 4][0]), "+f"(d[kFirst + 4][1]), "+f"(d[kFirst + 4][2]), "+f"(d[kFirst + 4][3]),     \
        "+f"(d[kFirst + 5][0]), "+f"(d[kFirst + 5][1]), "+f"(d[kFirst + 5][2]), "+f"(d[kFirst + 5][3]),     \
        "+f"(d[kFirst + 6][0]), "+f"(d[kFirst + 6][1]), "+f"(d[kFirst + 6][2]), "+f"(d[kFirst + 6][3]),     \
        "+f"(d[kFirst + 7][0]), "+f"(d[kFirst + 7][1]), "+f"(d[kFirst + 7][2]), "+f"(d[kFirst + 7][3]),     \
        "+f"(d[kFirst + 8][0]), "+f"(d[kFirst + 8][1]), "+f"(d[kFirst + 8][2]), "+f"(d[kFirst + 8][3]),     \
        "+f"(d[kFirst + 9][0]), "+f"(d[kFirst + 9][1]), "+f"(d[kFirst + 9][2]), "+f"(d[kFirst + 9][3]),     \
        "+f"(d[kFirst + 10][0]), "+f"(d[kFirst + 10][1]), "+f"(d[kFirst + 10][2]), "+f"(d[kFirst + 10][3]), \
        "+f"(d[kFirst + 11][0]), "+f"(d[kFirst + 11][1]), "+f"(d[kFirst + 11][2]), "+f"(d[kFirst + 11][3]), \
        "+f"(d[kFirst + 12][0]), "+f"(d[kFirst + 12][1]), "+f"(d[kFirst + 12][2]), "+f"(d[kFirst + 12][3]), \
        "+f"(d[kFirst + 13][0]), "+f"(d[kFirst + 13][1]), "+f"(d[kFirst + 13][2]), "+f"(d[kFirst + 13][3]), \
        "+f"(d[kFirst + 14][0]), "+f"(d[kFirst + 14][1]), "+f"(d[kFirst + 14][2]), "+f"(d[kFirst + 14][3]), \
        "+f"(d[kFirst + 15][0]), "+f"(d[kFirst + 15][1]), "+f"(d[kFirst + 15][2]), "+f"(d[kFirst + 15][3])  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)))

// d (+)= A B^T, A [64, 16] and B [8 kTiles, 16] both K-major in shared memory.
template <class T, int kTiles>
__device__ __forceinline__ void multiply_shared(float (&d)[kTiles][4], uint64_t a, uint64_t b, bool accumulate) {
  static_assert(kTiles == 8 || kTiles == 16);
  constexpr int kFirst = 0;
  if constexpr (kTiles == 8 && simt::kIsBf16<T>) {
    RLK_WGMMA_N64_SHARED("bf16");
  } else if constexpr (kTiles == 8) {
    RLK_WGMMA_N64_SHARED("f16");
  } else if constexpr (simt::kIsBf16<T>) {
    RLK_WGMMA_N128_SHARED("bf16");
  } else {
    RLK_WGMMA_N128_SHARED("f16");
  }
}

// d[kFirst .. kFirst + kTiles) (+)= A B, A [64, 16] in registers, B [16, 8 kTiles] MN-major in shared memory.
template <class T, int kTiles, int kFirst, int kAll>
__device__ __forceinline__ void multiply_registers(float (&d)[kAll][4], const uint32_t (&a)[4], uint64_t b,
                                                   bool accumulate) {
  static_assert((kTiles == 8 || kTiles == 16) && kFirst + kTiles <= kAll);
  if constexpr (kTiles == 8 && simt::kIsBf16<T>) {
    RLK_WGMMA_N64_REGISTERS("bf16");
  } else if constexpr (kTiles == 8) {
    RLK_WGMMA_N64_REGISTERS("f16");
  } else if constexpr (simt::kIsBf16<T>) {
    RLK_WGMMA_N128_REGISTERS("bf16");
  } else {
    RLK_WGMMA_N128_REGISTERS("f16");
  }
}

#undef RLK_WGMMA_N64_SHARED
#undef RLK_WGMMA_N64_REGISTERS
#undef RLK_WGMMA_N128_SHARED
#undef RLK_WGMMA_N128_REGISTERS

// Barriers of 8 bytes in shared memory. A phase ends when `count` arrivals have come.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of this parity has ended; the one before the first has parity 1 and has ended.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}\n" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
}
// Between ordinary writes to shared memory (cp.async too) and their reading by wgmma.
__device__ __forceinline__ void publish_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// A barrier of one warpgroup.
__device__ __forceinline__ void warpgroup_sync(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace rlk::cuda_kernels

#endif
