// What sm_90a has beyond mma.cuh and bulk_copies.cuh, as functions: rings, bulk tensor copies of heads, warpgroup
// products.
//
// Operands in shared memory are panels of rows of 128 bytes, swizzled as the copies write them: 16-byte chunk c of row
// r is where chunk c ^ r % 8 would be. Panels start on 1024 bytes. Products of 64 x N x 16 have an accumulator of N / 2
// registers a thread: element 4 j + 2 h + e is row 16 warp + lane / 4 + 8 h, column 8 j + lane % 4 * 2 + e.
#pragma once

#include "bulk_copies.cuh"

namespace rlk::cuda_kernels {

// A place in a ring of stages: a full and an empty barrier for each. The side that fills begins with parity 1, as if
// all stages had just been emptied.
template <int kStages>
struct RingPlace {
  uint32_t full, empty;
  uint32_t parity;
  int stage = 0;
  __device__ __forceinline__ RingPlace(uint32_t barriers, uint32_t first_parity)
      : full(barriers), empty(barriers + 8 * kStages), parity(first_parity) {}
  __device__ __forceinline__ uint32_t full_barrier() const { return full + 8 * stage; }
  __device__ __forceinline__ uint32_t empty_barrier() const { return empty + 8 * stage; }
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The hardware's numbered barriers: of kThreads threads, those that arrive and those that wait.
template <int kThreads>
__device__ __forceinline__ void named_wait(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void named_arrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

// --- Bulk tensor copies of one panel, by one thread.

__device__ __forceinline__ void copy_panel(uint32_t to, const cuda::TensorMap& from, int column, int head, int token,
                                           int sequence, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&from), "r"(column), "r"(head), "r"(token), "r"(sequence), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_panel_out(const cuda::TensorMap& to, int column, int head, int token, int sequence,
                                               uint32_t from) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&to),
               "r"(column), "r"(head), "r"(token), "r"(sequence), "r"(from)
               : "memory");
}
__device__ __forceinline__ void commit_panels_out() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until this thread's copies out have read shared memory.
__device__ __forceinline__ void wait_panels_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// What this thread has stored to shared memory is there for copies and products that a barrier orders behind it.
__device__ __forceinline__ void shared_stores_ready() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- Warpgroup products.

// An operand's descriptor. panel_bytes: from one panel to the next, where the panels' rows are the inner dimension.
__device__ __forceinline__ uint64_t panel_descriptor(uint32_t address, uint32_t panel_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32;
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(panel_bytes >> 4) << 16 | kEightRows |
         kSwizzle128;
}
// A descriptor of what lies `bytes` on.
__device__ __forceinline__ uint64_t operand_at(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}

// Before a product: what this warp has done with the registers that it will use.
__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler moves no access to these registers across this point.
template <int kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// multiply: d (+)= A B^T, both of whose rows are columns of the inner dimension, in shared memory.
// multiply_registers: d += A B, A a fragment in registers as mma.cuh has it, the rows of B the inner dimension.
// set_registers: d = A B.
template <class T, int kColumns>
struct WarpgroupProduct;

#define RLK_WGMMA_8(i)                                                                                        \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define RLK_WGMMA_32 RLK_WGMMA_8(0), RLK_WGMMA_8(8), RLK_WGMMA_8(16), RLK_WGMMA_8(24)
#define RLK_WGMMA_40 RLK_WGMMA_32, RLK_WGMMA_8(32)
#define RLK_WGMMA_48 RLK_WGMMA_40, RLK_WGMMA_8(40)
#define RLK_WGMMA_56 RLK_WGMMA_48, RLK_WGMMA_8(48)
#define RLK_WGMMA_64 RLK_WGMMA_56, RLK_WGMMA_8(56)
#define RLK_WGMMA_NAMES_32                                                                                         \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31"
#define RLK_WGMMA_NAMES_40 RLK_WGMMA_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define RLK_WGMMA_NAMES_48 RLK_WGMMA_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define RLK_WGMMA_NAMES_56 RLK_WGMMA_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define RLK_WGMMA_NAMES_64 RLK_WGMMA_NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"

// COUNT: of accumulators; A0 ..: the numbers of the operands behind them.
#define RLK_WGMMA(TYPE, NAME, COLUMNS, COUNT, A0, A1, A2, A3, A4)                                                     \
  template <>                                                                                                         \
  struct WarpgroupProduct<TYPE, COLUMNS> {                                                                            \
    static __device__ __forceinline__ void multiply(float (&d)[COUNT], uint64_t a, uint64_t b, int add) {             \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" A2                                                        \
                   ", 0;\n"                                                                                           \
                   "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME " {" RLK_WGMMA_NAMES_##COUNT \
                   "}, %" A0 ", %" A1 ", add, 1, 1, 0, 0;\n}\n"                                                       \
                   : RLK_WGMMA_##COUNT                                                                                \
                   : "l"(a), "l"(b), "r"(add));                                                                       \
    }                                                                                                                 \
    static __device__ __forceinline__ void multiply_registers(float (&d)[COUNT], const uint32_t* a, uint64_t b) {     \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME " {" RLK_WGMMA_NAMES_##COUNT \
                   "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" A4 ", 1, 1, 1, 1;\n"                                  \
                   : RLK_WGMMA_##COUNT                                                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                             \
    }                                                                                                                 \
    static __device__ __forceinline__ void set_registers(float (&d)[COUNT], const uint32_t* a, uint64_t b) {          \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME " {" RLK_WGMMA_NAMES_##COUNT \
                   "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" A4 ", 0, 1, 1, 1;\n"                                  \
                   : RLK_WGMMA_##COUNT                                                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                             \
    }                                                                                                                 \
  };
#define RLK_WGMMA_SIZES(TYPE, NAME)                            \
  RLK_WGMMA(TYPE, NAME, 64, 32, "32", "33", "34", "35", "36")  \
  RLK_WGMMA(TYPE, NAME, 80, 40, "40", "41", "42", "43", "44")  \
  RLK_WGMMA(TYPE, NAME, 96, 48, "48", "49", "50", "51", "52")  \
  RLK_WGMMA(TYPE, NAME, 112, 56, "56", "57", "58", "59", "60") \
  RLK_WGMMA(TYPE, NAME, 128, 64, "64", "65", "66", "67", "68")
RLK_WGMMA_SIZES(bf16, "bf16")
RLK_WGMMA_SIZES(f16, "f16")

}  // namespace rlk::cuda_kernels
