// What the kernels ask of a SIMT machine. One header per compiler answers; beside the CUDA language itself (threadIdx,
// __syncthreads, atomics, fma and the like) it gives three macros and, in rlk::simt, the rest:
//   RLK_SIMT_KERNEL(threads, blocks)   begins a kernel of C linkage for at most so many threads in a block. blocks,
//   which
//                       may be absent, is how many NVIDIA's multiprocessor should hold; other compilers give the second
//                       bound another meaning and must not be told
//   RLK_SIMT_ARGUMENT(Args)   the type of its one parameter
//   RLK_SIMT_APART      begins a function of the device that is called and not inlined, where calls are cheap
//   bf16, f16           the 16-bit types
//   kWave               threads that exchange values directly
//   wait_for_earlier()  by every thread, before it reads or writes memory: from here on the kernels ahead of this one
//                       in its stream are done. The host may launch a kernel that says so before they are, and this
//                       one lets the next one begin as early
//   wave_xor(v, n)      v of lane (own lane ^ n);   wave_read(v, lane)   v of that lane;   wave_sync()
//   wave_ballot(flag)   the flags of all lanes, lane 0's lowest, in 64 bits
//   dynamic_shared()    the block's dynamic shared memory, aligned to 128 bytes
//   inverse_root(x)     1 / sqrt(x) of a double, within 2 ulp
//   exp2_fast(x)        2^x within 2 ulp, subnormal results as 0; exactly 1 at 0 and 0 at -inf
//   load_stream, store_stream   16 bytes that pass through once: they do not displace what others will read again
//   prefetch(address)   the bytes around it will be read soon: nearer to the reader is better
//   opaque(v)           the same 16 bytes, of which the compiler no longer knows what was made of them before
//   funnel_shift(low, high, bits)   the low 32 bits of high:low >> bits, bits < 32
//   narrow_pair(a, b, T())   two fp32 numbers as T in 32 bits, rounded to nearest even
//   max_pair(a, b, T()) the larger of each of two T in 32 bits; a NaN may lose
#pragma once

#include <cstdint>

#include "args.h"
#include "tiling.h"

#if defined(RLK_SIMT_PLATFORM)
#include RLK_SIMT_PLATFORM
#else
#include "platform_cuda.cuh"
#endif

namespace rlk::simt {

__device__ __forceinline__ double exp2_fast(double x) {
  return exp2(x);
}

// The first data error of the stream wins; the host reads the record when the stream has drained.
__device__ inline void report_data_error(const DataErrorSink& sink, int32_t kind, int64_t row, int64_t value) {
  if (sink.record == nullptr || atomicCAS(&sink.record->state, 0, 1) != 0) return;
  sink.record->kind = kind;
  sink.record->tag = sink.tag;
  sink.record->row = row;
  sink.record->value = value;
}

}  // namespace rlk::simt
