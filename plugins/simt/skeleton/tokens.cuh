// tokens: numbers of the tokens of sequences, dense [B, T] or packed [S] by cu_seqlens, are mapped and summed, by
// sequence and over the batch, in passes.
//
//   struct Squares {                       // in namespace rlk::formula, for host and device
//     using Rules = ..., Own = ..., Batch = ...;   // of the call, of a sequence, of the batch; plain structs
//     static constexpr int kIns = 2, kOuts = 1;    // the first arguments: numbers of tokens that are read and written
//     static constexpr int kSums = 1, kLargest = 1, kTotals = 1, kStep = 4;
//     static constexpr bool kAgain = true;
//     static bool is_wanted(const Rules&);                                      // asked by the host
//     static State begin(const Rules&, View, int64_t b);                        // of a sequence's tokens
//     static void token(const State&, const double* in, double* sums, double* out);
//     static void sequence(const Rules&, View, int64_t b, const double* sums, double* totals);
//     static void batch(const Rules&, View, const double* totals);
//     static double again(const Rules&, View, int64_t b);  // summed over sequences once the batch is known, for
//     static void last(const Rules&, View, double sum);
//   };
//   RLK_SIMT_TOKEN_PASSES(Squares)
//   RLK_SIMT_TOKENS(Op, rules, (in(x), in_or(old_x, x), or_one(mask)), (out(y), each(reward), put(loss)), (Squares))
//
// The operator's name in the declarations' views, what the host makes of a call (sdk::Arguments), the arguments that
// have a number for each token and are read, and the others: out(y) has tokens, too, each(reward) and put(loss) are
// read and written by sequence, or for the batch. A pass names them by their places, counted through both lists.
//
// A token's numbers are fp64, and behind them in[kIns] is its place in its sequence. It adds to its thread's sums, of
// which those from kLargest on are maxima (a NaN is the largest); `out` begins as 0. A pass is a launch over chunks of
// kTokenChunk tokens of a sequence, a block each, and, where it sums something, one of a single block that adds chunks
// to sequences and sequences to totals. The order depends on lengths alone. kStep tokens of a thread are read before
// the first is computed.
//
// A pass of packs reads four neighbours of a tensor at once and computes one token after the other: it is for a token
// that is little work. It says which tensors it looks at, kUses, a bit each, of which of them bytes are expected,
// kBytes, and which are mostly absent, kAbsent; the others' numbers are 0. kBlocks: how many blocks a multiprocessor
// should hold. One that has a text for fp32, too, is kShort (short_tokens.cuh). One that has bytes(count, sums), too,
// only counts the bytes of one tensor that are not 0. No kStep:
//
//   RLK_SIMT_TOKEN_PACK_PASSES(BriefSquares)
//
// cu_seqlens are checked by the totals of a pass. Bad ones are reported and make every output NaN; no pass reads or
// writes beyond the tensors for them. A pass without sums must not be the first one of a packed call.
#pragma once

#if !defined(RLK_SIMT_TOKENS)  // the host reads operators too, with words of its own (host/token_words.hpp)

#include "../element.cuh"

#if !defined(RLK_FORMULA)
#define RLK_FORMULA __device__ __forceinline__
#endif
#include <rlk/formula/vocabulary.hpp>

#include "../tokens.cuh"
#include "each.h"
#include "token_numbers.cuh"

namespace rlk::simt {

struct TokenRange {
  int64_t begin, end;
};

// What a pass sees of a call beside the tokens' numbers.
class TokenView {
public:
  __device__ __forceinline__ explicit TokenView(const TokenArgs& args) : args_(args) {}

