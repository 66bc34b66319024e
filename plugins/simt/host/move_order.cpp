// Calls of rows in order, and of sample: the settings that the kernels take, and their launches.
#include "move_parts.hpp"

#include "../skeleton/sample.h"

#include <algorithm>

namespace rlk::simt::host::moves {

namespace {

// The kernels of in_order.
enum { kChunks, kCount, kOffset, kScatter, kPeaks, kFirst };
// And of sampled.
enum { kSamplePeaks, kWeigh, kDraw };

// The lowest bit in which the orders of two numbers of the dtype differ: an order is that of the number as fp32 or
// fp64.
int64_t order_shift(sdk::Dtype dtype) {
  return dtype == sdk::Dtype::bf16 ? 16 : dtype == sdk::Dtype::f16 ? 8 : 0;
}

// Of the block that has a row's peaks: few have little to do for many threads.
int peak_threads(int64_t columns) {
  return columns > 16384 ? simt::kPeakThreads : columns > 512 ? 256 : 64;
}

// A long row: digit by digit.
void add_radix(MoveCall& call, int64_t columns, sdk::Dtype dtype) {
  const bool is_wide = dtype == sdk::Dtype::f64;
  const int64_t place_bytes = is_wide ? 16 : 8, bits = is_wide ? 64 : 32, shift = order_shift(dtype);
  const int64_t tiles = ceil_divide(columns, simt::kRadixTileBytes / place_bytes);
  call.args.size[simt::kOrderShift] = shift;
  call.args.divisor[simt::kByRadixTiles] = divisor_of(tiles);
  call.work_bytes[0] = static_cast<uint64_t>(columns * place_bytes);
  // Between two digits are the places once, and between more in turn.
  call.work_bytes[1] = bits - shift > int64_t{2} * simt::kRadixBits ? call.work_bytes[0] : 0;
  call.work_bytes[2] = static_cast<uint64_t>(tiles * simt::kRadixDigits) * sizeof(uint32_t);
  for (int64_t bit = shift; bit < bits; bit += simt::kRadixBits) {
    call.add({kCount, tiles, 1, simt::kMoveThreads, bit});
    call.add({kOffset, 1, 1, simt::kOrderWideThreads, bit});
    call.add({kScatter, tiles, 1, simt::kMoveThreads, bit});
  }
}

}  // namespace

MoveCall in_order(const rlk_tensor* y, const rlk_tensor* index, const rlk_tensor* x, int64_t count, bool descending,
                  bool may_select) {
  const int64_t rows = x->shape[0], columns = x->shape[1];
  MoveCall call = by_units(0, {y, index, x}, {columns, count, descending ? 1 : 0});
  call.count = 0;
  call.may_work = true;
  if (columns >= int64_t{1} << 31) call.refusal = sdk::Support::no("SIZE", "a place in a row is a number of 31 bits");
  const int64_t chunks = ceil_divide(columns, simt::kOrderChunk);
  const int64_t place_bytes = sdk::dtype_of(*x) == sdk::Dtype::f64 ? 16 : 8;
  if (may_select && chunks > 1 && count <= simt::kOrderList) {
    const int64_t stretch = simt::peak_stretch(columns), stretches = ceil_divide(columns, stretch);
    call.args.size[simt::kOrderStretch] = stretch;
    call.args.divisor[simt::kByOrderStretches] = divisor_of(stretches);
    call.work_bytes[0] = static_cast<uint64_t>(stretches * simt::kPeakLanes * place_bytes / 2);
    call.add({kPeaks, stretches, simt::kMoveThreads / simt::kPeakLanes});
    call.add({kFirst, 1, 1, peak_threads(columns)});
    return in_parts(call, rows, simt::kOrderFirst);
  }
  if (chunks > 1) {
    add_radix(call, columns, sdk::dtype_of(*x));
    return in_parts(call, rows, simt::kOrderFirst);
  }
  int threads = 64;  // whole waves of any device, each thread with two places
  while (threads < simt::kMoveThreads && int64_t{2} * threads < columns) threads *= 2;
  call.add({kChunks, rows, 1, threads});
  return call;
}

MoveCall sampled(const sdk::Arguments<sdk::ops::Sample>& call) {
  const auto& params = call.params;
  constexpr int64_t kSegment = 512;    // tokens that a wave reads at once, or in a few steps
  constexpr int64_t kVocab = 1 << 24;  // of which the weights' sum is below 2^64
  constexpr int64_t kMostSegments = 2048;
  const int64_t stretch = simt::peak_stretch(call.V), stretches = ceil_divide(call.V, stretch);
  const int64_t segment = std::max(kSegment, ceil_divide(call.V, kMostSegments));
  const int64_t segments = ceil_divide(call.V, segment), parts = ceil_divide(segments, simt::kSampleSegmentsOfPart);
  simt::SampleRules rules{};
  rules.vocab = call.V;
  rules.stretch = stretch;
  rules.segment = segment;
  rules.segments = segments;
  rules.rounds = call.uniform_samples != nullptr ? call.uniform_samples->shape[0] : 0;
  rules.top_k = params.top_k;
  rules.seed = params.seed;
  rules.step = params.step;
  rules.temperature = static_cast<float>(params.temperature);
  rules.top_p = static_cast<float>(params.top_p);
  rules.min_p = static_cast<float>(params.min_p);
  rules.repetition = static_cast<float>(params.repetition_penalty);
  rules.frequency = static_cast<float>(params.frequency_penalty);
  rules.presence = static_cast<float>(params.presence_penalty);
  const auto flag = [](bool is_set) { return static_cast<int8_t>(is_set ? 1 : 0); };
  rules.has_rounds = flag(call.uniform_samples != nullptr);
  rules.is_joint = flag(params.filter_order == decltype(params.filter_order)::joint);
  rules.keeps_k_ties = flag(params.top_k_ties == decltype(params.top_k_ties)::keep);
  rules.exceeds_p = flag(params.top_p_boundary == decltype(params.top_p_boundary)::exceed);
  rules.keeps_p_ties = flag(params.top_p_ties == decltype(params.top_p_ties)::keep);
  rules.min_p_last = flag(params.min_p_order == decltype(params.min_p_order)::last);

  MoveCall out = with_rules(by_units(0,
                                     {call.ids,
                                      call.logp,
                                      call.processed_logp,
                                      call.status,
                                      call.success,
                                      call.keep_mask,
                                      call.logits,
                                      call.row_ids,
                                      call.temperatures,
                                      call.top_ks,
                                      call.top_ps,
                                      call.min_ps,
                                      call.repetition_penalties,
                                      call.frequency_penalties,
                                      call.presence_penalties,
                                      call.prompt_mask,
                                      call.output_counts,
                                      call.allowed,
                                      call.seeds,
                                      call.steps,
                                      call.uniform_samples},
                                     {}),
                            rules);
  if (call.V > kVocab) out.refusal = sdk::Support::no("SIZE", "the weights of 2^24 tokens fill 64 bits");
  if (call.logp == nullptr && call.processed_logp == nullptr) out.numerics |= RLK_NUMERICS_PORTABLE;
  out.may_work = true;
  out.args.divisor[simt::kBySampleStretches] = divisor_of(stretches);
  out.args.divisor[simt::kBySampleParts] = divisor_of(parts);
  out.work_bytes[0] = static_cast<uint64_t>(stretches * simt::kPeakLanes) * sizeof(uint32_t);
  out.work_bytes[1] = static_cast<uint64_t>(stretches * simt::kSampleStretchBytes);
  out.count = 0;
  out.add({kSamplePeaks, stretches, simt::kMoveThreads / simt::kPeakLanes});
  // Of all rows' tokens, unless what top_k keeps is all that counts.
  const bool all_by_k = call.top_ks == nullptr && params.top_k > 0 && params.top_k < call.V;
  if (!all_by_k || rules.is_joint != 0 || rules.has_rounds != 0 || call.logp != nullptr) {
    out.bytes *= 2;
    out.work_bytes[2] = static_cast<uint64_t>(segments * simt::kSampleSegmentBytes);
    out.add({kWeigh, parts, 1});
  }
  out.add({kDraw, 1, 1, peak_threads(call.V)});
  return in_parts(out, call.N, simt::kOrderFirst);
}

}  // namespace rlk::simt::host::moves
