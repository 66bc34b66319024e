// The host's side of operators of tokens (../skeleton/tokens.cuh): what RLK_SIMT_TOKENS says of one becomes its
// implementation, for all floating dtypes, strides and both layouts.
#pragma once

#include "../skeleton/tokens.h"
#include "operator.hpp"

#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace rlk::simt::host {

struct TokensArgument {
  enum class Kind { in, out, each, put };  // in and out have tokens, out and put are written

  bool has_tokens() const noexcept { return kind == Kind::in || kind == Kind::out; }
  bool is_output() const noexcept { return kind == Kind::out || kind == Kind::put; }

  Kind kind = Kind::in;
  const char* name = "";  // a literal
  const rlk_tensor* tensor = nullptr;
  double value = 0;  // of an absent input
};

// A call of an operator of tokens; the first argument is there.
struct TokensCall {
  TokensCall(std::initializer_list<TokensArgument> ins, std::initializer_list<TokensArgument> others,
             const rlk_tensor* boundaries);

  int64_t sequences() const { return cu_seqlens != nullptr ? cu_seqlens->shape[0] - 1 : tokens().shape[0]; }
  int64_t length() const { return tokens().shape[cu_seqlens != nullptr ? 0 : 1]; }
  int64_t chunks() const;  // numbers of chunks; see TokenView::first_chunk
  const rlk_tensor& tokens() const;

  int count = 0;
  TokensArgument arguments[simt::kTokenTensors];
  const rlk_tensor* cu_seqlens;
};

// What RLK_SIMT_TOKENS knows of a pass.
struct TokensPass {
  const char* name;
  int sums;
  bool is_wanted;
  // Of one that has a kernel in fp32: the places that it reads, a bit each, those of bytes and those that must be
  // absent; how many it reads and writes.
  bool is_short = false;
  unsigned uses = 0, bytes = 0, absent = 0;
  int ins = 0, outs = 0;
};
template <class Pass, class = void>
struct TokensPassOf {
  static TokensPass of(const char* name, bool is_wanted) { return {name, Pass::kSums, is_wanted}; }
};
template <class Pass>
struct TokensPassOf<Pass, decltype(static_cast<void>(Pass::kShort))> {
  static TokensPass of(const char* name, bool is_wanted) {
    return {name, Pass::kSums, is_wanted, true, Pass::kUses, Pass::kBytes, Pass::kAbsent, Pass::kIns, Pass::kOuts};
  }
};

sdk::Support support_of_tokens(const Device& device, const TokensCall& call, const std::vector<TokensPass>& passes,
                               const char* refusal);

class TokensPlan : public KernelPlan {
public:
  TokensPlan(Device& device, const char* image, const std::vector<TokensPass>& passes);

protected:
  uint64_t workspace_of(const TokensCall& call, int64_t own_bytes) const;
  // rules: copied to the kernels' arguments.
  void launch(sdk::Stream& stream, const TokensCall& call, const sdk::Run& run, int64_t own_bytes, const void* rules,
              size_t rules_bytes) const;

private:
  struct Kernels {
    FunctionHandle chunks, totals, brief;  // null where the pass sums nothing, where it has none in fp32
    TokensPass pass;
  };
  std::vector<Kernels> kernels_;
  int64_t most_sums_ = 0;
};

// Declared: what RLK_SIMT_TOKENS made of an operator.
template <class Declared>
struct Tokens {
  using Op = typename Declared::Op;
  static constexpr const char* kName = "tokens";

  static sdk::Support query(Device& device, const sdk::Call<Op>& call) {
    const auto named = sdk::arguments_of(call);
    const auto rules = Declared::rules_of(named);
    return support_of_tokens(device, Declared::call_of(named), Declared::passes_of(rules), refusal_of(rules));
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    return std::make_unique<Plan>(device, call);
  }

private:
  // The passes of a plan do not depend on sizes: those may change between its runs.
  class Plan final : public TokensPlan {
  public:
    Plan(Device& device, const sdk::Call<Op>& call)
        : TokensPlan(device, Declared::kImage, Declared::passes_of(Declared::rules_of(sdk::arguments_of(call)))),
          params_(call.params()) {
      dynamic_symbols = (uint64_t{1} << Op::kSymbols) - 1;
    }
    void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
      const auto named = sdk::arguments_of<Op>(run, params_);
      const auto rules = Declared::rules_of(named);
      static_assert(std::is_trivially_copyable_v<decltype(rules)> && sizeof(rules) <= simt::kTokenRules);
      launch(stream, Declared::call_of(named), run, Declared::kOwnBytes, &rules, sizeof(rules));
    }
    uint64_t prepare(const sdk::Run& run) override {
      return workspace_of(Declared::call_of(sdk::arguments_of<Op>(run, params_)), Declared::kOwnBytes);
    }

  private:
    const typename Op::Params params_;
  };
};

}  // namespace rlk::simt::host
