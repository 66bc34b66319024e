// What the host passes to a kernel that moves data by ids, the same for every operator (move.cuh).
#pragma once

#include "../args.h"
#include "map.h"

namespace rlk::simt {

constexpr int kMoveTensors = 22;
constexpr int kMoveDims = 5;
constexpr int kMoveSizes = 10;
constexpr int kMoveDivisors = 6;
constexpr int kMoveKernels = 8;  // of an operator, at most
constexpr int kMoveStages = 26;  // launches of a call, at most
constexpr int kMoveThreads = 256;
constexpr int kMoveRules = 128;    // bytes of what an operator's own formulas take of a call
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
  int64_t units;     // what threads are numbered by
  int64_t argument;  // of one launch
  MoveDivisor divisor[kMoveDivisors];
  void* work[3];  // parts of the workspace
  DataErrorSink errors;
  alignas(16) unsigned char rules[kMoveRules];
};

// What size[] holds. Taking elements by ids (take.cuh):
constexpr int kTakeRows = 0, kTakeColumns = 1;
constexpr int kTakePlaces = 2;    // ids are below it
constexpr int kTakeBytes = 3;     // of an element
constexpr int kTakeMissing = 4;   // its bits where an id is not, repeated to 8 bytes
constexpr int kTakeByColumn = 5;  // a data error tells the column, else the row
// Lists of ids that are sorted (sorted_ids.cuh):
constexpr int kIdsLists = 0;    // one for each row, or one for all
constexpr int kIdsCount = 1;    // of each list
constexpr int kIdsPlaces = 2;   // ids are below it
constexpr int kIdsShift = 3;    // a key is id << shift | its number in the list
constexpr int kIdsSkips = 4;    // whether there is an id that is left out
constexpr int kIdsSkipped = 5;  // that id
// Sums by them (sums.cuh):
constexpr int kSumsRows = 6;       // that are summed alike
constexpr int kSumsPadding = 7;    // the place whose sum is 0, or -1
constexpr int kSumsFrequency = 8;  // whether a sum is divided by how many terms it has
constexpr int kSumsDtype = 9;      // of what is summed
// Divisors of sorted_ids.cuh and sums.cuh.
constexpr int kByChunks = 0;  // of a list
constexpr int kByWidth = 1;   // of a list's ids in memory, where they are rows
constexpr int kByTiles = 2;   // of a row of sums

// A paged cache (cache.cuh); of a pair the keys come first.
constexpr int kCacheTokens = 0;
constexpr int kCacheSlots = 1;
constexpr int kCacheKeyUnits = 2;  // words of all keys
constexpr int kCacheKeyBytes = 3;  // of a word; those of values follow
constexpr int kByKeyWords = 0;     // of a head
constexpr int kByKeyGroup = 2;     // words of a group
constexpr int kByHeads = 4;
constexpr int kByBlockSize = 5;
constexpr int kCacheFew = 64;  // tokens that look at those behind them

// Heads that are turned (turn.cuh).
constexpr int kTurnPairs = 0;
constexpr int kTurnOffset = 1;    // the first element that is turned
constexpr int kTurnElements = 2;  // of a head
constexpr int kTurnQueryHeads = 3;
constexpr int kTurnPositions = 4;
constexpr int kTurnHalves = 5;  // pairs are halves, else neighbours
constexpr int kTurnInverse = 6;
constexpr int kByTurnPacks = 0;  // of a head
constexpr int kByTurnHeads = 1;  // of a token

// Places aligned to blocks (operators/moe_align_block_size.cuh).
constexpr int kAlignBlocks = 6;   // of the output
constexpr int kAlignLength = 7;   // of its places
constexpr int kByAlignBlock = 2;  // places of a block

}  // namespace rlk::simt
