// Operators whose intermediates may be rounded, computed plainly and with one coarseness at a time (arithmetic.hpp):
// plain calls alone, everything else is declined.
#pragma once

#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>
#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include <cstring>
#include <memory>

#include "conformance/simple/device.hpp"

namespace rlk::rounding {

struct Attention {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "flash";
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};

struct AttentionBackward {
  using Op = sdk::ops::AttentionBackward;
  static constexpr const char* kName = "flash";
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};

struct LinearLogp {
  using Op = sdk::ops::LinearLogp;
  static constexpr const char* kName = "fused";
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};

struct LinearLogpBackward {
  using Op = sdk::ops::LinearLogpBackward;
  static constexpr const char* kName = "fused";
  static sdk::Support query(simple::SimpleDevice&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(simple::SimpleDevice&, const sdk::Call<Op>&);
};

uint32_t claimed();

// A plan that serves every size, for a function of the run.
template <class Op>
class FunctionPlan : public sdk::Plan {
public:
  using Function = void (*)(const sdk::Run&);
  explicit FunctionPlan(Function function) : function_(function) {
    dynamic_symbols = (uint64_t{1} << Op::kSymbols) - 1;
    numerics = claimed();
    variant = "plain";
  }
  void enqueue(sdk::Stream&, const sdk::Run& run) override { function_(run); }

private:
  Function function_;
};

// Whether the call sets no parameter and gives none of the inputs from `first_optional` on.
template <class Op>
sdk::Support plain_calls(const sdk::Call<Op>& call, const typename Op::Params& defaults, uint32_t first_optional) {
  // The bytes are meant: a parameter of -0 is not the default.
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  bool plain = std::memcmp(&call.params(), &defaults, sizeof(defaults)) == 0;
  for (uint32_t i = first_optional; i < Op::kInputs; ++i) plain &= call.input(i) == nullptr;
  return plain ? sdk::Support::yes("plain", claimed()) : sdk::Support::no("NOT_PLAIN", "only plain calls are served");
}

}  // namespace rlk::rounding

extern "C" const rlk_plugin* rlk_rounding_entry(const rlk_host*, rlk_error*);
