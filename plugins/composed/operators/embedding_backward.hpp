// The gradient of a table from that of its rows. Tokens are put in the order of their ids; after k steps each has the
// sum of the last 2^k tokens of its id up to itself, with what that sum has lost, so that the last of an id has all. No
// vendor's sum by places has a documented order.
#include "../places.hpp"

namespace rlk::composed {

template <class Call>
sdk::Refusal refuse_embedding_backward(const Call& call) {
  constexpr int64_t kMost = 1 << 24;  // both are counted in fp32
  if (call.N <= kMost && call.V <= kMost) return std::nullopt;
  return sdk::Support::no("SIZE", "more than 16777216 tokens or rows in one call");
}

// Of tokens in the order of their ids.
template <class D>
class IdRuns {
public:
  // id: the place of each token's row, -1 of one that has none: [1, tokens], of which some before are the same.
  IdRuns(D d, Value id) : d_(d), id_(id), tokens_(dims_of(id).back()) {}

  // Whether the token `by` places before has the same id; before the first it is 0, with a number of 0.
  Mask is_same(int64_t by) const {
    const Mask same = Eq(id_, shifted(id_, -by));
    return reshaped(same, {tokens_, 1});
  }
  // The last one of its id.
  Mask is_last() const {
    const Value place{d_.recorder, d_.recorder->positions({1, tokens_}, sdk::Dtype::f32)};
    const Mask is_end = Eq(place, detail::beside(place, static_cast<double>(tokens_ - 1)));
    return reshaped(And(Ge(id_, detail::beside(id_, 0)), Or(is_end, Ne(id_, shifted(id_, 1)))), {tokens_, 1});
  }
  // Of rows, how many of the same id there are up to each: [tokens, 1].
  Value counts() const {
    const Value one = number(d_, 1), place = positions_of(d_, {tokens_, 1});
    Value counts = IfThenElse(Ge(place, Zero(d_)), one, Zero(d_));
    for (int64_t by = 1; by < tokens_; by *= 2) counts = Add(counts, IfThenElseZero(is_same(by), before(counts, by)));
    return counts;
  }
  Value sums(Value x) const {
    Value sum = x, lost = Zero(d_);
    for (int64_t by = 1; by < tokens_; by *= 2) {
      const Mask same = is_same(by);
      const Value other = IfThenElseZero(same, before(sum, by)), next = Add(sum, other), part = Sub(next, sum);
      const Value own = Add(Sub(sum, Sub(next, part)), Sub(other, part));
      lost = by == 1 ? own : Add(Add(lost, own), IfThenElseZero(same, before(lost, by)));
      sum = next;
    }
    // What is infinite or NaN has lost nothing.
    return tokens_ < 2 ? sum : IfThenElse(IsFinite(lost), Add(sum, lost), sum);
  }
  // The row of the last token.
  Value end(Value rows) const {
    const int64_t columns = dims_of(rows).back();
    const int row = rows.recorder->columns(flat(rows).node, (tokens_ - 1) * columns, columns);
    return reshaped(Value{rows.recorder, row}, {1, columns});
  }

private:
  static Value flat(Value rows) { return reshaped(rows, {1, dims_of(rows)[0] * dims_of(rows)[1]}); }
  static Value before(Value rows, int64_t by) {
    const Dims dims = dims_of(rows);
    return reshaped(shifted(flat(rows), -by * dims[1]), dims);
  }

  const D d_;
  const Value id_;
  const int64_t tokens_;
};

template <class D, class Call>
void record_embedding_backward(D d, const Call& call) {
  Recorder& recorder = *d.recorder;
  const Writer out{recorder};
  if (call.N == 0) return out(call.grad_weight, Zero(d));
  const Value id{&recorder, recorder.input(of_row(call.ids))};
  const Mask is_row = And(Ge(id, detail::beside(id, 0)), Lt(id, detail::beside(id, static_cast<double>(call.V))));
  Mask is_known = is_row, is_wrong = Not(is_row);
  if (call.params.padding_idx >= 0) {
    const Mask counts = Ne(id, detail::beside(id, static_cast<double>(call.params.padding_idx)));
    is_known = And(is_row, counts);
    is_wrong = AndNot(is_row, counts);
  }
  recorder.report(is_wrong.node, is_wrong.node, id.node);
  if (call.V == 0 || call.D == 0) return;
  const Value safe{&recorder, recorder.select(is_known.node, index_of(id).node, recorder.number(0, sdk::Dtype::i32))};
  const Recording<float> exact{&recorder};
  const Value numbers = rows_of(positions_of(exact, {call.V, 1}), safe);
  const Value key = reshaped(IfThenElse(is_known, numbers, number(exact, -1)), {1, call.N});
  const Value order = first_in_order(key, call.N), token = reshaped(order, {call.N, 1});
  const IdRuns<D> runs(d, Value{&recorder, recorder.cast(at_column(key, order).node, D::kDtype)});

  // Every other token writes what the last one of all writes, to its row: the same bits twice. It is 0 where no token
  // has a row, and all is NaN where one has a wrong id.
  const Mask is_last = runs.is_last(), has_any = Ge(row_largest(key), Zero(exact));
  const Mask is_spoiled = Gt(row_largest(reshaped(ones_of(exact, is_wrong), {1, call.N})), Zero(exact));
  const Value base = IfThenElseZero(is_spoiled, number(d, std::numeric_limits<double>::quiet_NaN()));
  const Mask is_shown = AndNot(is_spoiled, has_any);
  const Value row = reshaped(at_column(reshaped(safe, {1, call.N}), order), {call.N, 1});
  const Value to = IfThenElse(is_last, row, runs.end(row));
  const bool scales = call.params.scale_by_frequency == decltype(call.params.scale_by_frequency)::on;
  const Value counts = scales ? runs.counts() : Zero(d);

  // In blocks of columns, few enough that the program stays short. Of a block there are eight buffers at once.
  constexpr int64_t kBuffers = 4, kMostBlocks = 16;
  const int64_t bytes = kBuffers * call.N * sdk::bytes_of(D::kDtype);
  const int64_t fewest = (call.D + kMostBlocks - 1) / kMostBlocks;
  const int64_t most = std::max(fewest, recorder.block_bytes() / bytes);
  for (int64_t first = 0; first < call.D; first += most) {
    const int64_t count = std::min(most, call.D - first);
    const Value grad{&recorder, recorder.columns(recorder.input(call.grad_y), first, count)};
    const Value taken{&recorder, recorder.cast(rows_of(grad, token).node, D::kDtype)};
    Value sums = runs.sums(taken);
    if (scales) sums = Div(sums, counts);
    const Value written = IfThenElse(is_shown, IfThenElse(is_last, sums, runs.end(sums)), base);
    const View part = columns(call.grad_weight, first, count);
    const Value rows{&recorder, recorder.rounded(written.node, part.dtype)};
    const Value table{&recorder, recorder.rounded(base.node, part.dtype)};
    recorder.output(part, recorder.placed({call.V, count}, table.node, to.node, rows.node));
  }
}

}  // namespace rlk::composed

RLK_COMPOSED_PLACES_WHOLE(EmbeddingBackward, 0, refuse_embedding_backward(call), {
  record_rows(recorder, any_f64<Op>(call), [&](auto d) { record_embedding_backward(d, call); });
})
