// attention: what is recorded of a part (heads.hpp), by attend() or attend_backward().
//
// A part has all keys that its queries see, so that no softmax is rescaled, and the query heads of a key head are rows
// of one matrix: products are of [sequences key_heads, group queries, D] and [sequences key_heads, D, keys], statistics
// in the type in which the formula counts. Hidden scores are -inf by a selection, whatever they were.
#pragma once

#include "heads.hpp"
#include "rows.hpp"

#include <rlk/formula/cross_entropy.hpp>

namespace rlk::composed {

template <class D>
struct Heads {
  D d;
  ScoreTerms terms;
  HeadPart part;
  int64_t group, offset;  // HeadPart::of_queries, see_keys
  bool is_exact;          // long_product
  View key_mask = {};     // [sequences, keys] of the whole call

  Value matrices_of_queries(Value x) const {
    return reshaped(x, {part.sequences * part.heads, group * part.queries, dims_of(x).back()});
  }
  Value matrices_of_keys(Value x) const {
    return reshaped(x, {part.sequences * part.heads, part.keys, dims_of(x).back()});
  }
  Value matrices_of_scores(Value x) const {
    return reshaped(x, {part.sequences * part.heads, group * part.queries, part.keys});
  }
  Value queries_of_matrices(Value x) const {
    return reshaped(x, {part.sequences, part.heads, group, part.queries, dims_of(x).back()});
  }
  Value keys_of_matrices(Value x) const {
    return reshaped(x, {part.sequences, part.heads, part.keys, dims_of(x).back()});
  }
  Value read(const View& view) const { return Reader<D>{*d.recorder}(view); }
  Value cast(Value x) const { return {x.recorder, x.recorder->cast(x.node, D::kDtype)}; }

