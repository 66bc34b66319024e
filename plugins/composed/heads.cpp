// Where the heads of sequences lie, and how their parts are cut.
#include "heads.hpp"

namespace rlk::composed {

std::vector<EqualSequences> equal_sequences(const std::vector<int64_t>& q_starts,
                                            const std::vector<int64_t>& k_starts) {
  std::vector<EqualSequences> runs;
  for (size_t i = 0; i + 1 < q_starts.size(); ++i) {
    const int64_t q_length = q_starts[i + 1] - q_starts[i], k_length = k_starts[i + 1] - k_starts[i];
    if (!runs.empty() && runs.back().q_length == q_length && runs.back().k_length == k_length)
      ++runs.back().count;
    else
      runs.push_back({static_cast<int64_t>(i), 1, q_starts[i], q_length, k_starts[i], k_length});
  }
  return runs;
}

std::optional<DataError> bad_seqlens(const std::vector<int64_t>& starts, int64_t total, int32_t kind) {
  for (size_t i = 0; i < starts.size(); ++i) {
    const bool is_last = i + 1 == starts.size();
    const int64_t before = i == 0 ? 0 : starts[i - 1];
    if ((i == 0 && starts[i] != 0) || starts[i] < before || (is_last && starts[i] != total))
      return DataError{kind, static_cast<int64_t>(i), starts[i]};
  }
  return std::nullopt;
}

View as_sequences(const View& packed, int64_t first, int64_t count, int64_t length) {
  View view = narrowed(packed, 0, first, length);
  if (!view.is_present()) return view;
  view.dims.insert(view.dims.begin(), count);
  view.strides.insert(view.strides.begin(), length * packed.strides[0]);
  return view;
}

View HeadPart::of_queries(const View& tensor, int64_t group) const {
  if (!tensor.is_present()) return tensor;
  View view = narrowed(narrowed(tensor, 0, sequence, sequences), 1, query, queries);
  view = narrowed(view, 2, head * group, heads * group);
  view.dims.insert(view.dims.begin() + 2, heads);
  view.strides.insert(view.strides.begin() + 2, group * view.strides[2]);
  view.dims[3] = group;
  return permuted(view, view.dims.size() == 5 ? std::vector<size_t>{0, 2, 3, 1, 4} : std::vector<size_t>{0, 2, 3, 1});
}

View HeadPart::of_keys(const View& tensor) const {
  const View view = narrowed(narrowed(tensor, 0, sequence, sequences), 1, key, keys);
  return permuted(narrowed(view, 2, head, heads), {0, 2, 1, 3});
}

HeadPart whole_of(const EqualSequences& batch, int64_t heads) {
  return {0, batch.count, 0, heads, 0, batch.q_length, 0, batch.k_length, 0, batch.samples};
}

void see_keys(HeadPart& part, const ScoreTerms& terms, int64_t offset, int64_t k_length) {
  const int64_t first = part.query + offset, last = first + part.queries - 1;
  part.key = std::clamp<int64_t>(first - terms.before, 0, k_length);
  part.keys = std::clamp<int64_t>(last + terms.after + 1, part.key, k_length) - part.key;
}

HeadPart largest_part(const EqualSequences& batch, int64_t heads, int64_t group, const ScoreTerms& terms,
                      int64_t offset, const std::function<bool(const HeadPart&)>& fits) {
  constexpr int64_t kRows = 128;  // of a matrix that is not divided further, but for a matrix that still does not fit
  HeadPart part = whole_of(batch, heads);
  const auto halve = [](int64_t& size) { size = (size + 1) / 2; };
  const auto widest = [&] {
    HeadPart most = part, one = part;
    most.keys = -1;
    for (one.query = 0; one.query + one.queries <= batch.q_length; one.query += std::max<int64_t>(1, one.queries)) {
      see_keys(one, terms, offset, batch.k_length);
      if (one.keys > most.keys) most = one;
    }
    return most;
  };
  while (!fits(widest())) {
    const bool is_large = part.samples * part.queries * group > kRows;
    if (part.sequences > 1)
      halve(part.sequences);
    else if (part.samples > 1 && is_large)
      halve(part.samples);
    else if (part.queries > 1 && is_large)
      halve(part.queries);
    else if (part.heads > 1)
      halve(part.heads);
    else if (part.samples > 1)
      halve(part.samples);
    else if (part.queries > 1)
      halve(part.queries);
    else
      break;
  }
  return part;
}

}  // namespace rlk::composed
