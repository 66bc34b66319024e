// attention: what is recorded of a part (heads.hpp), by attend() or attend_backward().
//
// A part has all keys that its queries see, so that no softmax is rescaled, and the query heads of a key head are rows
// of one matrix: products are of [sequences key_heads, group queries, D] and [sequences key_heads, D, keys], statistics
// in the type in which the formula counts. Hidden scores are -inf by a selection, whatever they were. Keys may be of
// several sets, which are looked at in their own matrices and share the statistics: of samples with keys of their own
// (HeadPart::samples), [sequences key_heads samples, group queries, D] is the same queries in the same order.
#pragma once

#include "heads.hpp"
#include "rows.hpp"

#include <optional>
#include <vector>

#include <rlk/formula/cross_entropy.hpp>

namespace rlk::composed {

template <class D>
struct Heads {
  D d;
  ScoreTerms terms;
  HeadPart part;
  int64_t group, offset;  // HeadPart::of_queries, see_keys
  bool is_exact;          // long_product
  View key_mask = {};     // [sequences, keys] of the whole call, or [sequences, samples, keys]

  int64_t matrices() const { return part.sequences * part.heads * part.samples; }
  Value matrices_of_queries(Value x) const {
    return reshaped(x, {matrices(), group * part.queries, dims_of(x).back()});
  }
  Value matrices_of_keys(Value x) const { return reshaped(x, {matrices(), part.keys, dims_of(x).back()}); }
  Value matrices_of_scores(Value x) const { return reshaped(x, {matrices(), group * part.queries, part.keys}); }
  Value keys_of_matrices(Value x) const { return reshaped(x, of_heads(part.heads, {part.keys, dims_of(x).back()})); }
  // [sequences, heads, samples] and more; one sample is no dimension.
  Dims of_heads(int64_t heads, std::initializer_list<int64_t> more) const {
    Dims dims{part.sequences, heads};
    if (part.samples != 1) dims.push_back(part.samples);
    dims.insert(dims.end(), more);
    return dims;
  }
  // What is one for each query, beside its scores.
  Value beside_scores(Value x) const { return reshaped(x, of_heads(part.heads, {group, part.queries, 1})); }
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
  // Of [sequences, keys], or with samples: which are no padding.
  Mask kept_keys() const {
    Recorder& recorder = *d.recorder;
    if (!key_mask.is_present()) return {&recorder, recorder.number(1, sdk::Dtype::boolean)};
    // Of the whole mask, as numbers: not every vendor copies parts of bytes.
    const Mask kept{&recorder, recorder.cast(recorder.input(key_mask), sdk::Dtype::boolean)};
    Value number_of = IfThenElse(kept, number(d, 1), Zero(d));
    const size_t last = key_mask.dims.size() - 1;
    number_of = part_of(part_of(number_of, 0, part.sequence, part.sequences), last, part.key, part.keys);
    if (last == 2) number_of = part_of(number_of, 1, part.sample, part.samples);
    return Ne(number_of, Zero(d));
  }
  // Of scores, or what broadcasts to it.
  Mask visible() const {
    Mask kept = kept_keys();
    if (key_mask.is_present()) kept = reshaped(kept, of_heads(1, {1, 1, part.keys}));
    return And(band(), kept);
  }
  // Keys, values or their gradients, zeros where they are padding.
  Value without_padding(Value x) const {
    Mask kept = kept_keys();
    if (key_mask.is_present()) kept = reshaped(kept, of_heads(1, {part.keys, 1}));
    return IfThenElseZero(kept, x);
  }
  // [sequences, heads, samples, group, queries, keys], and the slope of the cap.
  Capped<Value> scores(Value q, Value k) const {
    const Value x = Mul(product(q, transposed(k)), number(d, terms.scale));
    const Value all = reshaped(x, of_heads(part.heads, {group, part.queries, part.keys}));
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

// Keys of a part and their values, [sequences, heads, samples, keys, D].
template <class D>
struct KeySet {
  Heads<D> heads;
  Value k, v;
};
// All that the same queries see; none without a key.
template <class D>
using KeySets = std::vector<KeySet<D>>;
template <class D>
KeySets<D> one_set(const Heads<D>& heads, Value k, Value v) {
  return heads.part.keys > 0 ? KeySets<D>{{heads, k, v}} : KeySets<D>{};
}

// Of each set's the sum.
inline void add_to(std::optional<Value>& sum, Value x) {
  sum = sum ? Add(*sum, x) : x;
}
// What is one for each query, as [..., queries, 1] of these.
inline Value beside_queries(Value queries, Value x) {
  Dims dims = dims_of(queries);
  dims.back() = dims_of(x).back();
  return reshaped(x, dims);
}

struct AttentionViews {
  View q, out, lse;  // HeadPart::of_queries
};

template <class D>
void attend(D d, const KeySets<D>& sets, const AttentionViews& views) {
  const Writer out{*d.recorder};
  const Value nothing = Neg(Inf(d));
  if (sets.empty()) {
    out(views.out, Zero(d));
    out(of_row(views.lse), nothing);
    return;
  }
  const Value q = Reader<D>{*d.recorder}(views.q);
  std::vector<Value> scores;
  std::optional<Value> largest, sum, mixed;
  for (const KeySet<D>& set : sets) {
    const Heads<D>& heads = set.heads;
    const Value keys = heads.matrices_of_keys(heads.without_padding(set.k));
    scores.push_back(IfThenElse(heads.visible(), heads.scores(heads.matrices_of_queries(q), keys).value, nothing));
    const Value own = beside_queries(q, row_largest(scores.back()));
    largest = largest ? IfThenElse(Lt(*largest, own), own, *largest) : own;
  }
  const Value base = IfThenElse(Eq(*largest, nothing), Zero(d), *largest);  // of a query without a key
  for (size_t i = 0; i < sets.size(); ++i) {
    const Heads<D>& heads = sets[i].heads;
    const Value weights = exp(d, Sub(scores[i], heads.beside_scores(base)));
    const Value values = heads.matrices_of_keys(heads.without_padding(sets[i].v));
    add_to(sum, beside_queries(q, row_sum(weights)));
    add_to(mixed, beside_queries(q, long_product(heads.matrices_of_scores(weights), values, heads.is_exact)));
  }
  out(views.out, IfThenZeroElse(Eq(*sum, Zero(d)), Div(*mixed, *sum)));
  out(of_row(views.lse), Add(base, log(d, *sum)));
}

struct AttentionGradientViews {
  View q, out, lse, grad_out, grad_lse, grad_q;  // HeadPart::of_queries
};
struct KeyGradients {
  Value grad_k, grad_v;  // as a set's keys, of these queries
};

// Writes grad_q; answers the others of each set.
template <class D>
std::vector<KeyGradients> attend_backward(D d, const KeySets<D>& sets, const AttentionGradientViews& views) {
  const Reader<D> in{*d.recorder};
  const Writer out{*d.recorder};
  if (sets.empty()) {
    out(views.grad_q, Zero(d));
    return {};
  }
  // A query without a key meets nothing.
  const Value lse = in(of_row(views.lse));
  const Mask is_blind = Eq(lse, Neg(Inf(d)));
  const Value q = IfThenZeroElse(is_blind, in(views.q));
  const Value grad_out = IfThenZeroElse(is_blind, in(views.grad_out));
  const Value along = row_sum(Mul(grad_out, IfThenZeroElse(is_blind, in(views.out))));
  const Value shared = IfThenZeroElse(is_blind, Sub(in(of_row(or_number(views.grad_lse, 0))), along));
  const Value scale = number(d, sets.front().heads.terms.scale);

  std::vector<KeyGradients> grads;
  std::optional<Value> grad_q;
  for (const KeySet<D>& set : sets) {
    const Heads<D>& heads = set.heads;
    const Value queries = heads.matrices_of_queries(q), gradients = heads.matrices_of_queries(grad_out);
    const Value keys = heads.matrices_of_keys(heads.without_padding(set.k));
    const Value values = heads.matrices_of_keys(heads.without_padding(set.v));
    const Capped<Value> capped = heads.scores(queries, keys);
    const Value scores = IfThenElse(heads.visible(), capped.value, Neg(Inf(d)));
    // At most 1, however lse was rounded.
    const Value p = exp(d, at_most(d, 0, Sub(scores, heads.beside_scores(IfThenZeroElse(is_blind, lse)))));
    const Value of_weights = reshaped(product(gradients, transposed(values)), dims_of(scores));
    const Value of_scores =
        heads.matrices_of_scores(Mul(Mul(p, Add(of_weights, heads.beside_scores(shared))), capped.slope));
    add_to(grad_q, beside_queries(q, long_product(of_scores, keys, heads.is_exact)));
    const Value grad_k = heads.keys_of_matrices(long_product(transposed(of_scores), queries, heads.is_exact));
    const Value grad_v =
        heads.keys_of_matrices(long_product(transposed(heads.matrices_of_scores(p)), gradients, heads.is_exact));
    grads.push_back({heads.without_padding(Mul(grad_k, scale)), heads.without_padding(grad_v)});
  }
  out(views.grad_q, Mul(*grad_q, scale));
  return grads;
}

}  // namespace rlk::composed
