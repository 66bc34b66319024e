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

RLK_COMPOSED_PLACES_WHOLE(ReshapeAndCache, RLK_NUMERICS_BATCH_INVARIANT, refuse_cache(call), {
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
  const Dims row = {1, tokens};
  const Value key = reshaped(IfThenElse(is_known, rows_of(counted({slots, 1}), safe), nothing), row);
  const Value order = first_in_order(key, tokens), sorted = at_column(key, order);
  const Mask is_end = Eq(counted(row), number(d, static_cast<double>(tokens - 1)));
  const Mask is_last = And(Ge(sorted, Zero(d)), Or(is_end, Ne(sorted, shifted(sorted, 1))));
  // Of those in order the one that is written.
  const Value token = IfThenElse(is_last, order, column_of(order, tokens - 1));
  const Value to = at_column(reshaped(safe, row), token), highest = row_largest(key);
  const Mask has_any = Ge(highest, Zero(d));
  const int64_t most = std::max<int64_t>(
      1, recorder.block_bytes() / (columns * sdk::bytes_of(call.key.dtype)));  // of them a part has two
  const auto put = [&](const View& given, const View& before, const View& after) {
    int table = recorder.input(cache(before));
    // Where no token has a slot they write what is in the first.
    const Value there = rows_of({&recorder, table}, reshaped(column_of(to, 0), {1, 1}));
    for (int64_t first = 0; first < tokens; first += most) {
      const int64_t count = std::min(most, tokens - first);
      const auto part = [&](Value places) {
        return reshaped(Value{&recorder, recorder.columns(places.node, first, count)}, {count, 1});
      };
      const Value taken = rows_of({&recorder, recorder.table(as_rows(given, call.M, columns))}, part(token));
      table = recorder.put_rows(table, part(to).node, IfThenElse(has_any, taken, there).node);
    }
    recorder.output(cache(after), table);
  };
  put(call.key, call.key_cache, call.out_key_cache);
  put(call.value, call.value_cache, call.out_value_cache);
})