  __device__ __forceinline__ bool has(int i) const { return args_.tensor[i].data != nullptr; }
  // The number of a tensor without tokens.
  __device__ __forceinline__ double number(int i, int64_t n) const {
    const TokenTensor& tensor = args_.tensor[i];
    const int64_t at = n * tensor.sequence;
    if (tensor.data == nullptr) return tensor.value;
    if (tensor.dtype == kMapF32) return static_cast<const float*>(tensor.data)[at];
    if (tensor.dtype == kMapF64) return static_cast<const double*>(tensor.data)[at];
    if (tensor.dtype == kMapBf16) return widen(static_cast<const bf16*>(tensor.data)[at]);
    return widen(static_cast<const f16*>(tensor.data)[at]);
  }
  __device__ __forceinline__ void put(int i, int64_t n, double value) const { put(i, n, 0, value); }
  // Row n, column k; or token k of dense sequence n, or of all with n 0.
  __device__ __forceinline__ void put(int i, int64_t n, int64_t k, double value) const {
    const TokenTensor& tensor = args_.tensor[i];
    const int64_t at = n * tensor.sequence + k * tensor.token;
    if (tensor.data == nullptr) return;
    if (tensor.dtype == kMapF32) {
      static_cast<float*>(tensor.data)[at] = Narrow<float>::of(value);
    } else if (tensor.dtype == kMapF64) {
      static_cast<double*>(tensor.data)[at] = value;
    } else if (tensor.dtype == kMapBf16) {
      static_cast<bf16*>(tensor.data)[at] = Narrow<bf16>::of(value);
    } else {
      static_cast<f16*>(tensor.data)[at] = Narrow<f16>::of(value);
    }
  }
  template <class Own>
  __device__ __forceinline__ Own& own(int64_t b) const {
    return reinterpret_cast<Own*>(args_.own)[b];
  }
  template <class Batch>
  __device__ __forceinline__ Batch& batch() const {
    return *reinterpret_cast<Batch*>(args_.batch);
  }

