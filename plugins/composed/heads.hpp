// heads: the tensors of attention as batches of equal sequences, and parts of those so small that their scores fit in a
// vendor's workspace. An operator's file asks for batches_of a call, part_size of each, and records each_part
// (attention.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "parts.hpp"

namespace rlk::composed {

// What a call's parameters say of scores.
struct ScoreTerms {
  double scale, softcap;
  static constexpr int64_t kAll = int64_t{1} << 40;  // more than there are keys
  int64_t before = kAll, after = kAll;               // keys that a query sees around its own
};

template <class Params>
ScoreTerms score_terms(const Params& params, int64_t head_size) {
  ScoreTerms terms{params.scale > 0 ? params.scale : 1 / std::sqrt(static_cast<double>(head_size)), params.softcap};
  if (params.window_left >= 0) terms.before = std::min(params.window_left, ScoreTerms::kAll);
  if (params.window_right >= 0) terms.after = std::min(params.window_right, ScoreTerms::kAll);
  if (params.causal == decltype(params.causal)::on) terms.after = 0;
  return terms;
}
inline sdk::Refusal refuse_scores(const ScoreTerms& terms) {
  // Scores in fp32 would be infinite, and their differences NaN.
  if (auto no = sdk::refuse_beyond_fp32(terms.scale, "SCALE", "scale")) return no;
  if (terms.softcap > 0 && (terms.softcap < 0x1p-60 || terms.softcap > 0x1p60))
    return sdk::Support::no("SOFTCAP", "a softcap below 2^-60 or above 2^60 is not composed of primitives");
  return std::nullopt;
}

// Sequences of equal lengths that lie one behind the other.
struct EqualSequences {
  int64_t first, count;  // among those of the call
  int64_t q_first, q_length, k_first, k_length;
  int64_t samples = 1;  // each with as many queries, of which all see some keys (prefix.hpp)
};

// Of packed sequences the runs of equal lengths, by where each starts and the last ends.
std::vector<EqualSequences> equal_sequences(const std::vector<int64_t>& q_starts, const std::vector<int64_t>& k_starts);
// The first entry of cu_seqlens that is wrong, as an error of `kind`.
std::optional<DataError> bad_seqlens(const std::vector<int64_t>& starts, int64_t total, int32_t kind);

// [tokens, heads, ...] of which `count` sequences of `length` tokens begin at `first`, as [count, length, heads, ...].
View as_sequences(const View& packed, int64_t first, int64_t count, int64_t length);

// Some sequences, key heads and queries of equal sequences, and the keys that those queries see.
struct HeadPart {
  int64_t sequence, sequences, head, heads, query, queries, key, keys;
  int64_t sample = 0, samples = 1;

