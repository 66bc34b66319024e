// Slots as keys of a stable sort.
#include "slots.hpp"

#include "report.hpp"

namespace rlk::ascend {

SlotWrites add_slot_writes(Builder& b, const SlotConstants& c, const Operand& given, int64_t slots,
                           std::optional<int64_t> skipped) {
  const Runtime& r = runtime();
  const int64_t n = given.dims[0];
  Operand ids = given;
  if (ids.dtype != kAclInt64) {
    ids = b.scratch(kAclInt64, {n});
    b.cast(given, ids);
  }
  const auto mask = [&] { return b.scratch(kAclBool, {n}); };
  const auto compare = [&](const ScalarOperator& op, int64_t with) {
    Operand out = mask();
    b.with_scalar(op, ids, b.program().scalar(with), out);
    return out;
  };
  const auto both = [&](const Operand& x, const Operand& y) {
    Operand out = mask();
    b.binary(r.LogicalAnd, x, y, out);
    return out;
  };
  SlotWrites writes;
  Operand is_known = both(compare(r.GeScalar, 0), compare(r.LtScalar, slots));
  writes.wrong = mask();
  b.equal(is_known, c.no, writes.wrong);
  if (skipped) {
    const Operand counts = compare(r.NeScalar, *skipped);
    writes.wrong = both(writes.wrong, counts);
    is_known = both(is_known, counts);
  }
  report(b, {{writes.wrong, writes.wrong, ids}, 0, {}});

  const Operand safe = b.scratch(kAclInt64, {n}), narrow = b.scratch(kAclInt32, {n});
  const Operand numbers = b.scratch(kAclFloat, {n}), keys = b.scratch(kAclFloat, {n});
  b.where(is_known, ids, c.no_slot, safe);
  b.cast(safe, narrow);
  b.cast(narrow, numbers);
  b.where(is_known, numbers, c.minus_one, keys);
  writes.slot_key = b.scratch(kAclFloat, {n});
  writes.token = b.scratch(kAclInt64, {n});
  b.sort(keys, 0, writes.slot_key, writes.token);

  // The last of a slot is before another slot, or the last of all.
  const Operand is_last = mask(), is_slot = mask();
  b.fill_bytes(is_last, 1);
  if (n > 1) {
    b.binary(r.NeTensor, shifted(writes.slot_key, 0, n - 1), shifted(writes.slot_key, 1, n - 1),
             shifted(is_last, 0, n - 1));
  }
  b.with_scalar(r.GeScalar, writes.slot_key, b.program().scalar(0.0F), is_slot);
  const Operand places = b.scratch(kAclInt64, {n});
  b.arange(int64_t{0}, n, int64_t{1}, places);
  writes.place = b.scratch(kAclInt64, {n});
  b.where(both(is_last, is_slot), places, shifted(places, n - 1, 1), writes.place);
  const Operand written = b.scratch(kAclInt64, {n});
  b.index_select(writes.token, 0, writes.place, written);
  writes.slot = b.scratch(kAclInt64, {n});
  b.index_select(safe, 0, written, writes.slot);
  writes.has_any = b.scratch(kAclBool, {1, 1});
  b.binary(r.LeTensor, c.zero, shifted(writes.slot_key, n - 1, 1), reshaped(writes.has_any, {1}));
  return writes;
}

std::string missing_for_slots() {
  const Runtime& r = runtime();
  const std::string names =
      missing(r.Sort, r.InplaceIndexCopy, r.IndexSelect, r.SWhere, r.Cast, r.GeScalar, r.LtScalar, r.NeScalar,
              r.EqTensor, r.NeTensor, r.LeTensor, r.LogicalAnd, r.Arange, r.InplaceFillScalar);
  return names.empty() && !reports() ? report_functions() : names;
}

}  // namespace rlk::ascend
