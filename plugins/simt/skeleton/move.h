// What the host passes to a kernel that moves data by ids, the same for every operator (move.cuh).
#pragma once

#include "../args.h"
#include "map.h"

namespace rlk::simt {

constexpr int kMoveTensors = 8;
constexpr int kMoveDims = 5;
constexpr int kMoveSizes = 8;
constexpr int kMoveStages = 4;  // launches of an operator, at most
constexpr int kMoveThreads = 256;
constexpr int kMoveItems = 4;      // that a thread takes: their ids are read first, then what the ids name
constexpr int kMoveChunk = 2048;   // keys that a block sorts
constexpr int kMoveFew = 8;        // ids of a list that each owner reads itself
constexpr int kMoveTileRows = 64;  // of a table, whose sums a block owns
constexpr int kMoveTilePacks = 32;
constexpr int kMoveLong = 128;  // ids of one row that a block shares out
constexpr int kMoveSlices = kMoveThreads / kMoveTilePacks;

struct MoveTensor {
  void* data;                 // nullptr: absent
  int64_t stride[kMoveDims];  // in elements, outermost first
  int32_t dtype;              // as MapTensor's
  int32_t in_packs;           // its last dimension is contiguous, and 16 bytes of it begin at a multiple of 16
};

struct MoveDivisor {  // map_divide's
  int64_t size;
  uint32_t multiplier, shift;
};

struct MoveArgs {
  MoveTensor tensor[kMoveTensors];  // outputs, then inputs
  int64_t size[kMoveSizes];
  int64_t units;  // what threads are numbered by
  MoveDivisor divisor[2];
  void* work[3];  // parts of the workspace
  DataErrorSink errors;
};

// What size[] holds. Taking elements by ids (take.cuh):
constexpr int kTakeRows = 0, kTakeColumns = 1;
constexpr int kTakePlaces = 2;    // ids are below it
constexpr int kTakeBytes = 3;     // of an element
constexpr int kTakeMissing = 4;   // its bits where an id is not, repeated to 8 bytes
constexpr int kTakeByColumn = 5;  // a data error tells the column, else the row
// Sums by ids (sums.cuh): lists of ids, what of them was sorted, and what is summed.
constexpr int kSumsLists = 0;      // one for each row, or one for all
constexpr int kSumsIds = 1;        // of each list
constexpr int kSumsPlaces = 2;     // ids are below it
constexpr int kSumsShift = 3;      // a key is id << shift | its number in the list
constexpr int kSumsRows = 4;       // that are summed alike
constexpr int kSumsPadding = 5;    // the place whose sum is 0, or -1
constexpr int kSumsFrequency = 6;  // whether a sum is divided by how many terms it has
constexpr int kSumsDtype = 7;      // of what is summed

}  // namespace rlk::simt