  // Of [sequences, tokens, query heads, D]: [sequences, key heads, group, queries, D]; without D of what is one for
  // each query.
  View of_queries(const View& tensor, int64_t group) const;
  // Of [sequences, tokens, key heads, D]: [sequences, key heads, keys, D].
  View of_keys(const View& tensor) const;
};

HeadPart whole_of(const EqualSequences& batch, int64_t heads);

// The keys that queries from `query` on see, of the sequence's; offset: the key at which its first query stands.
void see_keys(HeadPart& part, const ScoreTerms& terms, int64_t offset, int64_t k_length);

// The part of a batch that is repeated to cover it, as large as `fits` lets it be of those queries that see the most
// keys. Samples and queries are divided before heads while their matrices stay large, because a part reads all keys
// that it sees; samples first, so that a sample's own keys are read once.
HeadPart largest_part(const EqualSequences& batch, int64_t heads, int64_t group, const ScoreTerms& terms,
                      int64_t offset, const std::function<bool(const HeadPart&)>& fits);
// Visits the parts: sequences and heads outside, their samples and queries inside.
template <class Visit>
void each_part(const EqualSequences& batch, int64_t heads, const HeadPart& size, const Visit& visit) {
  for (int64_t b = 0; b < batch.count; b += size.sequences) {
    for (int64_t h = 0; h < heads; h += size.heads) {
      HeadPart own = size;
      own.sequence = b, own.sequences = std::min(size.sequences, batch.count - b);
      own.head = h, own.heads = std::min(size.heads, heads - h);
      for (int64_t s = 0; s < batch.samples; s += size.samples) {
        own.sample = s, own.samples = std::min(size.samples, batch.samples - s);
        for (int64_t i = 0; i < batch.q_length; i += size.queries) {
          own.query = i, own.queries = std::min(size.queries, batch.q_length - i);
          visit(own);
        }
      }
    }
  }
}

// The inputs of attention or its gradient that the host reads.
template <class Op>
uint64_t lengths_of(const Arguments<Op>& call) {
  using Named = sdk::Arguments<Op>;
  if (call.params.layout == decltype(call.params.layout)::dense) return 0;
  return sdk::bits_of(&Named::cu_seqlens_q, &Named::cu_seqlens_k);
}
using Batches = std::vector<EqualSequences>;
// The batches of a call of attention or its gradient; nothing where cu_seqlens are wrong, which are then reported.
template <class Call>
std::optional<Batches> batches_of(Parts& parts, const Call& call) {
  if (call.params.layout == decltype(call.params.layout)::dense) return Batches{{0, call.B, 0, call.Sq, 0, call.Sk}};
  parts.may_fail();
  if (parts.is_whole()) return Batches{{0, 1, 0, call.Tq, 0, call.Tk}};
  const std::vector<int64_t> q_starts = host_values(call.cu_seqlens_q), k_starts = host_values(call.cu_seqlens_k);
  auto error = bad_seqlens(q_starts, call.Tq, RLK_DATA_BAD_SEQLENS);
  if (!error) error = bad_seqlens(k_starts, call.Tk, RLK_DATA_BAD_SECOND_SEQLENS);
  if (!error) return equal_sequences(q_starts, k_starts);
  parts.fail(*error);
  return std::nullopt;
}
// NaN in all outputs of a call whose sequences are wrong.
template <class Op>
void answer_nan(Parts& parts, const Arguments<Op>& call) {
  parts.add([&](Recorder& recorder) {
    Arguments<Op>::each_output(call, [&](const View& view) {
      if (view.is_present())
        recorder.output(view, recorder.number(std::numeric_limits<double>::quiet_NaN(), view.dtype));
    });
  });
}
// A tensor of a batch as [sequences, tokens, heads, ...].
template <class Call>
View queries_of(const Call& call, const EqualSequences& batch, const View& tensor) {
  const bool is_dense = call.params.layout == decltype(call.params.layout)::dense;
  return is_dense ? tensor : as_sequences(tensor, batch.q_first, batch.count, batch.q_length);
}
template <class Call>
View keys_of(const Call& call, const EqualSequences& batch, const View& tensor) {
  const bool is_dense = call.params.layout == decltype(call.params.layout)::dense;
  return is_dense ? tensor : as_sequences(tensor, batch.k_first, batch.count, batch.k_length);
}
// The key at which the first query of a sequence stands.
template <class Call>
int64_t offset_of(const Call& call, const EqualSequences& batch) {
  using Alignment = decltype(call.params.causal_alignment);
  return call.params.causal_alignment == Alignment::top_left ? 0 : batch.k_length - batch.q_length;
}

// The size of the parts of a batch, of which `record` makes one.
template <class Record>
HeadPart part_size(const Parts& parts, const EqualSequences& batch, int64_t heads, int64_t group,
                   const ScoreTerms& terms, int64_t offset, const Record& record) {
  return largest_part(batch, heads, group, terms, offset, [&](const HeadPart& part) {
    return parts.is_whole() || parts.fits(record(part), parts.kept_bytes());
  });
}

}  // namespace rlk::composed
