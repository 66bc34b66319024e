// What logp and its backward share in the simple plugin: which row a token reads and what a score is.
#pragma once

#include <limits>

#include "conformance/simple/device.hpp"
#include "conformance/simple/element.hpp"

namespace rlk::simple {

struct Token {
  enum class State { ignored, wrong, active } state = State::ignored;
  int64_t row = -1;     // of the logits; -1 when it does not exist
  int64_t column = -1;  // of the target; -1 when another shard owns it
};

// The inputs and parameters that both operators have.
template <class Params>
struct Tokens {
  Params params;
  Tensor logits, ids, bias, mask, row_indices, keep_mask;
  int64_t rows, logits_rows, vocab;

  int64_t global_vocab() const {
    return params.global_vocab > 0 && !mutant("global_vocab_ignored") ? params.global_vocab : vocab;
  }
  bool is_sharded() const { return global_vocab() > vocab; }

  bool is_ignored(int64_t n) const {
    const int64_t ignore_index = mutant("ignore_index_ignored") ? -100 : params.ignore_index;
    if (ids.load_int(ids.at(n)) == ignore_index) return true;
    if (!mask.given() || mutant("mask_ignored")) return false;
    const int64_t flag = mask.load_int(mask.at(n));
    return mutant("mask_only_one") ? flag != 1 : mutant("mask_inverted") ? flag != 0 : flag == 0;
  }

  Token resolve(const sdk::Run& run, int64_t n) const {
    Token token;
    const bool use_rows = row_indices.given() && !mutant("row_indices_ignored");
    token.row = use_rows ? row_indices.load_int(row_indices.at(n)) : n;
    int64_t id = ids.load_int(ids.at(n));
    if (mutant("i32_read_as_i64") && ids.dtype() == Dtype::i32) id = id == -100 ? id : ids.load_int(ids.at(n)) & 0xff00;
    const bool row_exists = token.row >= 0 && token.row < logits_rows;
    const bool id_exists = id >= 0 && id < global_vocab();
    if (is_ignored(n)) {
      if (mutant("masked_ids_read") && !id_exists && mask.given()) report(run, RLK_DATA_ID_OUT_OF_RANGE, n, id);
      if (mutant("ignored_rows_read") && !row_exists) report(run, RLK_DATA_ROW_OUT_OF_RANGE, n, token.row);
      token.row = row_exists ? token.row : -1;
      return token;
    }
    token.state = Token::State::active;
    if (!row_exists) {
      if (mutant("row_not_checked")) {
        token.row = 0;
      } else {
        report(run, RLK_DATA_ROW_OUT_OF_RANGE, n, token.row);
        token.row = -1;
        token.state = Token::State::wrong;
        return token;
      }
    }
    if (!id_exists) {
      if (!mutant("id_not_told")) report(run, RLK_DATA_ID_OUT_OF_RANGE, n, id);
      token.state = Token::State::wrong;
      return token;
    }
    const int64_t column = id - (mutant("vocab_start_ignored") ? 0 : params.vocab_start);
    if (column >= 0 && column < vocab) token.column = column;
    return token;
  }

  template <class A>
  A capped(int64_t row, int64_t v) const {
    const bool is_kept =
        !keep_mask.given() || mutant("keep_mask_ignored") || keep_mask.load_int(keep_mask.at(row, v)) != 0;
    if (!is_kept) return -std::numeric_limits<A>::infinity();
    const int64_t at = mutant("strides_ignored") ? row * vocab + v : logits.at(row, v);
    A x = logits.template load<A>(at);
    const bool both = bias.given() && params.softcap > 0;
    const A shift = bias.given() && !mutant("bias_ignored") ? bias.template load<A>(bias.at(v)) : A(0);
    const bool after = both && mutant("bias_after_softcap");
    if (!after) x += shift;
    if (params.softcap > 0 && !mutant("softcap_ignored")) {
      const A cap = static_cast<A>(params.softcap);
      x = cap * std::tanh(x / cap);
    }
    return after ? x + shift : x;
  }
  template <class A>
  A score(int64_t row, int64_t v) const {
    const A z = capped<A>(row, v);
    return mutant("temperature_ignored") ? z : z / static_cast<A>(params.temperature);
  }
};

}  // namespace rlk::simple
