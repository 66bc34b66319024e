// Parameters that only one plugin knows, on their way from a call's options to that plugin.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/declaration/declaration.hpp"

namespace rlk::core {

// Those of one call, in the caller's memory.
class PrivateParams {
public:
  static constexpr size_t kMaxPlugins = 4;
  static constexpr size_t kMaxIdLength = 64;
  // Words that `words` writes at most.
  static constexpr size_t kMaxWords = kMaxPlugins * (2 + kMaxIdLength / 8) + RLK_MAX_PRIVATE_BYTES / 8 + 1;

  // RLK_INVALID_ARGUMENT for a chain that breaks the rules of rlk_private_params, RLK_UNSUPPORTED for an element of
  // unknown type that is required.
  rlk_status read(const OpDecl& decl, const rlk_ext* chain, rlk_error* error);

  // nullptr: the plugin gets none.
  const rlk_private_params* of(std::string_view plugin) const;
  // The plugin that alone may serve the call; "": any may.
  std::string_view required() const { return required_; }
  // Equal words, equal parameters: every byte of ids and data. Returns how many were written.
  size_t words(uint64_t* out) const;

private:
  std::array<const rlk_private_params*, kMaxPlugins> items_{};
  size_t count_ = 0;
  std::string_view required_;
};

// One plugin's, copied: the call may be over before they are read.
class OwnPrivateParams {
public:
  OwnPrivateParams() = default;
  explicit OwnPrivateParams(const rlk_private_params* from);
  bool empty() const { return plugin_.empty(); }
  // As the plugin gets them, alone in their chain. Borrows from this.
  rlk_private_params view() const;

private:
  std::string plugin_;
  uint32_t type_ = 0;
  std::vector<std::byte> data_;
};

}  // namespace rlk::core
