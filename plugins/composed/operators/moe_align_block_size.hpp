// Tokens in the order of their experts, each expert's in whole blocks. Experts are counted in fp32, which has all
// numbers to 2^24; places are those of an order, which is of integers. An expert's padding is candidates behind the
// tokens, of which those that it needs are put in order with its tokens, and the rest behind everything.
#include "../places.hpp"

namespace rlk::composed {

template <class Call>
sdk::Refusal refuse_blocks(const Call& call) {
  constexpr int64_t kMost = 1 << 24, kMostCompared = 1 << 26;
  const int64_t places = call.N * call.K, experts = call.params.experts, block = call.params.block_size;
  if (experts > kMost || block > kMost || experts * block > kMost || places + experts * block > kMost)
    return sdk::Support::no("SIZE", "more than 16777216 places with padding: they are counted in fp32");
  const int64_t most_blocks = (places + experts * (block - 1)) / block + 1;
  if (experts * std::max({places, experts, most_blocks}) <= kMostCompared) return std::nullopt;
  return sdk::Support::no("SIZE", "every place is compared with every expert: 67108864 comparisons at most");
}

template <class Call>
void record_blocks(Recorder& recorder, const Call& call) {
  const Recording<float> d{&recorder};
  const int64_t places = call.N * call.K, experts = call.params.experts, block = call.params.block_size;
  const int64_t room = places + experts * (block - 1), blocks = (room + block - 1) / block;
  const auto whole = [&](int64_t x) {
    return Value{&recorder, recorder.number(static_cast<double>(x), sdk::Dtype::i32)};
  };
  const auto out = [&](const View& view, Value value) { recorder.output(view, value.node); };
  if (places == 0) {
    out(of_columns(call.sorted_token_ids), whole(0));
    out(of_columns(call.expert_ids), whole(-1));
    out(of_columns(call.num_tokens_post_pad), whole(0));
    return;
  }
  const Value id = reshaped(Value{&recorder, recorder.input(call.topk_ids)}, {places, 1});
  const Mask is_there = And(Ge(id, detail::beside(id, 0)), Lt(id, detail::beside(id, static_cast<double>(experts))));
  const Value one = number(d, 1), nowhere = number(d, static_cast<double>(experts));
  Mask is_known = is_there, is_wrong = Not(is_there);
  if (can_be(id, call.params.ignore_index)) {
    const Mask counts = Ne(id, id_number(id, call.params.ignore_index));
    is_known = And(is_there, counts);
    is_wrong = AndNot(is_there, counts);
  }
  recorder.report(is_wrong.node, is_wrong.node, id.node);

  const Value expert = positions_of(d, {experts, 1}), size = number(d, static_cast<double>(block));
  const Value safe{&recorder, recorder.select(is_known.node, index_of(id).node, recorder.number(0, sdk::Dtype::i32))};
  Value keys = reshaped(IfThenElse(is_known, rows_of(expert, safe), nowhere), {1, places});
  // Of each expert how many places, blocks, and places to fill those up.
  const Value count = row_sum(ones_of(d, Eq(expert, keys)));
  const Value starts = Mul(positions_of(d, {(places + block - 1) / block}), size);
  const Value filled = Mul(row_sum(ones_of(d, Lt(starts, count))), size);
  if (block > 1) {
    const Mask is_needed = Lt(positions_of(d, {block - 1}), Sub(filled, count));
    const Value padding = IfThenElse(is_needed, expert, nowhere);
    keys = joined(keys, reshaped(padding, {1, experts * (block - 1)}));
  }
  const Value order = first_in_order(keys, room), sorted = at_column(keys, order);
  const Mask is_free = Ge(sorted, nowhere), is_padding = Or(is_free, Ge(order, whole(places)));
  out(of_columns(call.sorted_token_ids), IfThenElse(is_padding, whole(places), order));
  // The first free place, if any.
  const Value free = ones_of(d, is_free);
  out(of_columns(call.num_tokens_post_pad),
      IfThenElse(Ge(row_largest(free), one), place_of_largest(free), whole(room)));

  // A block is of the first expert whose blocks end behind its start.
  const Value up_to = IfThenElseZero(Le(positions_of(d, {experts}), expert), reshaped(filled, {1, experts}));
  const Value ends = reshaped(row_sum(up_to), {1, experts}), start = Mul(positions_of(d, {blocks, 1}), size);
  const Value of_block = place_of_largest(ones_of(d, Lt(start, ends)));
  const Mask is_used = Lt(start, column_of(ends, experts - 1));
  out(of_row(call.expert_ids), IfThenElse(is_used, of_block, whole(-1)));
}

}  // namespace rlk::composed

RLK_COMPOSED_PLACES_WHOLE(MoeAlignBlockSize, 0, refuse_blocks(call), record_blocks(recorder, call);)
