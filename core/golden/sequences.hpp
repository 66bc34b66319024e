// Sequences of tokens: the rows of [B, L], or ranges of a packed [N] that cu_seqlens cuts.
#pragma once

#include "core/golden/golden.hpp"

namespace rlk::golden {

// Where cu_seqlens stop being what they must be; kind 0 when they are.
inline DataError check_seqlens(const View& cu_seqlens, int64_t total) {
  const int64_t last = cu_seqlens.shape[0] - 1;
  for (int64_t position = 0; position <= last; ++position) {
    const int64_t content = cu_seqlens.load_int(position);
    const bool bad = (position == 0 && content != 0) || (position > 0 && content < cu_seqlens.load_int(position - 1)) ||
                     (position == last && content != total);
    if (bad) return {kBadSeqlens, position, content};
  }
  return {};
}

// Loops over sequences and their tokens meet the elements of a tensor in row-major order in both layouts.
struct Sequences {
  View cu_seqlens;  // present when packed
  int64_t rows, columns;

  Sequences(const View& tokens, const View& lengths)
      : cu_seqlens(lengths), rows(tokens.shape[0]), columns(lengths.present() ? 0 : tokens.shape[1]) {}
  bool packed() const { return cu_seqlens.present(); }
  DataError error() const { return packed() ? check_seqlens(cu_seqlens, rows) : DataError{}; }
  int64_t elements() const { return packed() ? rows : rows * columns; }
  int64_t count() const { return packed() ? cu_seqlens.shape[0] - 1 : rows; }
  int64_t tokens(int64_t b) const { return packed() ? cu_seqlens.load_int(b + 1) - cu_seqlens.load_int(b) : columns; }
  double load(const View& view, int64_t b, int64_t t) const {
    return packed() ? view.load(cu_seqlens.load_int(b) + t) : view.load(b, t);
  }
  // Calls function(b, t) for every token in its order.
  template <class Function>
  void for_each_token(const Function& function) const {
    for (int64_t b = 0; b < count(); ++b) {
      for (int64_t t = 0; t < tokens(b); ++t) function(b, t);
    }
  }
  // Whether a token counts; every one does without a mask.
  bool kept(const View& mask, int64_t b, int64_t t) const { return !mask.present() || load(mask, b, t) != 0; }
  int64_t count_kept(const View& mask, int64_t b) const {
    int64_t n = 0;
    for (int64_t t = 0; t < tokens(b); ++t) n += kept(mask, b, t) ? 1 : 0;
    return n;
  }
  // The last token that counts; -1 without one.
  int64_t last_kept(const View& mask, int64_t b) const {
    int64_t last = tokens(b) - 1;
    while (last >= 0 && !kept(mask, b, last)) --last;
    return last;
  }
};

}  // namespace rlk::golden
