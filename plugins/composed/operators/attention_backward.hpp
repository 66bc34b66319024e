// The gradients of attention.
#include "../key_gradients.hpp"

namespace rlk::composed {

using AttentionGradients = Arguments<sdk::ops::AttentionBackward>;

// One batch of a call.
class BatchGradients {
public:
  BatchGradients(Parts& parts, const AttentionGradients& call, const EqualSequences& batch)
      : parts_(parts),
        call_(call),
        batch_(batch),
        terms_(score_terms(call.params, call.D)),
        group_(call.Hq / call.Hkv),
        offset_(offset_of(call, batch)),
        is_f64_(any_f64<sdk::ops::AttentionBackward>(call)),
        keys_(call.grad_k, call.grad_v, batch.k_length,
              [&call, batch](const HeadPart& part, const View& view) {
                return part.of_keys(keys_of(call, batch, view));
              }),
        size_(whole_of(batch, call.Hkv)) {}

  // What the sums of a batch take while its queries come in parts, or 0.
  int64_t sum_elements() {
    if (batch_.q_length == 0) return 0;
    size_ = largest_part(batch_, call_.Hkv, group_, terms_, offset_, [&](const HeadPart& part) {
      const auto bytes = static_cast<uint64_t>(2 * sums_of(part) * sdk::bytes_of(dtype()));
      return parts_.is_whole() || parts_.fits([&](Recorder& recorder) { record(recorder, part); }, bytes);
    });
    return sums_of(size_);
  }
  sdk::Dtype dtype() const { return is_f64_ ? sdk::Dtype::f64 : sdk::Dtype::f32; }

  // sums: of grad_k and grad_v, as large as sum_elements.
  void compose(const View (&sums)[2]) {
    if (batch_.q_length == 0) return keys_.clear(parts_, size_);
    const bool in_parts = size_.queries < batch_.q_length;
    if (in_parts) keys_.add_up(sums[0], sums[1]);
    each_part(batch_, call_.Hkv, size_, [&](const HeadPart& part) {
      if (in_parts && part.query == 0) keys_.clear(parts_, part);
      parts_.add([&](Recorder& recorder) { record(recorder, part); });
      if (in_parts && part.query + part.queries == batch_.q_length) keys_.finish(parts_, part);
    });
  }

private:
  int64_t sums_of(const HeadPart& part) const { return part.queries < batch_.q_length ? keys_.elements(part) : 0; }

  void record(Recorder& recorder, HeadPart part) const {
    see_keys(part, terms_, offset_, batch_.k_length);
    const auto of_queries = [&](const View& view) { return part.of_queries(queries_of(call_, batch_, view), group_); };
    const auto of_keys = [&](const View& view) { return part.of_keys(keys_of(call_, batch_, view)); };
    record_rows(recorder, is_f64_, [&](auto d) {
      const Heads<decltype(d)> heads{d, terms_, part, group_, offset_, is_exact(call_.q), call_.key_mask};
      const AttentionGradientViews views{of_queries(call_.q),        of_queries(call_.out),
                                         of_queries(call_.lse),      of_queries(call_.grad_out),
                                         of_queries(call_.grad_lse), of_queries(call_.grad_q)};
      keys_.clear_unseen(recorder, part);
      const std::vector<KeyGradients> grads =
          attend_backward(d, one_set(heads, heads.read(of_keys(call_.k)), heads.read(of_keys(call_.v))), views);
      if (part.keys > 0) keys_.put(recorder, part, grads.front());
    });
  }

  Parts& parts_;
  const AttentionGradients& call_;
  const EqualSequences batch_;
  const ScoreTerms terms_;
  const int64_t group_, offset_;
  const bool is_f64_;
  KeyGradientOutputs keys_;
  HeadPart size_;
};

inline void compose_attention_backward(Parts& parts, const AttentionGradients& call) {
  parts.need(Word::product, any_f64<sdk::ops::AttentionBackward>(call) ? sdk::Dtype::f64 : sdk::Dtype::f32);
  const auto batches = batches_of(parts, call);
  if (!batches) return answer_nan<sdk::ops::AttentionBackward>(parts, call);
  std::vector<BatchGradients> made;
  int64_t elements = 0;
  for (const EqualSequences& batch : *batches) {
    if (batch.count == 0) continue;
    made.emplace_back(parts, call, batch);
    elements = std::max(elements, made.back().sum_elements());
  }
  if (made.empty()) return;
  const sdk::Dtype dtype = made.front().dtype();
  const View sums[2] = {parts.keep(dtype, {elements}), parts.keep(dtype, {elements})};
  for (BatchGradients& batch : made) batch.compose(sums);
}

}  // namespace rlk::composed

RLK_COMPOSED_PARTS(AttentionBackward, refuse_scores(score_terms(call.params, call.D)), lengths_of<Op>(call),
                   compose_attention_backward)