  // The rest is the skeleton's.
  __device__ __forceinline__ bool is_packed() const { return args_.cu_seqlens != nullptr; }
  __device__ __forceinline__ int64_t boundary(int64_t b) const {
    return read_index(args_.cu_seqlens, b * args_.cu_stride, args_.cu_are_i64 != 0);
  }
  // Where a sequence's tokens are: in a packed tensor, or in its row. Within the tensor whatever cu_seqlens say.
  __device__ __forceinline__ TokenRange tokens(int64_t b) const {
    if (!is_packed()) return {0, args_.length};
    const int64_t begin = inside(boundary(b)), end = inside(boundary(b + 1));
    return {begin, end < begin ? begin : end};
  }
  // A packed sequence's first chunk: it needs no sum over those before it.
  __device__ __forceinline__ int64_t first_chunk(int64_t b) const {
    return is_packed() ? inside(boundary(b)) / kTokenChunk + b : b * args_.chunks_of_each;
  }
  // The sequence of a chunk of dense ones.
  __device__ __forceinline__ int64_t row_of(int64_t chunk) const {
    // A division of 64 bits is a loop.
    if ((chunk | args_.chunks_of_each) >> 32 != 0) return chunk / args_.chunks_of_each;
    return static_cast<uint32_t>(chunk) / static_cast<uint32_t>(args_.chunks_of_each);
  }
  // The sequence of a chunk: the last one whose first chunk is not behind it.
  __device__ __forceinline__ int64_t sequence_of(int64_t chunk) const {
    if (!is_packed()) return row_of(chunk);
    int64_t low = 0, high = args_.sequences;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (first_chunk(middle) <= chunk) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

private:
  __device__ __forceinline__ int64_t inside(int64_t place) const {
    return place < 0 ? 0 : place > args_.length ? args_.length : place;
  }

  const TokenArgs& args_;
};

template <class Rules>
__device__ __forceinline__ const Rules& token_rules(const TokenArgs& args) {
  static_assert(sizeof(Rules) <= kTokenRules, "as many bytes as the arguments have room for");
  return *reinterpret_cast<const Rules*>(args.rules);
}

template <int kLargest>
__device__ __forceinline__ void add_to_sum(int i, double& sum, double more) {
  if (i < kLargest) {
    sum = formula::Add(sum, more);
  } else {
    sum = more > sum || more != more ? more : sum;
  }
}

// By the threads of a grid, or of a block.
__device__ inline void all_outputs_nan(const TokenArgs& args, int64_t first, int64_t step) {
  const TokenView view(args);
  const double nan = 0 * __builtin_huge_val();
  for (int i = 0; i < kTokenTensors; ++i) {
    const TokenTensor& tensor = args.tensor[i];
    if (tensor.is_output == 0) continue;
    for (int64_t n = first; n < tensor.rows * tensor.columns; n += step) {
      view.put(i, n / tensor.columns, n % tensor.columns, nan);
    }
  }
}

// The tokens [begin, end) of a sequence, by a block.
template <class Pass, class State, int kSums>
__device__ __forceinline__ void tokens_one_by_one(const TokenArgs& args, const State& state, int64_t row,
                                                  int64_t sequence_begin, int64_t begin, int64_t end,
                                                  double (&sums)[kSums]) {
  constexpr int kIns = Pass::kIns, kOuts = Pass::kOuts, kStep = Pass::kStep;
  const TokenView view(args);
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int64_t first = begin + me; first < end; first += kStep * kTokenThreads) {
    int64_t token[kStep];
    uint64_t bits[kIns][kStep];
    double number[kIns][kStep];
#pragma unroll
    for (int s = 0; s < kStep; ++s) {
      token[s] = first + s * kTokenThreads < end ? first + s * kTokenThreads : first;
    }
#pragma unroll
    for (int i = 0; i < kIns; ++i) read_tokens(args.tensor[i], row, token, bits[i]);
#pragma unroll
    for (int i = 0; i < kIns; ++i) widen_tokens(args.tensor[i], bits[i], number[i]);
#pragma unroll
    for (int s = 0; s < kStep; ++s) {
      if (first + s * kTokenThreads >= end) continue;
      double in[kIns + 1], out[kOuts > 0 ? kOuts : 1] = {};
      in[kIns] = static_cast<double>(token[s] - sequence_begin);
#pragma unroll
      for (int i = 0; i < kIns; ++i) in[i] = number[i][s];
      Pass::token(state, in, sums, out);
#pragma unroll
      for (int i = 0; i < kOuts; ++i) view.put(kIns + i, row, token[s], out[i]);
    }
  }
}
// What a pass of packs makes of `count` neighbours.
template <class D, class Pass, class State, int kSums, int kNumbers, int kResults>
__device__ __forceinline__ void compute_pack(const State& state, int64_t place, int count,
                                             const double (&number)[kNumbers][kTokenPack], double (&sums)[kSums],
                                             double (&result)[kResults][kTokenPack]) {
#pragma unroll
  for (int s = 0; s < kTokenPack; ++s) {
    double in[kNumbers + 1], out[kResults] = {};
    in[kNumbers] = static_cast<double>(place + s);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) in[i] = number[i][s];
    if (s < count) Pass::token(D{}, state, in, sums, out);
#pragma unroll
    for (int i = 0; i < kResults; ++i) result[i][s] = out[i];
  }
}
// function(tensor, whether it may be of bytes) of each one that the pass looks at.
template <class Pass, class Function>
__device__ __forceinline__ void each_used(const Function& function) {
#pragma unroll
  for (int i = 0; i < Pass::kIns; ++i) {
    if ((Pass::kUses >> i & 1) == 0) continue;
    if ((Pass::kBytes >> i & 1) != 0) {
      function(i, TokenBytes<true>{});
    } else {
      function(i, TokenBytes<false>{});
    }
  }
}
// Whole packs from `first` on, each the next one of this thread, all of them brief tensors'. kCommon: those tensors are
// absent that mostly are, and no others.
template <bool kCommon, class Pass, class State, int kSums>
__device__ __forceinline__ void brief_packs(const TokenArgs& args, const State& state, int64_t row,
                                            int64_t sequence_begin, int64_t end, int64_t& first,
                                            double (&sums)[kSums]) {
  constexpr int kIns = Pass::kIns, kOuts = Pass::kOuts, kResults = kOuts > 0 ? kOuts : 1;
  TokenBits bits[kIns];
  double number[kIns][kTokenPack] = {}, result[kResults][kTokenPack];
  // The next pack is on its way while one is computed.
  const int64_t last = end - kTokenPack;
  const auto is_there = [&](int i) { return kCommon ? (Pass::kAbsent >> i & 1) == 0 : args.tensor[i].data != nullptr; };
  const auto read = [&] {
    each_used<Pass>([&](int i, auto bytes) {
      if (is_there(i)) read_brief<bytes.value>(brief_place<bytes.value>(args.tensor[i], row, first), bits[i]);
    });
  };
  if (first <= last) read();
#pragma unroll 1
  while (first <= last) {
    const int64_t own = first;
    each_used<Pass>(
        [&](int i, auto bytes) { widen_brief<bytes.value>(args.tensor[i], is_there(i), bits[i], number[i]); });
    first += kTokenPack * kTokenThreads;
    if (first <= last) read();
    compute_pack<formula::BriefLongLane, Pass>(state, own - sequence_begin, kTokenPack, number, sums, result);
#pragma unroll
    for (int i = 0; i < kOuts; ++i) {
      const TokenTensor& tensor = args.tensor[kIns + i];
      if (tensor.data != nullptr) put_brief(brief_place<false>(tensor, row, own), result[i]);
    }
  }
}
// Whether a pass has bytes().
template <class Pass, class = void>
constexpr bool kCountsBytes = false;
template <class Pass>
inline constexpr bool kCountsBytes<Pass, decltype(Pass::bytes(0.0, static_cast<double*>(nullptr)))> = true;
template <class Pass, class State, int kSums>
__device__ __forceinline__ void tokens_in_packs(const TokenArgs& args, const State& state, int64_t row,
                                                int64_t sequence_begin, int64_t begin, int64_t end,
                                                double (&sums)[kSums]) {
  constexpr int kIns = Pass::kIns, kOuts = Pass::kOuts, kResults = kOuts > 0 ? kOuts : 1;
  constexpr int kStep = kTokenPack * kTokenThreads;
  const TokenView view(args);
  int64_t first = begin + kTokenPack * static_cast<int>(threadIdx.x);
  bool is_brief = true, is_common = true;
  each_used<Pass>([&](int i, auto bytes) {
    is_brief = is_brief && is_brief_tensor<bytes.value>(args.tensor[i], row, begin);
    is_common = is_common && (args.tensor[i].data == nullptr) == ((Pass::kAbsent >> i & 1) != 0);
  });
#pragma unroll
  for (int i = 0; i < kOuts; ++i) is_brief = is_brief && is_brief_tensor<false>(args.tensor[kIns + i], row, begin);
  if (is_brief && is_common) {
    if constexpr (kCountsBytes<Pass>) {
      each_used<Pass>([&](int i, auto) { Pass::bytes(count_bytes(args.tensor[i], row, end, first), sums); });
    } else {
      brief_packs<true, Pass>(args, state, row, sequence_begin, end, first, sums);
    }
  } else if (is_brief) {
    brief_packs<false, Pass>(args, state, row, sequence_begin, end, first, sums);
  }
  TokenBits bits[kIns];
  double number[kIns][kTokenPack] = {}, result[kResults][kTokenPack];
#pragma unroll 1
  for (; first < end; first += kStep) {
    const int count = end - first < kTokenPack ? static_cast<int>(end - first) : kTokenPack;
    each_used<Pass>([&](int i, auto) { read_pack(args.tensor[i], row, first, count, bits[i]); });
    each_used<Pass>([&](int i, auto) { widen_pack(args.tensor[i], row, first, count, bits[i], number[i]); });
    compute_pack<formula::Lane<double>, Pass>(state, first - sequence_begin, count, number, sums, result);
#pragma unroll
    for (int i = 0; i < kOuts; ++i) put_pack(view, args.tensor[kIns + i], kIns + i, row, first, count, result[i]);
  }
}

