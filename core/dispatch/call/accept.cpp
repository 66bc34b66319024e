// The steps of accepting a call.
#include "core/dispatch/call/accept.hpp"

#include <algorithm>

#include "core/declaration/error.hpp"
#include "core/declaration/numerics.hpp"
#include "core/dispatch/call/plan_key.hpp"

namespace rlk::core {

Arguments::Arguments(std::span<const rlk_tensor* const> given, size_t declared) {
  if (given.size() >= declared) {
    tensors_ = given.first(declared);
    return;
  }
  std::copy(given.begin(), given.end(), storage_.begin());
  std::fill(storage_.begin() + static_cast<std::ptrdiff_t>(given.size()),
            storage_.begin() + static_cast<std::ptrdiff_t>(declared), nullptr);
  tensors_ = {storage_.data(), declared};
}

AcceptedCall::AcceptedCall(Stream& stream, const OpDecl& decl, std::span<const rlk_tensor* const> inputs,
                           std::span<const rlk_tensor* const> outputs, const CallOptions& options)
    : decl_(decl),
      given_inputs_(inputs),
      given_outputs_(outputs),
      inputs_(inputs, decl.inputs.size()),
      outputs_(outputs, decl.outputs.size()),
      call_{stream, {}, inputs_.tensors(), outputs_.tensors(), options, static_cast<uint32_t>(inputs.size()), false, 0,
            {},     {}} {}

rlk_status AcceptedCall::accept(const void* params, uint32_t policy_numerics, bool check_memory, rlk_error* error) {
  rlk_status status =
      validate(decl_, params, given_inputs_, given_outputs_, check_memory, storage_, call_.bound, error);
  if (status == RLK_OK) status = check_options(error);
  if (status == RLK_OK) status = call_.privates.read(decl_, call_.options.next, error);
  if (status == RLK_OK) status = call_.stream.is_capturing(&call_.capturing, error);
  if (status != RLK_OK) return status;
  // Without the classes that every verified implementation meets: plugins need not know them.
  call_.options.numerics = (call_.options.numerics | policy_numerics) & ~implied_numerics(decl_, call_.bound.dtypes[0]);
  return RLK_OK;
}

rlk_status AcceptedCall::check_options(rlk_error* error) const {
  const CallOptions& options = call_.options;
  if ((options.numerics & ~kAllNumerics) != 0) {
    return failf(error, RLK_INVALID_ARGUMENT, "%s: options.numerics is 0x%x; expected bits of RLK_NUMERICS_* only",
                 decl_.name, options.numerics);
  }
  if (options.pin.size() > PlanKey::kMaxPinLength) {
    return failf(error, RLK_INVALID_ARGUMENT, "%s: options.pin is %zu characters long; expected at most %zu",
                 decl_.name, options.pin.size(), PlanKey::kMaxPinLength);
  }
  return RLK_OK;
}

}  // namespace rlk::core
