// Attention over keys and values in the blocks of a cache, which are gathered by the block table for each part. The
// host knows the table and the lengths: sequences of equal lengths that follow each other are one batch, and no block
// is looked up that there is not.
#include "../attention.hpp"

namespace rlk::composed {

using PagedCall = Arguments<sdk::ops::PagedAttention>;

// Keys or values of a part, [sequences, heads, keys, D], of a cache in blocks.
class BlockReader {
public:
  BlockReader(Recorder& recorder, const PagedCall& call, const EqualSequences& batch, const HeadPart& part)
      : call_(call), part_(part), first_(part.key / call.BS) {
    blocks_ = (part.key + part.keys + call.BS - 1) / call.BS - first_;
    const View table =
        narrowed(narrowed(call.block_table, 0, batch.first + part.sequence, part.sequences), 1, first_, blocks_);
    const Value ids{&recorder, recorder.input(table)};
    index_ = index_of(reshaped(ids, {part.sequences * blocks_, 1}));
  }
  Value keys() const {
    if (!is_head_major()) return of_tokens(call_.key_cache);
    // Neighbouring numbers of a key are together, its parts apart.
    const Value pieces = exchanged(exchanged(reshaped(taken(call_.key_cache), {part_.sequences, blocks_, call_.Hkv,
                                                                               call_.D / call_.X, call_.BS, call_.X}),
                                             1),
                                   3);
    return of_heads(pieces);
  }
  Value values() const {
    if (!is_head_major()) return of_tokens(call_.value_cache);
    return of_heads(exchanged(
        exchanged(reshaped(taken(call_.value_cache), {part_.sequences, blocks_, call_.Hkv, call_.D, call_.BS}), 1), 3));
  }

private:
  bool is_head_major() const { return call_.params.layout == decltype(call_.params.layout)::head_major; }
  // Blocks as rows.
  Value taken(const View& cache) const {
    Recorder& recorder = *index_.recorder;
    return rows_of({&recorder, recorder.table(as_rows(cache, call_.NB, call_.BS * call_.Hkv * call_.D))}, index_);
  }
  Value of_tokens(const View& cache) const {
    const Value tokens = reshaped(taken(cache), {part_.sequences, blocks_ * call_.BS, call_.Hkv, call_.D});
    return seen(exchanged(tokens, 1));
  }
  Value of_heads(Value x) const { return seen(reshaped(x, {part_.sequences, call_.Hkv, blocks_ * call_.BS, call_.D})); }
  // Behind a context there may be anything.
  Value seen(Value x) const {
    return part_of(part_of(x, 2, part_.key - first_ * call_.BS, part_.keys), 1, part_.head, part_.heads);
  }