// What a block's threads have summed of a chunk.
template <class Pass, int kSums>
__device__ __forceinline__ void sum_chunk(const TokenArgs& args, int64_t chunk, double (&sums)[kSums]) {
  const int me = static_cast<int>(threadIdx.x);
  constexpr int kWaves = kTokenThreads / 32;
  __shared__ double part[kWaves][kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) {
      add_to_sum<Pass::kLargest>(i, sums[i], wave_xor(sums[i], lanes));
    }
    if (me % kWave == 0) part[me / kWave][i] = sums[i];
  }
  __syncthreads();
  if (me < kSums) {
    double sum = part[0][me];
    for (int w = 1; w < kTokenThreads / kWave; ++w) add_to_sum<Pass::kLargest>(me, sum, part[w][me]);
    args.sums[chunk * kSums + me] = sum;
  }
  __syncthreads();
}

template <class Pass, bool kInPacks>
__device__ __forceinline__ void token_pass(const TokenArgs& args) {
  constexpr int kSums = Pass::kSums;
  const TokenView view(args);
  const auto& rules = token_rules<typename Pass::Rules>(args);
  const int me = static_cast<int>(threadIdx.x);
  if (view.is_packed() && args.is_checked != 0 && *args.is_bad != 0) {
    if (kSums > 0) return;
    return all_outputs_nan(args, static_cast<int64_t>(blockIdx.x) * kTokenThreads + me,
                           static_cast<int64_t>(gridDim.x) * kTokenThreads);
  }
  for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
    const int64_t b = view.sequence_of(chunk);
    const TokenRange all = view.tokens(b);
    const int64_t begin = all.begin + (chunk - view.first_chunk(b)) * kTokenChunk;
    if (begin < all.begin || begin >= all.end) continue;
    const int64_t end = begin + kTokenChunk < all.end ? begin + kTokenChunk : all.end;
    const int64_t row = view.is_packed() ? 0 : b;
    const auto state = Pass::begin(rules, view, b);
    double sums[kSums > 0 ? kSums : 1] = {};
    if constexpr (kInPacks) {
      tokens_in_packs<Pass>(args, state, row, all.begin, begin, end, sums);
    } else {
      tokens_one_by_one<Pass>(args, state, row, all.begin, begin, end, sums);
    }
    if constexpr (kSums > 0) sum_chunk<Pass>(args, chunk, sums);
  }
}

