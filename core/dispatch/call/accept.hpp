// The one way in: a call that is made and a call that is only explained are checked here, whole, before anything is
// built from what the caller passed.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <cstddef>
#include <span>

#include "core/dispatch/call/call.hpp"

namespace rlk::core {

// A caller's array, as long as declared: entries that are missing are absent.
class Arguments {
public:
  Arguments(std::span<const rlk_tensor* const> given, size_t declared);
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  std::span<const rlk_tensor* const> tensors() const { return tensors_; }

private:
  std::array<const rlk_tensor*, kMaxArguments> storage_;
  std::span<const rlk_tensor* const> tensors_;
};

// The arguments of rlk_call and of similar functions. Lives on the caller's stack.
class AcceptedCall {
public:
  AcceptedCall(Stream& stream, const OpDecl& decl, std::span<const rlk_tensor* const> inputs,
               std::span<const rlk_tensor* const> outputs, const CallOptions& options);
  AcceptedCall(const AcceptedCall&) = delete;
  AcceptedCall& operator=(const AcceptedCall&) = delete;

  // Checks everything that can be known without asking a plugin for an implementation: arguments, parameters, options,
  // private parameters, and whether the stream captures. `policy_numerics` are the classes that the policy demands of
  // every call. check_memory false: nothing will be read or written, and data pointers may be NULL.
  // [no allocation on success]
  rlk_status accept(const void* params, uint32_t policy_numerics, bool check_memory, rlk_error* error);
  // Accepted. Points into this object.
  Call& call() { return call_; }

private:
  rlk_status check_options(rlk_error* error) const;

  const OpDecl& decl_;
  const std::span<const rlk_tensor*const> given_inputs_, given_outputs_;
  alignas(8) std::byte storage_[kMaxParamsBytes];  // completes an older, shorter struct
  Arguments inputs_, outputs_;
  Call call_;
};

}  // namespace rlk::core
