// What the host tells the kernels of sample (sample.cuh).
#pragma once

#include "order.h"

namespace rlk::simt {

// The places of its tensors.
constexpr int kSampleIds = 0, kSampleLogp = 1, kSampleProcessed = 2, kSampleStatus = 3, kSampleSuccess = 4,
              kSampleMask = 5;
constexpr int kSampleLogits = 6, kSampleRowIds = 7, kSampleTemperatures = 8, kSampleTopKs = 9, kSampleTopPs = 10,
              kSampleMinPs = 11, kSampleRepetition = 12, kSampleFrequency = 13, kSamplePresence = 14,
              kSamplePrompt = 15, kSampleCounts = 16, kSampleAllowed = 17, kSampleSeeds = 18, kSampleSteps = 19,
              kSampleUniform = 20;
constexpr int kBySampleStretches = 0, kBySampleParts = 1;  // of a row
constexpr int kSampleList = kOrderList;
constexpr int64_t kSampleWanted = 256;    // tokens that are listed where a filter keeps an unknown number
constexpr int kSampleSegmentsOfPart = 8;  // whose sums a block has
constexpr int64_t kSampleStretchBytes = 16, kSampleSegmentBytes = 24;

// Parameters, where no tensor has them of each row.
struct SampleRules {
  int64_t vocab, stretch, segment, segments, rounds;
  int64_t top_k, seed, step;
  float temperature, top_p, min_p, repetition, frequency, presence;
  int8_t has_rounds, is_joint, keeps_k_ties, exceeds_p, keeps_p_ties, min_p_last;
};

}  // namespace rlk::simt