// The first position at which cu_seqlens are wrong, or sequences + 1.
__device__ inline int64_t first_bad_boundary(const TokenArgs& args) {
  const TokenView view(args);
  __shared__ unsigned long long bad;
  if (threadIdx.x == 0) bad = static_cast<unsigned long long>(args.sequences + 1);
  __syncthreads();
  for (int64_t p = threadIdx.x; p <= args.sequences; p += kTokenTotalThreads) {
    const int64_t value = view.boundary(p);
    const bool wrong = (p == 0 && value != 0) || (p > 0 && value < view.boundary(p - 1)) ||
                       (p == args.sequences && value != args.length);
    if (wrong) atomicMin(&bad, static_cast<unsigned long long>(p));
  }
  __syncthreads();
  return static_cast<int64_t>(bad);
}

// The sums of a block of kTokenTotalThreads, to all of its threads.
template <int kCount>
__device__ __forceinline__ void sum_totals(double (&totals)[kCount]) {
  __shared__ double part[kTokenTotalThreads / 32][kCount];
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int lanes = kWave / 2; lanes > 0; lanes /= 2) totals[i] = formula::Add(totals[i], wave_xor(totals[i], lanes));
    if (me % kWave == 0) part[me / kWave][i] = totals[i];
  }
  __syncthreads();
  if (me < kCount) {
    double sum = part[0][me];
#pragma unroll
    for (int w = 1; w < kTokenTotalThreads / kWave; ++w) sum = formula::Add(sum, part[w][me]);
    part[0][me] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) totals[i] = part[0][i];
  __syncthreads();
}

// The chunks' sums of a sequence, by `lanes` threads of a wave, or by one.
template <class Pass>
__device__ __forceinline__ void sum_chunks(const TokenArgs& args, int64_t b, int lanes, double (&sums)[Pass::kSums]) {
  const TokenView view(args);
  const TokenRange all = view.tokens(b);
  constexpr int kAtOnce = Pass::kSums > 4 ? 2 : 4;
  const int64_t first = view.first_chunk(b), end = first + (all.end - all.begin + kTokenChunk - 1) / kTokenChunk;
  // Several are on their way at once.
#pragma unroll kAtOnce
  for (int64_t chunk = first + static_cast<int>(threadIdx.x) % lanes; chunk < end; chunk += lanes) {
#pragma unroll
    for (int i = 0; i < Pass::kSums; ++i) add_to_sum<Pass::kLargest>(i, sums[i], args.sums[chunk * Pass::kSums + i]);
  }
  if (lanes == 1) return;
#pragma unroll
  for (int i = 0; i < Pass::kSums; ++i) {
    for (int apart = kWave / 2; apart > 0; apart /= 2) {
      add_to_sum<Pass::kLargest>(i, sums[i], wave_xor(sums[i], apart));
    }
  }
}

