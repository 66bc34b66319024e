// Which logits row and column an output row of logp reads, and whether it may. Shared by logp and logp_backward.
#pragma once

#include "simt.cuh"

namespace rlk::simt {

struct Token {
  int32_t state;       // kRowZero: ignored; kRowNan: a data error, told by kind and value
  int32_t kind;        // of the data error
  int64_t value;       // of the data error
  int64_t logits_row;  // of every row that is not ignored; may be out of range in a data error
  int64_t target;      // column here, or -1 when another shard owns the id; active rows
};

__device__ __forceinline__ int64_t read_index(const void* indices, int64_t i, bool is_i64) {
  return is_i64 ? static_cast<const int64_t*>(indices)[i] : static_cast<const int32_t*>(indices)[i];
}

__device__ __forceinline__ bool is_ignored(const TokenRows& tokens, int64_t n, int64_t id) {
  return id == tokens.ignore_index || (tokens.mask != nullptr && tokens.mask[n] == 0);
}

__device__ __forceinline__ Token resolve_token(const TokenRows& tokens, int64_t n) {
  const int64_t id = read_index(tokens.ids, n, tokens.ids_are_i64 != 0);
  if (is_ignored(tokens, n, id)) return Token{kRowZero, 0, 0, 0, -1};
  const int64_t row = tokens.row_indices != nullptr ? tokens.row_indices[n] : n;
  if (id < 0 || id >= tokens.id_limit) return Token{kRowNan, kDataIdOutOfRange, id, row, -1};
  if (row < 0 || row >= tokens.logits_rows) return Token{kRowNan, kDataRowOutOfRange, row, row, -1};
  const int64_t column = id - tokens.vocab_start;
  return Token{kRowActive, 0, 0, row, column >= 0 && column < tokens.vocab ? column : -1};
}

// y = cap(x + bias), before the temperature.
template <class A>
__device__ __forceinline__ A cap_logit(A x, A bias, A softcap, A inverse_softcap) {
  const A sum = x + bias;
  return softcap > A(0) ? softcap * tanh(sum * inverse_softcap) : sum;
}

}  // namespace rlk::simt
