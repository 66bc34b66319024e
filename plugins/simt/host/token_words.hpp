// The host's words for tokens, with which maps.hpp reads the files of ../operators (../skeleton/tokens.cuh).
#pragma once

#include "tokens.hpp"
#include "words.hpp"

#define RLK_SIMT_TOKENS_OF(kind, text, tensor, absent) \
  { TokensArgument::Kind::kind, text, tensor, absent }
#define RLK_SIMT_TOKENS_IS_in(name) RLK_SIMT_TOKENS_OF(in, #name, call.name, 0)
#define RLK_SIMT_TOKENS_IS_in_or(name, other) \
  RLK_SIMT_TOKENS_OF(in, #name, call.name != nullptr ? call.name : call.other, 0)
#define RLK_SIMT_TOKENS_IS_or_zero RLK_SIMT_TOKENS_IS_in
#define RLK_SIMT_TOKENS_IS_or_one(name) RLK_SIMT_TOKENS_OF(in, #name, call.name, 1)
// A place that this direction does not use.
#define RLK_SIMT_TOKENS_IS_none(name) RLK_SIMT_TOKENS_OF(name, "", nullptr, 0)
#define RLK_SIMT_TOKENS_IS_out(name) RLK_SIMT_TOKENS_OF(out, #name, call.name, 0)
#define RLK_SIMT_TOKENS_IS_each(name) RLK_SIMT_TOKENS_OF(each, #name, call.name, 0)
#define RLK_SIMT_TOKENS_IS_put(name) RLK_SIMT_TOKENS_OF(put, #name, call.name, 0)
#define RLK_SIMT_TOKENS_ARGUMENT(argument) RLK_SIMT_CAT(RLK_SIMT_TOKENS_IS_, argument),
#define RLK_SIMT_TOKENS_PASS(PASS) TokensPassOf<formula::PASS>::of(#PASS, formula::PASS::is_wanted(rules)),
#define RLK_SIMT_TOKENS_OWN(PASS) sizeof(typename formula::PASS::Own),

#define RLK_SIMT_TOKEN_PASSES(...)
#define RLK_SIMT_TOKEN_PACK_PASSES(...)
#define RLK_SIMT_TOKEN_SHORT_PASSES(...)
#define RLK_SIMT_TOKENS(OP, rules_of_call, ins, more, passes)                           \
  namespace rlk::simt::host::tokens {                                                   \
  struct OP {                                                                           \
    using Op = sdk::ops::OP;                                                            \
    static constexpr const char* kImage = RLK_SIMT_IMAGE_NAME;                          \
    static constexpr int64_t kOwnBytes =                                                \
        std::max({RLK_SIMT_EACH(RLK_SIMT_TOKENS_OWN, RLK_SIMT_LIST passes) size_t{1}}); \
    static auto rules_of(const sdk::Arguments<Op>& call) {                              \
      using namespace formula;                                                          \
      return rules_of_call;                                                             \
    }                                                                                   \
    static TokensCall call_of(const sdk::Arguments<Op>& call) {                         \
      return {{RLK_SIMT_EACH(RLK_SIMT_TOKENS_ARGUMENT, RLK_SIMT_LIST ins)},             \
              {RLK_SIMT_EACH(RLK_SIMT_TOKENS_ARGUMENT, RLK_SIMT_LIST more)},            \
              call.cu_seqlens};                                                         \
    }                                                                                   \
    template <class Rules>                                                              \
    static std::vector<TokensPass> passes_of(const Rules& rules) {                      \
      return {RLK_SIMT_EACH(RLK_SIMT_TOKENS_PASS, RLK_SIMT_LIST passes)};               \
    }                                                                                   \
  };                                                                                    \
  }                                                                                     \
  RLK_SIMT_NUMBER(Tokens<tokens::OP>)
