// Attention over dense and packed sequences. Packed ones are known to the host, and those of equal lengths that follow
// each other are one batch.
#include "../attention.hpp"

namespace rlk::composed {

inline void compose_attention(Parts& parts, const Arguments<sdk::ops::Attention>& call) {
  const ScoreTerms terms = score_terms(call.params, call.D);
  const int64_t group = call.Hq / call.Hkv;
  const bool is_f64 = any_f64<sdk::ops::Attention>(call);
  parts.need(Word::product, is_f64 ? sdk::Dtype::f64 : sdk::Dtype::f32);
  const auto batches = batches_of(parts, call);
  if (!batches) return answer_nan<sdk::ops::Attention>(parts, call);
  for (const EqualSequences& batch : *batches) {
    if (batch.count * batch.q_length == 0) continue;
    const int64_t offset = offset_of(call, batch);
    const auto record = [&](HeadPart part) {
      see_keys(part, terms, offset, batch.k_length);
      return [=, &call, &batch](Recorder& recorder) {
        record_rows(recorder, is_f64, [&](auto d) {
          const Heads<decltype(d)> heads{d, terms, part, group, offset, is_exact(call.q), call.key_mask};
          const auto of_queries = [&](const View& view) {
            return part.of_queries(queries_of(call, batch, view), group);
          };
          const auto of_keys = [&](const View& view) { return heads.read(part.of_keys(keys_of(call, batch, view))); };
          attend(d, one_set(heads, of_keys(call.k), of_keys(call.v)),
                 {of_queries(call.q), of_queries(call.out), of_queries(call.lse)});
        });
      };
    };
    const HeadPart size = part_size(parts, batch, call.Hkv, group, terms, offset, record);
    each_part(batch, call.Hkv, size, [&](const HeadPart& part) { parts.add(record(part)); });
  }
}

}  // namespace rlk::composed

RLK_COMPOSED_PARTS(Attention, refuse_scores(score_terms(call.params, call.D)), lengths_of<Op>(call), compose_attention)
