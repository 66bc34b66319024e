// The record as a vector of four numbers, updated by one selection.
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

void add_known_error(Builder& b, const TokenConstants& c, int64_t kind, int64_t row, int64_t value) {
  const Operand candidate = b.scratch(kAclInt64, {4});
  b.fill_with_tag(shifted(candidate, 0, 1));
  b.fill(shifted(candidate, 1, 1), kind);
  b.fill(shifted(candidate, 2, 1), row);
  b.fill(shifted(candidate, 3, 1), value);
  merge_record(b, c.i0, candidate, Operand::absent());
}

}  // namespace rlk::ascend
