// The host's words for tokens, with which maps.hpp reads the files of ../operators (../skeleton/tokens.cuh).
#pragma once

#include "../skeleton/each.h"
#include "tokens.hpp"

#define RLK_SIMT_TOKENS_LIST(...) __VA_ARGS__
#define RLK_SIMT_TOKENS_IS_in(name) \
  { TokensArgument::Kind::in, #name, call.name, 0 }
#define RLK_SIMT_TOKENS_IS_in_or(name, other) \
  { TokensArgument::Kind::in, #name, call.name != nullptr ? call.name : call.other, 0 }
#define RLK_SIMT_TOKENS_IS_or_zero RLK_SIMT_TOKENS_IS_in
#define RLK_SIMT_TOKENS_IS_or_one(name) \
  { TokensArgument::Kind::in, #name, call.name, 1 }
// A place that this direction does not use.
#define RLK_SIMT_TOKENS_IS_none(name) \
  { TokensArgument::Kind::name, "", nullptr, 0 }
#define RLK_SIMT_TOKENS_IS_out(name) \
  { TokensArgument::Kind::out, #name, call.name, 0 }
#define RLK_SIMT_TOKENS_IS_each(name) \
  { TokensArgument::Kind::each, #name, call.name, 0 }
#define RLK_SIMT_TOKENS_IS_put(name) \
  { TokensArgument::Kind::put, #name, call.name, 0 }
#define RLK_SIMT_TOKENS_ARGUMENT(argument) RLK_SIMT_CAT(RLK_SIMT_TOKENS_IS_, argument),
#define RLK_SIMT_TOKENS_PASS(PASS) TokensPassOf<formula::PASS>::of(#PASS, formula::PASS::is_wanted(rules)),
#define RLK_SIMT_TOKENS_OWN(PASS) sizeof(typename formula::PASS::Own),
#define RLK_SIMT_TOKENS_TEXT_(x) #x
#define RLK_SIMT_TOKENS_TEXT(x) RLK_SIMT_TOKENS_TEXT_(x)

#define RLK_SIMT_TOKEN_PASSES(...)
#define RLK_SIMT_TOKEN_PACK_PASSES(...)
#define RLK_SIMT_TOKEN_SHORT_PASSES(...)
#define RLK_SIMT_TOKENS(OP, rules_of_call, ins, more, passes)                                  \
  namespace rlk::simt::host::tokens {                                                          \
  struct OP {                                                                                  \
    using Op = sdk::ops::OP;                                                                   \
    static constexpr const char* kImage = RLK_SIMT_TOKENS_TEXT(RLK_SIMT_IMAGE);                \
    static constexpr int64_t kOwnBytes =                                                       \
        std::max({RLK_SIMT_EACH(RLK_SIMT_TOKENS_OWN, RLK_SIMT_TOKENS_LIST passes) size_t{1}}); \
    static auto rules_of(const sdk::Arguments<Op>& call) {                                     \
      using namespace formula;                                                                 \
      return rules_of_call;                                                                    \
    }                                                                                          \
    static TokensCall call_of(const sdk::Arguments<Op>& call) {                                \
      return {{RLK_SIMT_EACH(RLK_SIMT_TOKENS_ARGUMENT, RLK_SIMT_TOKENS_LIST ins)},             \
              {RLK_SIMT_EACH(RLK_SIMT_TOKENS_ARGUMENT, RLK_SIMT_TOKENS_LIST more)},            \
              call.cu_seqlens};                                                                \
    }                                                                                          \
    template <class Rules>                                                                     \
    static std::vector<TokensPass> passes_of(const Rules& rules) {                             \
      return {RLK_SIMT_EACH(RLK_SIMT_TOKENS_PASS, RLK_SIMT_TOKENS_LIST passes)};               \
    }                                                                                          \
  };                                                                                           \
  }                                                                                            \
  namespace rlk::simt::host::maps {                                                            \
  template <>                                                                                  \
  struct Numbered<__COUNTER__ - kFirst> {                                                      \
    using type = Tokens<tokens::OP>;                                                           \
  };                                                                                           \
  }
