// What the host tells the kernels of rows in order (order.cuh).
#pragma once

#include "move.h"

namespace rlk::simt {

// What size[] and divisor[] hold.
constexpr int kOrderColumns = 0;
constexpr int kOrderCount = 1;       // of each row that are wanted
constexpr int kOrderDescending = 2;  // whether the largest come first
constexpr int kOrderSegment = 3;     // columns of which a peak is
constexpr int kOrderShift = 4;       // the lowest bit that tells numbers of the dtype apart
constexpr int kOrderFirst = 5;       // the first row of the launch, whose rows, units and workspace count from it
constexpr int kByOrderChunks = 0;    // of a row
constexpr int kByRadixTiles = 1;
constexpr int kByOrderSegments = 2;
constexpr int64_t kOrderMostSegments = 2048;  // of a row
constexpr int64_t kOrderChunk = 2048;         // columns that a block sorts or looks through
constexpr int kOrderList = 2048;              // places of a row that are collected and then sorted
constexpr int kOrderWideThreads = 1024;
constexpr int kRadixBits = 8;  // of a digit
constexpr int kRadixDigits = 1 << kRadixBits;
constexpr int kRadixTileBytes = 32768;  // of the places that a block puts in a digit's order
static_assert(kRadixDigits == kMoveThreads, "a thread has a digit");

}  // namespace rlk::simt
