// Passes of packs in fp32 (tokens.cuh): a kernel of its own for dense rows of whole packs of the tensors that the pass
// expects, of fp32 numbers and bytes, as the host has found. The questions that any other call asks take as long as
// its tokens.
//
//   static constexpr bool kShort = true;
//   static constexpr int kShortBlocks = 8;
//   static ShortState begin_short(const Rules&, View, int64_t b);
//   static unsigned in_short(const ShortState&, const float (&in)[kIns][4], double* sums, float (&out)[kOuts][4]);
//   RLK_SIMT_TOKEN_SHORT_PASSES(BriefSquares)
//
// in_short() says by a bit each which tokens it leaves, and adds nothing for them: those whose result fp32 may not
// decide. They are computed in fp64 as the pass computes all tokens elsewhere.
#pragma once

namespace rlk::simt {

// A pass of packs in fp32 (kShort): dense rows of whole packs of the tensors that it expects, as the host has found.
// The questions that any other call asks would take as long as its tokens.
template <class Pass>
__device__ __forceinline__ void token_short_pass(const TokenArgs& args) {
  constexpr int kIns = Pass::kIns, kOuts = Pass::kOuts, kSums = Pass::kSums, kStep = kTokenPack * kTokenThreads;
  static_assert(kTokenChunk / kTokenThreads <= 32, "a bit for each token of a thread");
  const TokenView view(args);
  const auto& rules = token_rules<typename Pass::Rules>(args);
  const auto is_there = [](int i) { return (Pass::kAbsent >> i & 1) == 0; };
  for (int64_t chunk = blockIdx.x; chunk < args.chunks; chunk += gridDim.x) {
    const int64_t b = view.row_of(chunk);
    const int64_t begin = (chunk - b * args.chunks_of_each) * kTokenChunk, limit = begin + kTokenChunk;
    const int64_t end = limit < args.length ? limit : args.length;
    const int64_t own = begin + kTokenPack * static_cast<int>(threadIdx.x);
    TokenBits bits[kIns];
    const auto read = [&](int64_t first) {
      each_used<Pass>([&](int i, auto bytes) {
        if (is_there(i)) read_brief<bytes.value>(args.tensor[i], b, first, bits[i]);
      });
    };
    if (own < end) read(own);
    const auto state = Pass::begin_short(rules, view, b);
    double sums[kSums > 0 ? kSums : 1] = {};
    uint32_t left = 0, bit = 1;
#pragma unroll 1
    for (int64_t first = own; first < end;) {
      float number[kIns][kTokenPack] = {}, result[kOuts][kTokenPack];
      each_used<Pass>([&](int i, auto bytes) {
        if (is_there(i)) numbers_brief<bytes.value>(bits[i], number[i]);
      });
      const int64_t at = first;
      first += kStep;
      if (first < end) read(first);
      left |= Pass::in_short(state, number, sums, result) * bit;
      bit <<= kTokenPack;
#pragma unroll
      for (int i = 0; i < kOuts; ++i) put_brief(args.tensor[kIns + i], b, at, result[i]);
    }
#pragma unroll 1
    for (int s = 0; left != 0; ++s, left >>= 1) {
      if ((left & 1) == 0) continue;
      const int64_t token = own + s / kTokenPack * kStep + s % kTokenPack;
      double in[kIns + 1] = {}, out[kOuts] = {};
      in[kIns] = static_cast<double>(token);
      each_used<Pass>([&](int i, auto bytes) {
        in[i] = is_there(i) ? number_brief<bytes.value>(args.tensor[i], b, token) : args.tensor[i].value;
      });
      Pass::token(formula::BriefLongLane{}, Pass::begin(rules, view, b), in, sums, out);
#pragma unroll
      for (int i = 0; i < kOuts; ++i) view.put(kIns + i, b, token, out[i]);
    }
    if constexpr (kSums > 0) sum_chunk<Pass>(args, chunk, sums);
  }
}

}  // namespace rlk::simt