  const PagedCall& call_;
  const HeadPart part_;
  const int64_t first_;
  int64_t blocks_;
  Value index_{};
};

inline sdk::Refusal refuse_paged(const PagedCall& call) {
  for (const View* cache : {&call.key_cache, &call.value_cache}) {
    if (!is_dense(cache->dims, cache->strides))
      return sdk::Support::no("STRIDES", "a cache with gaps is not rows of one table", RLK_SUPPORT_IF_CONTIGUOUS);
  }
  return refuse_scores(score_terms(call.params, call.D));
}

// The inputs that the host reads.
inline uint64_t tables_of(const PagedCall& call) {
  using Named = sdk::Arguments<sdk::ops::PagedAttention>;
  const uint64_t tables = sdk::bits_of(&Named::block_table, &Named::context_lens);
  return call.cu_seqlens_q.is_present() ? tables | sdk::bits_of(&Named::cu_seqlens_q) : tables;
}

// A length or a block of each sequence that there is not.
inline std::optional<DataError> bad_context(const PagedCall& call, const std::vector<int64_t>& lengths,
                                            const std::vector<int64_t>& table, int64_t sequence) {
  const int64_t length = lengths[static_cast<size_t>(sequence)];
  if (length < 0 || length > call.MB * call.BS) return DataError{RLK_DATA_BAD_SEQLENS, sequence, length};
  for (int64_t m = 0; m * call.BS < length; ++m) {
    const int64_t block = table[static_cast<size_t>(sequence * call.MB + m)];
    if (block < 0 || block >= call.NB) return DataError{RLK_DATA_ID_OUT_OF_RANGE, sequence, block};
  }
  return std::nullopt;
}

// Sequences of equal lengths; -1 is the length of those in error.
inline std::vector<EqualSequences> contexts_of(Parts& parts, const PagedCall& call,
                                               const std::vector<int64_t>& q_starts) {
  const std::vector<int64_t> lengths = host_values(call.context_lens), table = host_values(call.block_table);
  std::vector<EqualSequences> runs;
  for (int64_t b = 0; b < call.B; ++b) {
    const auto at = static_cast<size_t>(b);
    const int64_t q_first = q_starts.empty() ? b : q_starts[at];
    const int64_t q_length = q_starts.empty() ? 1 : q_starts[at + 1] - q_first;
    const auto error = bad_context(call, lengths, table, b);
    if (error) parts.fail(*error);
    const int64_t length = error ? -1 : lengths[at];
    if (!runs.empty() && runs.back().q_length == q_length && runs.back().k_length == length)
      ++runs.back().count;
    else
      runs.push_back({b, 1, q_first, q_length, 0, length});
  }
  return runs;
}

inline void compose_paged(Parts& parts, const PagedCall& call, const EqualSequences& batch) {
  const ScoreTerms terms = score_terms(call.params, call.D);
  const int64_t group = call.Hq / call.Hkv, offset = batch.k_length - batch.q_length;
  const bool is_f64 = any_f64<sdk::ops::PagedAttention>(call);
  const auto record = [&](HeadPart part) {
    see_keys(part, terms, offset, batch.k_length);
    return [=, &call, &batch](Recorder& recorder) {
      record_rows(recorder, is_f64, [&](auto d) {
        const Heads<decltype(d)> heads{d, terms, part, group, offset, is_exact(call.q)};
        const auto of_queries = [&](const View& view) {
          return part.of_queries(as_sequences(view, batch.q_first, batch.count, batch.q_length), group);
        };
        const BlockReader blocks(recorder, call, batch, part);
        attend(d, one_set(heads, heads.cast(blocks.keys()), heads.cast(blocks.values())),
               {of_queries(call.q), of_queries(call.out), of_queries(call.lse)});
      });
    };
  };
  const HeadPart size = part_size(parts, batch, call.Hkv, group, terms, offset, record);
  each_part(batch, call.Hkv, size, [&](const HeadPart& part) { parts.add(record(part)); });
}

inline void compose_paged_attention(Parts& parts, const PagedCall& call) {
  parts.need(Word::product, any_f64<sdk::ops::PagedAttention>(call) ? sdk::Dtype::f64 : sdk::Dtype::f32);
  parts.may_fail();
  const bool has_lengths = call.cu_seqlens_q.is_present();
  if (parts.is_whole()) {
    if (call.B == 0 || call.Tq == 0) return;
    return compose_paged(parts, call,
                         {0, has_lengths ? 1 : call.B, 0, has_lengths ? call.Tq : 1, 0, call.MB * call.BS});
  }
  std::vector<int64_t> q_starts;
  if (has_lengths) {
    q_starts = host_values(call.cu_seqlens_q);
    if (const auto error = bad_seqlens(q_starts, call.Tq, RLK_DATA_BAD_SECOND_SEQLENS)) {
      parts.fail(*error);
      return answer_nan<sdk::ops::PagedAttention>(parts, call);
    }
  }
  for (const EqualSequences& batch : contexts_of(parts, call, q_starts)) {
    if (batch.q_length == 0) continue;
    if (batch.k_length >= 0) {
      compose_paged(parts, call, batch);
      continue;
    }
    parts.add([&](Recorder& recorder) {
      for (const View* output : {&call.out, &call.lse}) {
        const View wrong = narrowed(*output, 0, batch.q_first, batch.count * batch.q_length);
        recorder.output(wrong, recorder.number(std::numeric_limits<double>::quiet_NaN(), wrong.dtype));
      }
    });
  }
}

}  // namespace rlk::composed

RLK_COMPOSED_PARTS(PagedAttention, refuse_paged(call), tables_of(call), compose_paged_attention)
