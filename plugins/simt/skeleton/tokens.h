// What the host passes to a kernel of tokens, the same for every operator (tokens.cuh).
#pragma once

#include "../args.h"
#include "map.h"

namespace rlk::simt {

constexpr int kTokenTensors = 16;  // arguments of an operator, in the order in which its file names them
constexpr int kTokenThreads = 128;
constexpr int64_t kTokenChunk = 2048;    // tokens of a sequence that a block takes
constexpr int kTokenPack = 4;            // tokens of a thread that are read at once
constexpr int kTokenTotalThreads = 256;  // of the one block that adds chunks
constexpr int kTokenRules = 1024;        // bytes of what a formula takes of a call
constexpr int kTokenBatch = 256;         // and of what it takes of the whole batch
constexpr int kTokenManyChunks = 8;      // of a sequence: a wave adds them then, else a thread

struct TokenTensor {
  void* data;               // nullptr: `value` everywhere, or an output that the caller left out
  int64_t sequence, token;  // strides in elements; one of a tensor without tokens is in `sequence`
  int64_t rows, columns;    // of an output
  double value;
  int32_t dtype;  // as MapTensor's
  int32_t is_output;
};

struct TokenArgs {
  int64_t sequences;
  int64_t length;          // of each dense sequence, or of all packed ones
  int64_t chunks;          // in numbers, of which some stand for none in the packed layout
  int64_t chunks_of_each;  // dense sequence
  const void* cu_seqlens;  // packed: [sequences + 1]
  int64_t cu_stride;
  double* sums;          // of each chunk, those of a pass
  unsigned char* own;    // what a formula keeps of each sequence
  unsigned char* batch;  // and of the batch
  int32_t* is_bad;       // packed: whether cu_seqlens are, from the first totals on
  int32_t cu_are_i64;
  int32_t is_checked;  // is_bad has been written
  int32_t is_last;     // of the passes
  int32_t reserved;
  DataErrorSink errors;
  TokenTensor tensor[kTokenTensors];
  alignas(16) unsigned char rules[kTokenRules];
};

}  // namespace rlk::simt
