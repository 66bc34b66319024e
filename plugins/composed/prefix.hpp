// prefix: samples that share the keys of a prefix and have keys of their own, as two sets of keys (attention.hpp). To
// the prefix the queries of all samples of a part are rows of one matrix, so that it is read once for them.
#pragma once

#include "attention.hpp"

namespace rlk::composed {

// Of a tensor with samples behind its sequences those of a part, behind its heads: `cut` cuts the tensor of one sample.
// One sample is no dimension.
template <class Cut>
View of_samples(const HeadPart& part, const View& tensor, const Cut& cut) {
  if (!tensor.is_present()) return tensor;
  View one = narrowed(tensor, 1, part.sample, 1);
  const int64_t stride = one.strides[1];
  one.dims.erase(one.dims.begin() + 1);
  one.strides.erase(one.strides.begin() + 1);
  one = cut(one);
  if (part.samples == 1) return one;
  one.dims.insert(one.dims.begin() + 2, part.samples);
  one.strides.insert(one.strides.begin() + 2, stride);
  return one;
}

// A call of prefix_shared_attention or its gradient; it outlives this.
template <class Op>
struct SharedPrefix {
  const Arguments<Op>& call;
  // Groups are its sequences.
  const EqualSequences batch{0, call.B, 0, call.Sq, 0, call.Sp + call.Sk, call.G};
  const ScoreTerms terms = score_terms(call.params, call.D);
  const int64_t heads = call.Hkv, group = call.Hq / call.Hkv;
  const int64_t offset = offset_of(call, batch);
  const bool is_f64 = any_f64<Op>(call);

  // What a part sees of the prefix, which has no samples, and of each sample's own keys.
  HeadPart of_prefix(HeadPart part) const {
    part.sample = 0, part.samples = 1;
    see_keys(part, terms, offset, call.Sp);
    return part;
  }
  HeadPart of_own(HeadPart part) const {
    see_keys(part, terms, offset - call.Sp, call.Sk);
    return part;
  }
  // [groups, heads, samples, group, queries, D] and [groups, heads, samples, keys, D].
  View queries(const HeadPart& part, const View& tensor) const {
    return of_samples(part, tensor, [&](const View& one) { return part.of_queries(one, group); });
  }
  static View own_keys(const HeadPart& part, const View& tensor) {
    return of_samples(part, tensor, [&](const View& one) { return part.of_keys(one); });
  }
  template <class D>
  KeySets<D> sets(D d, const HeadPart& part) const {
    KeySets<D> sets;
    const HeadPart prefix = of_prefix(part), own = of_own(part);
    const bool exact = is_exact(call.q);
    if (prefix.keys > 0) {
      const Heads<D> all{d, terms, prefix, part.samples * group, offset, exact, call.prefix_mask};
      sets.push_back({all, all.read(prefix.of_keys(call.prefix_k)), all.read(prefix.of_keys(call.prefix_v))});
    }
    if (own.keys > 0) {
      const Heads<D> each{d, terms, own, group, offset - call.Sp, exact, call.key_mask};
      sets.push_back({each, each.read(own_keys(own, call.k)), each.read(own_keys(own, call.v))});
    }
    return sets;
  }
};

}  // namespace rlk::composed
