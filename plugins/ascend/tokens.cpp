// Ids, masks and row indices as steps of a program, and the first wrong row as the highest score.
#include "tokens.hpp"

namespace rlk::ascend {
namespace {

// DeviceErrorRecord as a vector of four numbers.
Operand record_operand() {
  Operand record;
  record.place = Place::record;
  record.dtype = kAclInt64;
  record.dims = {4};
  record.strides = {1};
  return record;
}

}  // namespace

void merge_record(Builder& b, const Operand& zero, const Operand& candidate, const Operand& wanted) {
  b.program().writes_record = true;
  const Operand record = record_operand();
  Operand take = b.scratch(kAclBool, {1});
  b.equal(shifted(record, 0, 1), zero, take);
  if (wanted.present) {
    const Operand both = b.scratch(kAclBool, {1});
    b.multiply(take, wanted, both);
    take = both;
  }
  b.where(take, candidate, record, record);
}

Tokens add_tokens(Builder& b, const TokenConstants& c, const LogpOptions& options, int64_t vocab, int64_t logits_rows,
                  const Operand& ids, const Operand& mask, const Operand& row_indices) {
  const int64_t n = ids.dims[0];
  const Dims shape = {n};
  Tokens tokens;
  tokens.count = n;
  tokens.id = ids;
  if (ids.dtype != kAclInt64) b.cast(ids, tokens.id = b.scratch(kAclInt64, shape));

  // A number is in a range when clamping to it changes nothing.
  const Operand clamped = b.scratch(kAclInt64, shape);
  b.clamp(tokens.id, options.vocab_start, options.vocab_start + vocab - 1, clamped);
  tokens.owned = b.scratch(kAclBool, shape);
  b.equal(tokens.id, clamped, tokens.owned);
  tokens.column = clamped;
  tokens.id_ok = tokens.owned;
  if (options.sharded) {
    tokens.column = b.scratch(kAclInt64, shape);
    b.add_scalar(clamped, -options.vocab_start, tokens.column);
    b.clamp(tokens.id, 0, options.global_vocab - 1, clamped);
    tokens.id_ok = b.scratch(kAclBool, shape);
    b.equal(tokens.id, clamped, tokens.id_ok);
  }

  tokens.row = tokens.row_ok = Operand::absent();
  if (row_indices.present) {
    tokens.row = b.scratch(kAclInt64, shape);
    tokens.row_ok = b.scratch(kAclBool, shape);
    if (logits_rows > 0) {
      b.clamp(row_indices, 0, logits_rows - 1, tokens.row);
      b.equal(row_indices, tokens.row, tokens.row_ok);
    } else {
      b.fill_bytes(tokens.row, 0);
      b.fill_bytes(tokens.row_ok, 0);
    }
  }

  tokens.ignored = b.scratch(kAclBool, shape);
  b.equal(tokens.id, c.ignore_index, tokens.ignored);
  if (mask.present) {
    const Operand masked = b.scratch(kAclBool, shape);
    b.equal(mask, c.u0, masked);
    b.where(tokens.ignored, tokens.ignored, masked, tokens.ignored);
  }
  return tokens;
}

void add_error_record(Builder& b, const TokenConstants& c, const Tokens& tokens, const Operand& valid,
                      const Operand& row_valid, const Operand& row_value, const Operand* found) {
  const int64_t n = tokens.count;
  // The earlier the token the higher its score, so that the highest score is the first error; 0 is none.
  const Operand score = b.scratch(kAclFloat, {n});
  b.arange(static_cast<float>(n), 0.0F, -1.0F, score);
  b.where(valid, c.f0, score, score);
  b.where(tokens.ignored, c.f0, score, score);
  const Operand best = b.scratch(kAclFloat, {1});
  const Operand at = b.scratch(kAclInt32, {1});
  b.max(score, 0, true, best, at);

  const Operand kind = b.scratch(kAclInt64, {n});
  const Operand value = b.scratch(kAclInt64, {n});
  static_assert(RLK_DATA_ID_OUT_OF_RANGE == 1 && RLK_DATA_NO_FINITE_LOGIT == 2 && RLK_DATA_ROW_OUT_OF_RANGE == 3);
  if (row_valid.present) {
    b.where(row_valid, c.i2, c.i3, kind);
    b.where(tokens.id_ok, kind, c.i1, kind);
    b.where(row_valid, c.i0, row_value, value);
    b.where(tokens.id_ok, value, tokens.id, value);
  } else {
    b.where(tokens.id_ok, c.i2, c.i1, kind);
    b.where(tokens.id_ok, c.i0, tokens.id, value);
  }
  const Operand candidate = b.scratch(kAclInt64, {4});
  b.fill_with_tag(shifted(candidate, 0, 1));
  b.index_select(kind, 0, at, shifted(candidate, 1, 1));
  b.cast(at, shifted(candidate, 2, 1));
  b.index_select(value, 0, at, shifted(candidate, 3, 1));
  const Operand any = found != nullptr ? *found : b.scratch(kAclBool, {1});
  b.less(c.f0, best, any);
  merge_record(b, c.i0, candidate, any);
}

void add_known_error(Builder& b, const TokenConstants& c, int64_t kind, int64_t row, int64_t value) {
  const Operand candidate = b.scratch(kAclInt64, {4});
  b.fill_with_tag(shifted(candidate, 0, 1));
  b.fill(shifted(candidate, 1, 1), kind);
  b.fill(shifted(candidate, 2, 1), row);
  b.fill(shifted(candidate, 3, 1), value);
  merge_record(b, c.i0, candidate, Operand::absent());
}

}  // namespace rlk::ascend