  // Of [queries, keys]: which key stands in a query's window.
  Mask band() const {
    Recorder& recorder = *d.recorder;
    // The first key of the part, seen from its first query.
    const int64_t first = part.key - part.query - offset;
    const int64_t least = first - (part.queries - 1), most = first + part.keys - 1;
    Mask seen{&recorder, recorder.number(1, sdk::Dtype::boolean)};
    const auto counted = [&](const Dims& dims) {
      return Value{&recorder, recorder.cast(recorder.positions(dims, sdk::Dtype::f32), D::kDtype)};
    };
    if (most > terms.after)
      seen = Le(Sub(counted({part.keys}), counted({part.queries, 1})),
                number(d, static_cast<double>(terms.after - first)));
    if (least < -terms.before)
      seen = And(seen, Ge(Sub(counted({part.keys}), counted({part.queries, 1})),
                          number(d, static_cast<double>(-terms.before - first))));
    return seen;
  }
  // Of [sequences, keys]: which are no padding.
  Mask kept_keys() const {
    Recorder& recorder = *d.recorder;
    if (!key_mask.is_present()) return {&recorder, recorder.number(1, sdk::Dtype::boolean)};
    // Of the whole mask, as numbers: not every vendor copies parts of bytes.
    const Mask kept{&recorder, recorder.cast(recorder.input(key_mask), sdk::Dtype::boolean)};
    Value number_of = IfThenElse(kept, number(d, 1), Zero(d));
    number_of = part_of(part_of(number_of, 0, part.sequence, part.sequences), 1, part.key, part.keys);
    return Ne(number_of, Zero(d));
  }
  // [sequences, 1, 1, 1, keys] or what broadcasts to it.
  Mask visible() const {
    Mask kept = kept_keys();
    if (key_mask.is_present()) kept = reshaped(kept, {part.sequences, 1, 1, 1, part.keys});
    return And(band(), kept);
  }
  // Keys, values or their gradients, zeros where they are padding.
  Value without_padding(Value x) const {
    Mask kept = kept_keys();
    if (key_mask.is_present()) kept = reshaped(kept, {part.sequences, 1, part.keys, 1});
    return IfThenElseZero(kept, x);
  }
  // [sequences, heads, group, queries, keys], and the slope of the cap.
  Capped<Value> scores(Value q, Value k) const {
    const Value x = Mul(product(q, transposed(k)), number(d, terms.scale));
    const Value all = reshaped(x, {part.sequences, part.heads, group, part.queries, part.keys});
    if (terms.softcap > 0) return cap_of(d, all, terms.softcap);
    return {all, number(d, 1)};
  }
};

// A product of matrices whose inner size may be a sequence's. In fp32 it is made of blocks, which are added up behind:
// no vendor documents in which order it sums, and one after the other thousands of numbers of one sign lose digits.
// is_exact: of tensors that have all digits of the formula's type.
inline bool is_exact(const View& tensor) {
  return sdk::bits_of(tensor.dtype) > 16;
}
inline Value long_product(Value a, Value b, bool is_exact) {
  constexpr int64_t kBlock = 64;
  const int64_t batch = dims_of(a)[0], rows = dims_of(a)[1], size = dims_of(a)[2], columns = dims_of(b)[2];
  const int64_t blocks = size / kBlock, whole = blocks * kBlock;
  if (!is_exact || size <= kBlock) return product(a, b);
  const Value first = exchanged(reshaped(part_of(a, 2, 0, whole), {batch, rows, blocks, kBlock}), 1);
  const Value second = reshaped(part_of(b, 1, 0, whole), {batch, blocks, kBlock, columns});
  const Value sum = reshaped(sum_along(product(first, second), 1), {batch, rows, columns});
  if (whole == size) return sum;
  return Add(sum, product(part_of(a, 2, whole, size - whole), part_of(b, 1, whole, size - whole)));
}

struct AttentionViews {
  View q, out, lse;  // HeadPart::of_queries
};

// q: read; k and v: [sequences, heads, keys, D].
template <class D>
void attend(const Heads<D>& heads, const AttentionViews& views, Value k, Value v) {
  const D d = heads.d;
  const Writer out{*d.recorder};
  const Value nothing = Neg(Inf(d));
  if (heads.part.keys == 0) {
    out(views.out, Zero(d));
    out(of_row(views.lse), nothing);
    return;
  }
  const Value q = heads.matrices_of_queries(heads.read(views.q));
  const Value keys = heads.matrices_of_keys(heads.without_padding(k));
  const Value values = heads.matrices_of_keys(heads.without_padding(v));
  const Value scores = IfThenElse(heads.visible(), heads.scores(q, keys).value, nothing);
  const Value largest = row_largest(scores);
  const Value base = IfThenElse(Eq(largest, nothing), Zero(d), largest);  // of a query without a key
  const Value weights = exp(d, Sub(scores, base)), sum = row_sum(weights);
  const Value mixed =
      heads.queries_of_matrices(long_product(heads.matrices_of_scores(weights), values, heads.is_exact));
  out(views.out, IfThenZeroElse(Eq(sum, Zero(d)), Div(mixed, sum)));
  out(of_row(views.lse), Add(base, log(d, sum)));
}

struct AttentionGradientViews {
  View q, out, lse, grad_out, grad_lse, grad_q;  // HeadPart::of_queries
};
struct KeyGradients {
  Value grad_k, grad_v;  // [sequences, heads, keys, D], of these queries
};

// Writes grad_q.
template <class D>
KeyGradients attend_backward(const Heads<D>& heads, const AttentionGradientViews& views, Value k, Value v) {
  const D d = heads.d;
  // A query without a key meets nothing.
  const Value lse = heads.read(of_row(views.lse));
  const Mask is_blind = Eq(lse, Neg(Inf(d)));
  const Value q = IfThenZeroElse(is_blind, heads.read(views.q));
  const Value grad_out = IfThenZeroElse(is_blind, heads.read(views.grad_out));
  const Value along = row_sum(Mul(grad_out, IfThenZeroElse(is_blind, heads.read(views.out))));
  const Value shared = IfThenZeroElse(is_blind, Sub(heads.read(of_row(or_number(views.grad_lse, 0))), along));

  const Value queries = heads.matrices_of_queries(q), gradients = heads.matrices_of_queries(grad_out);
  const Value keys = heads.matrices_of_keys(heads.without_padding(k));
  const Value values = heads.matrices_of_keys(heads.without_padding(v));
  const Capped<Value> capped = heads.scores(queries, keys);
  const Value scores = IfThenElse(heads.visible(), capped.value, Neg(Inf(d)));
  // At most 1, however lse was rounded.
  const Value p = exp(d, at_most(d, 0, Sub(scores, IfThenZeroElse(is_blind, lse))));
  const Value of_weights = reshaped(product(gradients, transposed(values)), dims_of(scores));
  const Value of_scores = heads.matrices_of_scores(Mul(Mul(p, Add(of_weights, shared)), capped.slope));
  const Value scale = number(d, heads.terms.scale);
  Writer{*d.recorder}(views.grad_q,
                      Mul(heads.queries_of_matrices(long_product(of_scores, keys, heads.is_exact)), scale));
  const Value grad_k = heads.keys_of_matrices(long_product(transposed(of_scores), queries, heads.is_exact));
  const Value grad_v =
      heads.keys_of_matrices(long_product(transposed(heads.matrices_of_scores(p)), gradients, heads.is_exact));
  return {heads.without_padding(Mul(grad_k, scale)), heads.without_padding(grad_v)};
}

}  // namespace rlk::composed
