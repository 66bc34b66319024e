// The gradients of attention of samples that share a prefix. Those of the prefix are sums over its samples, those of a
// sample's own keys over its queries.
#include "../key_gradients.hpp"
#include "../prefix.hpp"

namespace rlk::composed {

class SharedPrefixGradients {
public:
  using Op = sdk::ops::PrefixSharedAttentionBackward;

  SharedPrefixGradients(Parts& parts, const Arguments<Op>& call)
      : parts_(parts),
        call_(call),
        shared_{call},
        prefix_(call.grad_prefix_k, call.grad_prefix_v, call.Sp,
                [](const HeadPart& part, const View& view) { return part.of_keys(view); }),
        own_(call.grad_k, call.grad_v, call.Sk, SharedPrefix<Op>::own_keys) {}

  void compose() {
    const sdk::Dtype dtype = shared_.is_f64 ? sdk::Dtype::f64 : sdk::Dtype::f32;
    parts_.need(Word::product, dtype);
    if (call_.B == 0) return;
    if (call_.G * call_.Sq == 0) return clear_all();
    const HeadPart size = largest_part(
        shared_.batch, shared_.heads, shared_.group, shared_.terms, shared_.offset, [&](const HeadPart& part) {
          const auto bytes =
              static_cast<uint64_t>(2 * (sums_of_prefix(part) + sums_of_own(part)) * sdk::bytes_of(dtype));
          return parts_.is_whole() || parts_.fits([&](Recorder& recorder) { record(recorder, part); }, bytes);
        });
    const int64_t of_prefix = sums_of_prefix(size), of_own = sums_of_own(size);
    const auto add_up = [&](KeyGradientOutputs& keys, int64_t elements) {
      if (elements == 0) return;
      const View of_k = parts_.keep(dtype, {elements}), of_v = parts_.keep(dtype, {elements});
      keys.add_up(of_k, of_v);
    };
    add_up(prefix_, of_prefix);
    add_up(own_, of_own);
    each_part(shared_.batch, shared_.heads, size, [&](const HeadPart& part) {
      const bool is_first = part.query == 0, is_last = part.query + part.queries == call_.Sq;
      if (of_prefix > 0 && is_first && part.sample == 0) prefix_.clear(parts_, of_all_samples(part));
      if (of_own > 0 && is_first) own_.clear(parts_, part);
      parts_.add([&](Recorder& recorder) { record(recorder, part); });
      if (of_own > 0 && is_last) own_.finish(parts_, part);
      if (of_prefix > 0 && is_last && part.sample + part.samples == call_.G)
        prefix_.finish(parts_, of_all_samples(part));
    });
  }

private:
  // Keys of the prefix are one for all samples.
  static HeadPart of_all_samples(HeadPart part) {
    part.sample = 0, part.samples = 1;
    return part;
  }
  // Elements of a sum while there are parts, else 0.
  int64_t sums_of_prefix(const HeadPart& part) const {
    return part.samples < call_.G || part.queries < call_.Sq ? prefix_.elements(of_all_samples(part)) : 0;
  }
  int64_t sums_of_own(const HeadPart& part) const { return part.queries < call_.Sq ? own_.elements(part) : 0; }

  void clear_all() {
    const HeadPart whole = whole_of(shared_.batch, shared_.heads);
    prefix_.clear(parts_, of_all_samples(whole));
    if (call_.G > 0) own_.clear(parts_, whole);
  }

  void record(Recorder& recorder, const HeadPart& part) const {
    const HeadPart prefix = shared_.of_prefix(part), own = shared_.of_own(part);
    prefix_.clear_unseen(recorder, prefix);
    own_.clear_unseen(recorder, own);
    record_rows(recorder, shared_.is_f64, [&](auto d) {
      const auto of_queries = [&](const View& view) { return shared_.queries(part, view); };
      const AttentionGradientViews views{of_queries(call_.q),        of_queries(call_.out),
                                         of_queries(call_.lse),      of_queries(call_.grad_out),
                                         of_queries(call_.grad_lse), of_queries(call_.grad_q)};
      const std::vector<KeyGradients> grads = attend_backward(d, shared_.sets(d, part), views);
      if (prefix.keys > 0) prefix_.put(recorder, prefix, grads.front());
      if (own.keys > 0) own_.put(recorder, own, grads.back());
    });
  }

  Parts& parts_;
  const Arguments<Op>& call_;
  const SharedPrefix<Op> shared_;
  KeyGradientOutputs prefix_, own_;
};

inline void compose_prefix_shared_backward(Parts& parts, const Arguments<SharedPrefixGradients::Op>& call) {
  SharedPrefixGradients(parts, call).compose();
}

}  // namespace rlk::composed

RLK_COMPOSED_PARTS(PrefixSharedAttentionBackward, refuse_scores(score_terms(call.params, call.D)), 0,
                   compose_prefix_shared_backward)
