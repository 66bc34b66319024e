// A call without its memory, in storage of its own: what query and plan_create receive.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <span>
#include <vector>

#include "core/declaration/validate.hpp"
#include "core/dispatch/call/private_params.hpp"

namespace rlk::core {

// Alignments count up to this: a plan may rely on no more, so that plans do not multiply.
inline constexpr uint32_t kMaxAlignmentClass = 128;

inline uint32_t alignment_class(const rlk_tensor& tensor) {
  return tensor.alignment < kMaxAlignmentClass ? tensor.alignment : kMaxAlignmentClass;
}

class CallDescription {
public:
  CallDescription(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                  std::span<const rlk_tensor* const> outputs, uint32_t numerics, const PrivateParams& privates = {});
  CallDescription(CallDescription&&) = default;
  CallDescription(const CallDescription&) = delete;

  // For one plugin, with its private parameters alone.
  CallDescription for_plugin(std::string_view plugin) &&;
  // Lives as long as this, without private parameters.
  rlk_call_desc desc() const;
  // Lives as long as this and `mine`, which becomes the plugin's private parameters.
  rlk_call_desc desc(std::string_view plugin, rlk_private_params* mine) const;
  const OpDecl& decl() const { return *decl_; }
  const int64_t* symbols() const { return symbols_.data(); }

private:
  void copy(std::span<const ArgDecl> args, std::span<const rlk_tensor* const> tensors,
            std::vector<const rlk_tensor*>& pointers);

  const OpDecl* decl_;
  std::vector<std::byte> params_;
  std::vector<rlk_tensor> tensors_;  // inputs, outputs; capacity fixed before the first pointer is taken
  std::vector<int64_t> sizes_;       // shapes and strides of all, likewise
  std::vector<const rlk_tensor*> inputs_, outputs_;
  std::vector<int32_t> output_alias_;
  std::array<int64_t, kMaxSymbols> symbols_;
  uint32_t numerics_;
  PrivateParams privates_;  // the caller's, or
  OwnPrivateParams own_;    // one plugin's
};

}  // namespace rlk::core
