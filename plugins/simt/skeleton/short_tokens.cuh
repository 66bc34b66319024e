// Passes of packs in fp32 (tokens.cuh): a kernel of its own for dense rows of whole packs of the tensors that the pass
// expects, of fp32 numbers and bytes, as the host has found. The questions that any other call asks take as long as
// its tokens.
//
//   static constexpr bool kShort = true;
//   static constexpr int kShortBlocks = 8;
//   static ShortState begin_short(const Rules&, View, int64_t b);
//   static bool in_short(const ShortState&, const float (&in)[kIns][4], double* sums, float (&out)[kOuts][4]);
//   RLK_SIMT_TOKEN_SHORT_PASSES(BriefSquares)
//
// in_short() says whether it is sure of its tokens. Those of a pack of which it is not are computed in fp64, as the
// pass computes all tokens elsewhere.
#pragma once

namespace rlk::simt {

// A pass of packs in fp32 (kShort).
template <class Pass>
__device__ __forceinline__ void token_short_pass(const TokenArgs& args) {
  constexpr int kIns = Pass::kIns, kOuts = Pass::kOuts, kSums = Pass::kSums, kStep = kTokenPack * kTokenThreads;
  constexpr int kPacks = static_cast<int>(kTokenChunk / kStep);  // of a thread
  const TokenView view(args);
  const auto& rules = token_rules<typename Pass::Rules>(args);
  const auto is_there = [](int i) { return (Pass::kAbsent >> i & 1) == 0; };
  for (int64_t at = blockIdx.x; at < args.chunks; at += gridDim.x) {
    // A pass that sums nothing comes last: what the one before it read last may still be in a cache.
    const int64_t chunk = kSums > 0 ? at : args.chunks - 1 - at;
    const int64_t b = view.row_of(chunk);
    const int64_t begin = (chunk - b * args.chunks_of_each) * kTokenChunk, limit = begin + kTokenChunk;
    const int64_t end = limit < args.length ? limit : args.length;
    const int64_t own = begin + kTokenPack * static_cast<int>(threadIdx.x);
    const int packs = own < end ? static_cast<int>((end - own + kStep - 1) / kStep) : 0;
    const unsigned char* from[kIns];
    unsigned char* to[kOuts];
    TokenBits bits[kIns];
    each_used<Pass>([&](int i, auto bytes) { from[i] = brief_place<bytes.value>(args.tensor[i], b, own); });
#pragma unroll
    for (int i = 0; i < kOuts; ++i) to[i] = brief_place<false>(args.tensor[kIns + i], b, own);
    const auto read = [&](int pack) {
      each_used<Pass>([&](int i, auto bytes) {
        if (is_there(i)) read_brief<bytes.value>(from[i] + pack * kStep * (bytes.value ? 1 : 4), bits[i]);
      });
    };
    if (packs > 0) read(0);
    const auto state = Pass::begin_short(rules, view, b);
    double sums[kSums > 0 ? kSums : 1] = {};
    uint32_t left = 0;
    // The next pack is on its way while one is computed.
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      if (pack >= packs) break;
      float number[kIns][kTokenPack] = {}, result[kOuts][kTokenPack];
      double more[kSums > 0 ? kSums : 1] = {};
      each_used<Pass>([&](int i, auto bytes) {
        if (is_there(i)) numbers_brief<bytes.value>(bits[i], number[i]);
      });
      if (pack + 1 < packs) read(pack + 1);
      const bool is_sure = Pass::in_short(state, number, more, result);
      if (!is_sure) left |= 1u << pack;
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = formula::Add(sums[i], is_sure ? more[i] : 0);
#pragma unroll
      for (int i = 0; i < kOuts; ++i) {
        if (args.tensor[kIns + i].data != nullptr) put_brief(to[i] + pack * kStep * 4, result[i]);
      }
    }
#pragma unroll 1
    for (int s = 0; left >> s / kTokenPack != 0; ++s) {
      if ((left >> s / kTokenPack & 1) == 0) continue;
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
