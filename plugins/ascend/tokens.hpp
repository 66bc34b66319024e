// What logp and logp_backward agree on: which rows count, where their ids and logits rows are, and how the first data
// error reaches the stream's record. All of it on the device: the host never sees the ids.
#pragma once

#include "plan.hpp"

namespace rlk::ascend {

// The parameters that both operators have.
struct LogpOptions {
  float temperature, softcap;
  int64_t ignore_index, vocab_start, global_vocab;  // global_vocab is never 0 here
  bool sharded;
};

template <class Params>
LogpOptions logp_options(const Params& params, int64_t vocab) {
  LogpOptions options{};
  options.temperature = static_cast<float>(params.temperature);
  options.softcap = static_cast<float>(params.softcap);
  options.ignore_index = params.ignore_index;
  options.vocab_start = params.vocab_start;
  options.global_vocab = params.global_vocab > 0 ? params.global_vocab : vocab;
  options.sharded = options.global_vocab != vocab;
  return options;
}

// Positions are counted in fp32 where the first error is looked for.
constexpr int64_t kMaxTokens = int64_t{1} << 24;

struct TokenConstants {
  TokenConstants(Constants& constants, int64_t ignored_id)
      : ignore_index(constants.add(ignored_id)),
        i0(constants.add(int64_t{0})),
        i1(constants.add(int64_t{1})),
        i2(constants.add(int64_t{2})),
        i3(constants.add(int64_t{3})),
        u0(constants.add(uint8_t{0})),
        f0(constants.add(0.0F)),
        nan(constants.add(std::numeric_limits<float>::quiet_NaN())),
        minus_inf(constants.add(-std::numeric_limits<float>::infinity())),
        no(constants.add_bool(false)) {}
  Operand ignore_index, i0, i1, i2, i3, u0, f0, nan, minus_inf, no;
};

// Vectors of N, all dense.
struct Tokens {
  int64_t count = 0;
  Operand id;       // INT64
  Operand owned;    // BOOL: the id's column is in this tensor
  Operand column;   // INT64: the column, some valid one where it is not owned
  Operand id_ok;    // BOOL: the id is in the vocabulary
  Operand row;      // INT64: the logits row, some valid one where it is out of range; absent without row_indices
  Operand row_ok;   // BOOL: row_indices is in range; absent without row_indices
  Operand ignored;  // BOOL
};

// ids, mask and row_indices as the operator was given them (mask and row_indices may be absent).
Tokens add_tokens(Builder& b, const TokenConstants& c, const LogpOptions& options, int64_t vocab, int64_t logits_rows,
                  const Operand& ids, const Operand& mask, const Operand& row_indices);

// Finds the first token that is neither valid nor ignored and records it, unless the stream has a record already. Its
// kind is that of the first test it fails: id, row (where `row_valid` is present), no finite logit. `row_value` is the
// value of a row error. `found` (BOOL [1], optional) receives whether there was one.
void add_error_record(Builder& b, const TokenConstants& c, const Tokens& tokens, const Operand& valid,
                      const Operand& row_valid, const Operand& row_value, const Operand* found);

// The stream's record becomes `candidate`, an INT64 [4] of DeviceErrorRecord, where `wanted` (BOOL [1]; absent: always)
// and nothing is recorded yet. zero: INT64 [1].
void merge_record(Builder& b, const Operand& zero, const Operand& candidate, const Operand& wanted);

// Records an error that the host knows.
void add_known_error(Builder& b, const TokenConstants& c, int64_t kind, int64_t row, int64_t value);

// A vector's chunk as a column, [count, 1].
inline Operand column_of(const Operand& vector, int64_t first, int64_t count, bool loop) {
  Operand chunk = rows(vector, first, count, loop);
  chunk.dims = {count, 1};
  chunk.strides = {vector.strides[0], 1};
  return chunk;
}

}  // namespace rlk::ascend