// One block.
template <class Pass>
__device__ __forceinline__ void token_totals(const TokenArgs& args) {
  if constexpr (Pass::kSums > 0) {
    const TokenView view(args);
    const auto& rules = token_rules<typename Pass::Rules>(args);
    const int me = static_cast<int>(threadIdx.x);
    if (view.is_packed()) {
      const int64_t bad = first_bad_boundary(args);
      const bool is_bad = bad <= args.sequences;
      if (me == 0) {
        *args.is_bad = is_bad ? 1 : 0;
        if (is_bad) report_data_error(args.errors, kDataBadSeqlens, bad, view.boundary(bad));
      }
      if (is_bad) {
        if (args.is_last != 0) all_outputs_nan(args, me, kTokenTotalThreads);
        return;
      }
    }
    double totals[Pass::kTotals] = {};
    const int lanes = args.chunks >= kTokenManyChunks * args.sequences ? kWave : 1;
    for (int64_t b = me / lanes; b < args.sequences; b += kTokenTotalThreads / lanes) {
      double sums[Pass::kSums] = {};
      sum_chunks<Pass>(args, b, lanes, sums);
      if (me % lanes == 0) Pass::sequence(rules, view, b, sums, totals);
    }
    sum_totals(totals);
    if (me == 0) Pass::batch(rules, view, totals);
    if constexpr (Pass::kAgain) {
      __syncthreads();  // what is kept of sequences and batch is there
      double sum[1] = {};
      for (int64_t b = me; b < args.sequences; b += kTokenTotalThreads) {
        sum[0] = formula::Add(sum[0], Pass::again(rules, view, b));
      }
      sum_totals(sum);
      if (me == 0) Pass::last(rules, view, sum[0]);
    }
  }
}

}  // namespace rlk::simt

#include "short_tokens.cuh"

#define RLK_SIMT_TOKEN_CHUNKS(PASS, in_packs, ...)                                                      \
  RLK_SIMT_KERNEL(__VA_ARGS__)                                                                          \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _tokens_##PASS##_chunks)(RLK_SIMT_ARGUMENT(rlk::simt::TokenArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                      \
    rlk::simt::token_pass<rlk::formula::PASS, in_packs>(args);                                          \
  }                                                                                                     \
  RLK_SIMT_KERNEL(rlk::simt::kTokenTotalThreads)                                                        \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _tokens_##PASS##_totals)(RLK_SIMT_ARGUMENT(rlk::simt::TokenArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                      \
    rlk::simt::token_totals<rlk::formula::PASS>(args);                                                  \
  }
// Four blocks that read far ahead, or three, keep memory busy while others compute.
#define RLK_SIMT_TOKEN_PASS(PASS) \
  RLK_SIMT_TOKEN_CHUNKS(PASS, false, rlk::simt::kTokenThreads, rlk::formula::PASS::kStep > 2 ? 4 : 3)
#define RLK_SIMT_TOKEN_PACK_PASS(PASS) \
  RLK_SIMT_TOKEN_CHUNKS(PASS, true, rlk::simt::kTokenThreads, rlk::formula::PASS::kBlocks)
#define RLK_SIMT_TOKEN_SHORT_PASS(PASS)                                                                \
  RLK_SIMT_TOKEN_PACK_PASS(PASS)                                                                       \
  RLK_SIMT_KERNEL(rlk::simt::kTokenThreads, rlk::formula::PASS::kShortBlocks)                          \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _tokens_##PASS##_short)(RLK_SIMT_ARGUMENT(rlk::simt::TokenArgs) args) { \
    rlk::simt::wait_for_earlier();                                                                     \
    rlk::simt::token_short_pass<rlk::formula::PASS>(args);                                             \
  }
#define RLK_SIMT_TOKEN_PASSES(...) RLK_SIMT_EACH(RLK_SIMT_TOKEN_PASS, __VA_ARGS__)
#define RLK_SIMT_TOKEN_PACK_PASSES(...) RLK_SIMT_EACH(RLK_SIMT_TOKEN_PACK_PASS, __VA_ARGS__)
#define RLK_SIMT_TOKEN_SHORT_PASSES(...) RLK_SIMT_EACH(RLK_SIMT_TOKEN_SHORT_PASS, __VA_ARGS__)
#define RLK_SIMT_TOKENS(OP, rules, ins, others, passes)

#endif
