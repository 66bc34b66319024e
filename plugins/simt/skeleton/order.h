// What the host tells the kernels of rows in order (order.cuh).
#pragma once

#include "../tiling.h"
#include "move.h"

namespace rlk::simt {

// What size[] and divisor[] hold.
constexpr int kOrderColumns = 0;
constexpr int kOrderCount = 1;       // of each row that are wanted
constexpr int kOrderDescending = 2;  // whether the largest come first
constexpr int kOrderStretch = 3;     // columns that kPeakLanes threads look through
constexpr int kOrderShift = 4;       // the lowest bit that tells numbers of the dtype apart
constexpr int kOrderFirst = 5;       // the first row of the launch, whose rows, units and workspace count from it
constexpr int kByRadixTiles = 0;     // of a row
constexpr int kByOrderStretches = 1;
constexpr int64_t kOrderChunk = 2048;  // columns that a block sorts
constexpr int kOrderList = 2048;       // places of a row that are collected and then sorted
constexpr int kOrderWideThreads = 1024;
constexpr int kRadixBits = 8;  // of a digit
constexpr int kRadixDigits = 1 << kRadixBits;
constexpr int kRadixTileBytes = 32768;  // of the places that a block puts in a digit's order
static_assert(kRadixDigits == kMoveThreads, "a thread has a digit");

// Peaks of long rows (peaks.cuh).
constexpr int kPeakLanes = 32;      // threads that read a stretch together: a wave or half of one
constexpr int kPeakThreads = 512;   // that have the peaks of a row
constexpr int kPeakGroups = 10;     // of peaks, of which a thread keeps the first
constexpr int64_t kPeakUnit = 256;  // a stretch is a multiple of it: whole packs of every lane and dtype
constexpr int64_t kPeakMost = 4096;
// Columns of a stretch: as many as give each group one peak, unless that makes a stretch long.
RLK_SIMT_BOTH constexpr int64_t peak_stretch(int64_t columns) {
  constexpr int64_t kStretches = kPeakThreads * kPeakGroups / kPeakLanes;
  const int64_t units = (columns + kStretches * kPeakUnit - 1) / (kStretches * kPeakUnit), length = units * kPeakUnit;
  return length < kPeakUnit ? kPeakUnit : length < kPeakMost ? length : kPeakMost;
}

}  // namespace rlk::simt
