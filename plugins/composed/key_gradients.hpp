// key_gradients: where the gradients of keys and values go: to the outputs or, while queries come in parts, into sums
// in fp32 (fp64) in the order of the parts.
#pragma once

#include "attention.hpp"

#include <functional>

namespace rlk::composed {

class KeyGradientOutputs {
public:
  // What a part has of a tensor: [sequences, heads, samples, keys, D].
  using Cut = std::function<View(const HeadPart&, const View&)>;

  // k_length: keys of a sequence, or of a sample.
  KeyGradientOutputs(const View& grad_k, const View& grad_v, int64_t k_length, Cut of_keys)
      : outputs_{grad_k, grad_v}, k_length_(k_length), of_keys_(std::move(of_keys)) {}

  // Of all keys of a part's sequences, samples and heads.
  int64_t elements(HeadPart part) const {
    see_all(part);
    const View& output = outputs_[0].is_present() ? outputs_[0] : outputs_[1];
    return output.is_present() ? element_count(of_keys_(part, output).dims) : 0;
  }
  // From here on there are sums of this type, which have place for so many elements.
  void add_up(const View& sum_of_k, const View& sum_of_v) {
    sums_[0] = sum_of_k, sums_[1] = sum_of_v;
    adds_up_ = true;
  }

  // Zeros before what is added up, or of keys that there are no queries for.
  void clear(Parts& parts, HeadPart part) const {
    see_all(part);
    parts.add([&](Recorder& recorder) { each([&](int i) { zero(recorder, place_of(part, i)); }); });
  }
  // Of the keys that no query of a part sees, where it is the only part of them.
  void clear_unseen(Recorder& recorder, const HeadPart& part) const {
    if (adds_up_) return;
    HeadPart before = part, after = part;
    before.key = 0, before.keys = part.key;
    after.key = part.key + part.keys, after.keys = k_length_ - after.key;
    for (const HeadPart& unseen : {before, after}) {
      if (unseen.keys > 0) each([&](int i) { zero(recorder, place_of(unseen, i)); });
    }
  }
  void put(Recorder& recorder, const HeadPart& part, const KeyGradients& grads) const {
    const Value values[2] = {grads.grad_k, grads.grad_v};
    each([&](int i) {
      const View place = place_of(part, i);
      if (adds_up_)
        recorder.output(place, Add({&recorder, recorder.input(place)}, values[i]).node);
      else
        composed::put(recorder, place, values[i]);
    });
  }
  // Behind the last part that adds.
  void finish(Parts& parts, HeadPart part) const {
    see_all(part);
    parts.add([&](Recorder& recorder) {
      each([&](int i) {
        composed::put(recorder, of_keys_(part, outputs_[i]), {&recorder, recorder.input(place_of(part, i))});
      });
    });
  }

private:
  void see_all(HeadPart& part) const { part.key = 0, part.keys = k_length_; }
  template <class Visit>
  void each(const Visit& visit) const {
    for (int i = 0; i < 2; ++i) {
      if (outputs_[i].is_present()) visit(i);
    }
  }
  // The keys of a part, in the sums of all keys or in an output.
  View place_of(const HeadPart& part, int i) const {
    if (!adds_up_) return of_keys_(part, outputs_[i]);
    HeadPart all = part;
    see_all(all);
    View sum = sums_[i];
    sum.dims = of_keys_(all, outputs_[i]).dims;
    sum.strides = dense_strides(sum.dims);
    return narrowed(sum, sum.dims.size() - 2, part.key, part.keys);
  }
  static void zero(Recorder& recorder, const View& place) { recorder.output(place, recorder.number(0, place.dtype)); }

  View outputs_[2], sums_[2];
  int64_t k_length_;
  Cut of_keys_;
  bool adds_up_ = false;
};

}  // namespace rlk::composed
