// Keys and values of tokens into the slots of a cache. No vendor says which of two rows for one place stays, and none
// has a place for a token without a slot. So tokens are put in the order of their slots, where the last of a slot is in
// front of another one; every other token writes what the token of the highest slot writes, to that slot: the same bits
// twice.
#include "../places.hpp"

namespace rlk::composed {

template <class Call>
sdk::Refusal refuse_cache(const Call& call) {
  constexpr int64_t kMost = 1 << 24;  // both are counted in fp32
  if (call.params.layout != decltype(call.params.layout)::token_major)
    return sdk::Support::no("LAYOUT", "slots of a head_major cache are no rows");
  if (call.N > kMost || call.B * call.BS > kMost)
    return sdk::Support::no("SIZE", "more than 16777216 tokens or slots in one call");
  for (const View* view : {&call.key, &call.value, &call.out_key_cache, &call.out_value_cache}) {
    if (!is_dense(view->dims, view->strides))
      return sdk::Support::no("STRIDES", "keys, values and caches with gaps are not rows of one table",
                              RLK_SUPPORT_IF_CONTIGUOUS);
  }
  return std::nullopt;
}

}  // namespace rlk::composed

RLK_COMPOSED_PLACES_DEFINE(ReshapeAndCache, refuse_cache(call), {
  const int64_t tokens = call.N, slots = call.B * call.BS, columns = call.H * call.D;
  const auto cache = [&](const View& from) { return as_rows(from, slots, columns); };
  if (tokens == 0 || columns == 0) {
    recorder.output(cache(call.out_key_cache), recorder.input(cache(call.key_cache)));
    recorder.output(cache(call.out_value_cache), recorder.input(cache(call.value_cache)));
    return;
  }
  const Recording<float> d{&recorder};
  const Value slot{&recorder, recorder.input(of_row(call.slot_mapping))}, nothing = number(d, -1);
  const Mask is_known =
      And(Ge(slot, detail::beside(slot, 0)), Lt(slot, detail::beside(slot, static_cast<double>(slots))));
  const Mask is_wrong = AndNot(is_known, Ne(slot, detail::beside(slot, -1)));
  recorder.report(is_wrong.node, is_wrong.node, slot.node);
  const Value safe{&recorder, recorder.select(is_known.node, index_of(slot).node, recorder.number(0, sdk::Dtype::i32))};

  // As one row.
  const auto counted = [&](const Dims& dims) { return Value{&recorder, recorder.positions(dims, sdk::Dtype::f32)}; };
  const Dims row = {1, tokens}, column = {tokens, 1};
  const Value key = reshaped(IfThenElse(is_known, rows_of(counted({slots, 1}), safe), nothing), row);
  const Value order = first_in_order(key, tokens), sorted = at_column(key, order), place = counted(row);
  const Mask is_end = Eq(place, number(d, static_cast<double>(tokens - 1)));
  const Mask is_last = And(Ge(sorted, Zero(d)), Or(is_end, Ne(sorted, shifted(sorted, 1))));
  // Of those in order the one that is written: a rising row is its own order.
  const Value own = first_in_order(place, tokens);
  const Value end{&recorder, recorder.number(static_cast<double>(tokens - 1), sdk::Dtype::i32)};
  const Value token = at_column(order, IfThenElse(is_last, own, end));
  const Value to = reshaped(at_column(reshaped(safe, row), token), column), from = reshaped(token, column);
  const Value highest = row_largest(key);
  const Mask has_any = Ge(highest, Zero(d));
  const auto put = [&](const View& given, const View& before, const View& after) {
    const Value table{&recorder, recorder.input(cache(before))};
    const Value taken = rows_of({&recorder, recorder.input(as_rows(given, call.M, columns))}, from);
    // Where no token has a slot they write what is there.
    const Value written = IfThenElse(has_any, taken, rows_of(table, to));
    recorder.output(cache(after), recorder.put_rows(table.node, to.node, written.node));
  };
  put(call.key, call.key_cache, call.out_key_cache);
  put(call.value, call.value_cache, call.out_value_cache);
})
