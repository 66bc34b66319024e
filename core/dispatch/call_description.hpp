// A call without its memory, in storage of its own: what query and plan_create are told.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <span>
#include <vector>

#include "core/declaration/validate.hpp"

namespace rlk::core {

// Alignments count up to this: a plan may rely on no more, so that plans do not multiply.
inline constexpr uint32_t kMaxAlignmentClass = 128;

inline uint32_t alignment_class(const rlk_tensor& tensor) {
  return tensor.alignment < kMaxAlignmentClass ? tensor.alignment : kMaxAlignmentClass;
}

class CallDescription {
public:
  CallDescription(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                  std::span<const rlk_tensor* const> outputs, uint32_t numerics);
  CallDescription(CallDescription&&) = default;
  CallDescription(const CallDescription&) = delete;

  // Lives as long as this.
  rlk_call_desc desc() const;
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
};

}  // namespace rlk::core
