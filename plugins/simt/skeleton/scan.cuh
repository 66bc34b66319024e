// scan: running sums along a row, or along sequences of tokens, from the last number to the first.
//
//   RLK_SIMT_SCAN(Cumsum, Running, sums_from_first(call.y, call.x))
//   RLK_SIMT_SCAN(Gae, Discounted, ...)
//
// The operator's name in the declarations' views, what is summed (scan_sums.cuh), and how the host reads a call
// (host/scan.hpp). A sum from the first number to the last is the same on a row that is read backwards.
//
// What some numbers do to a sum that comes in from behind is a link; links compose. A thread has kScanItems neighbours,
// a wave scans the links of its threads, and a chunk has as many waves as a block of kScanThreads threads. The links of
// a chunk are composed by waves from its end on, and what leaves a chunk follows from what came in and the chunk's
// link: whether a wave, a block, or a block per chunk works on a row, the bits are the same. They depend on the row's
// own numbers alone, and not on masked ones behind the last that counts.
//
// A wave or a block that has a whole row reads it once. Where there are few rows and long ones, a block has a chunk:
// one launch says what each chunk does, the next one composes that and reads the row again; with a mask, whose rule
// asks what is behind a chunk, one says before where tokens that count begin in each.
//
// Where a thread's neighbours are whole packs of memory, it reads and writes them itself. Elsewhere numbers are read
// and written one by one, neighbours by neighbouring lanes, so strides and alignment do not matter; they change places
// in shared memory. The next step's are on their way while one is worked.
#pragma once

#if !defined(RLK_SIMT_SCAN)  // the host reads operators too, with words of its own (host/scan_words.hpp)

#include "../element.cuh"

#if !defined(RLK_FORMULA)
#define RLK_FORMULA __device__ __forceinline__
#endif
#include <rlk/formula/vocabulary.hpp>

#include "each.h"
#include "plain_scan.cuh"
#include "scan_rows.cuh"
#include "scan_work.cuh"
#include "seqlens.cuh"

namespace rlk::simt {

__device__ __forceinline__ Seqlens scan_seqlens(const ScanArgs& args) {
  return {args.cu_seqlens, args.cu_stride, args.rows, args.length, args.cu_are_i64, 0, args.errors};
}
// Whether a packed call's sequences are what they must be; every thread of a block asks.
__device__ __forceinline__ bool scan_is_sound(const ScanArgs& args) {
  if (args.cu_seqlens == nullptr) return true;
  if (args.bad != nullptr) return *args.bad < 0;
  return check_seqlens<kScanThreads>(scan_seqlens(args), blockIdx.x == 0) < 0;
}
__device__ __forceinline__ int64_t scan_slots(const ScanArgs& args) {
  return args.cu_seqlens == nullptr ? args.rows * args.chunks : args.chunks;
}

template <class Sum, class A>
__device__ __forceinline__ void scan(const ScanArgs& args) {
  Scan<Sum, A> scan(args);
  if (Sum::kTokens && !scan_is_sound(args)) {
    if (args.form != kScanTotals) scan.all_nan();
    return;
  }
  const int groups = kScanThreads / kWave / args.waves;
  const int64_t own = static_cast<int64_t>(blockIdx.x) * groups + threadIdx.x / (args.waves * kWave);
  const int64_t count = args.form == kScanRows ? args.rows : scan_slots(args);
  for (int64_t n = own; n < count; n += static_cast<int64_t>(gridDim.x) * groups) scan.work_on(n);
}
__device__ __forceinline__ void scan_kept(const ScanArgs& args) {
  if (!scan_is_sound(args)) return;
  Scan<Discounted<float>, float> scan(args);
  for (int64_t slot = blockIdx.x; slot < scan_slots(args); slot += gridDim.x) scan.kept(slot);
}
__device__ __forceinline__ void scan_check(const ScanArgs& args) {
  const int64_t bad = check_seqlens<kScanThreads>(scan_seqlens(args), true);
  if (threadIdx.x == 0) *args.bad = bad;
}

}  // namespace rlk::simt

#define RLK_SIMT_SCAN_KERNEL(OP, suffix, blocks, ...)                                                \
  RLK_SIMT_KERNEL(rlk::simt::kScanThreads, blocks)                                                   \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _scan_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::ScanArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                   \
    rlk::simt::__VA_ARGS__(args);                                                                    \
  }
#define RLK_SIMT_SCAN_KERNELS(OP, Sum)                                                              \
  RLK_SIMT_SCAN_KERNEL(OP, f32, rlk::simt::Sum<float>::kBlocks, scan<rlk::simt::Sum<float>, float>) \
  RLK_SIMT_SCAN_KERNEL(OP, f64, 2, scan<rlk::simt::Sum<double>, double>)
// Of rows. Where waves have rows of packs, what scan() asks of a row would take longer than its sums.
#define RLK_SIMT_SCAN(OP, Sum, ...)                                      \
  RLK_SIMT_SCAN_KERNELS(OP, Sum)                                         \
  RLK_SIMT_SCAN_KERNEL(OP, packs_f32, 3, running_rows<float>)            \
  RLK_SIMT_SCAN_KERNEL(OP, packs_bf16, 4, running_rows<rlk::simt::bf16>) \
  RLK_SIMT_SCAN_KERNEL(OP, packs_f16, 4, running_rows<rlk::simt::f16>)
// Of the sequences of an operator on tokens: one kernel each for all its dtypes.
#define RLK_SIMT_SCAN_TOKENS(OP, Sum, ...)       \
  RLK_SIMT_SCAN_KERNELS(OP, Sum)                 \
  RLK_SIMT_SCAN_KERNEL(OP, plain, 4, plain_scan) \
  RLK_SIMT_SCAN_KERNEL(OP, kept, 2, scan_kept)   \
  RLK_SIMT_SCAN_KERNEL(OP, check, 2, scan_check)

#endif
