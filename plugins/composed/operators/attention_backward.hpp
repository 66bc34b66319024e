// The gradients of attention. Where queries come in parts, the gradients of keys and values are added up in fp32 in the
// order of the queries.
#include "../attention.hpp"

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
        is_f64_(any_f64<sdk::ops::AttentionBackward>(call)) {}

  // What the sums of a batch take while its queries come in parts, or 0.
  int64_t sum_elements() {
    size_ = {0, batch_.count, 0, call_.Hkv, 0, batch_.q_length, 0, batch_.k_length};
    if (batch_.q_length == 0) return 0;
    size_ = largest_part(batch_, call_.Hkv, group_, terms_, offset_, [&](const HeadPart& part) {
      const int64_t elements = sums_of(part);
      const auto bytes = static_cast<uint64_t>(2 * elements * sdk::bytes_of(dtype()));
      return parts_.is_whole() || parts_.fits([&](Recorder& recorder) { record(recorder, part, nullptr); }, bytes);
    });
    return sums_of(size_);
  }
  sdk::Dtype dtype() const { return is_f64_ ? sdk::Dtype::f64 : sdk::Dtype::f32; }

  // sums: of grad_k and grad_v, as large as sum_elements.
  void compose(const View (&sums)[2]) {
    const bool in_parts = size_.queries < batch_.q_length;
    HeadPart heads{};
    const auto end = [&] {
      if (in_parts && heads.heads > 0) parts_.add([&](Recorder& recorder) { finish(recorder, heads, sums); });
    };
    each_part(
        batch_, call_.Hkv, size_,
        [&](const HeadPart& own) {
          end();
          heads = own;
          if (in_parts || batch_.q_length == 0)
            parts_.add([&](Recorder& recorder) { begin(recorder, own, in_parts ? sums : nullptr); });
        },
        [&](const HeadPart& part) {
          parts_.add([&](Recorder& recorder) { record(recorder, part, in_parts ? sums : nullptr); });
        });
    end();
  }

private:
  int64_t sums_of(const HeadPart& part) const {
    return part.queries < batch_.q_length ? part.sequences * part.heads * batch_.k_length * call_.D : 0;
  }
  View grads_of(const HeadPart& part, const View& tensor) const { return part.of_keys(keys_of(call_, batch_, tensor)); }
  // The sums of a part's keys.
  View sum_of(const HeadPart& part, View sum) const {
    sum.dims = {part.sequences, part.heads, batch_.k_length, call_.D};
    sum.strides = dense_strides(sum.dims);
    return narrowed(sum, 2, part.key, part.keys);
  }

  // Zeros of what is added up, or of keys that there are no queries for.
  void begin(Recorder& recorder, const HeadPart& whole, const View* sums) const {
    const View outputs[2] = {call_.grad_k, call_.grad_v};
    for (int i = 0; i < 2; ++i) {
      if (!outputs[i].is_present()) continue;
      const View view = sums != nullptr ? sum_of(whole, sums[i]) : grads_of(whole, outputs[i]);
      recorder.output(view, recorder.number(0, view.dtype));
    }
  }
  void finish(Recorder& recorder, const HeadPart& whole, const View* sums) const {
    put(recorder, grads_of(whole, call_.grad_k), {&recorder, recorder.input(sum_of(whole, sums[0]))});
    put(recorder, grads_of(whole, call_.grad_v), {&recorder, recorder.input(sum_of(whole, sums[1]))});
  }

  void record(Recorder& recorder, HeadPart part, const View* sums) const {
    see_keys(part, terms_, offset_, batch_.k_length);
    const auto of_queries = [&](const View& view) { return part.of_queries(queries_of(call_, batch_, view), group_); };
    if (sums == nullptr) clear_unseen(recorder, part);
    if (part.keys == 0) {
      const View grad_q = of_queries(call_.grad_q);
      return recorder.output(grad_q, recorder.number(0, grad_q.dtype));
    }
    record_rows(recorder, is_f64_, [&](auto d) {
      const Heads<decltype(d)> heads{d, terms_, part, group_, offset_, is_exact(call_.q), call_.key_mask};
      const AttentionGradientViews views{of_queries(call_.q),        of_queries(call_.out),
                                         of_queries(call_.lse),      of_queries(call_.grad_out),
                                         of_queries(call_.grad_lse), of_queries(call_.grad_q)};
      const KeyGradients grads =
          attend_backward(heads, views, heads.read(part.of_keys(keys_of(call_, batch_, call_.k))),
                          heads.read(part.of_keys(keys_of(call_, batch_, call_.v))));
      const auto put_grad = [&](const View& output, const Value& grad, int i) {
        if (!output.is_present()) return;
        if (sums == nullptr) return put(recorder, grads_of(part, output), grad);
        const View sum = sum_of(part, sums[i]);
        recorder.output(sum, Add({&recorder, recorder.input(sum)}, grad).node);
      };
      put_grad(call_.grad_k, grads.grad_k, 0);
      put_grad(call_.grad_v, grads.grad_v, 1);
    });
  }
  // Zeros of the keys that no query sees.
  void clear_unseen(Recorder& recorder, const HeadPart& part) const {
    HeadPart before = part, after = part;
    before.key = 0, before.keys = part.key;
    after.key = part.key + part.keys, after.keys = batch_.k_length - after.key;
    for (const HeadPart& unseen : {before, after}) {
      for (const View* output : {&call_.grad_k, &call_.grad_v}) {
        if (unseen.keys == 0 || !output->is_present()) continue;
        recorder.output(grads_of(unseen, *output), recorder.number(0, output->dtype));
      }
    }
  }

  Parts& parts_;
  const AttentionGradients& call_;
  const EqualSequences batch_;
  const ScoreTerms terms_;
  const int64_t group_, offset_;
  const bool is_f64_;
  HeadPart size_{};
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
