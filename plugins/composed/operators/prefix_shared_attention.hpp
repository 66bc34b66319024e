// Attention of samples that share a prefix, in one softmax over its keys and their own.
#include "../prefix.hpp"

namespace rlk::composed {

inline void compose_prefix_shared(Parts& parts, const Arguments<sdk::ops::PrefixSharedAttention>& call) {
  const SharedPrefix<sdk::ops::PrefixSharedAttention> shared{call};
  parts.need(Word::product, shared.is_f64 ? sdk::Dtype::f64 : sdk::Dtype::f32);
  if (call.B * call.G * call.Sq == 0) return;
  const auto record = [&](const HeadPart& part) {
    return [&, part](Recorder& recorder) {
      record_rows(recorder, shared.is_f64, [&](auto d) {
        attend(d, shared.sets(d, part),
               {shared.queries(part, call.q), shared.queries(part, call.out), shared.queries(part, call.lse)});
      });
    };
  };
  const HeadPart size = part_size(parts, shared.batch, shared.heads, shared.group, shared.terms, shared.offset, record);
  each_part(shared.batch, shared.heads, size, [&](const HeadPart& part) { parts.add(record(part)); });
}

}  // namespace rlk::composed

RLK_COMPOSED_PARTS(PrefixSharedAttention, refuse_scores(score_terms(call.params, call.D)), 0, compose_prefix_shared)
