// Parameters that only one plugin knows, on their way from a call's options to that plugin.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <cstddef>
#include <cstring>
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
  // Words that `describe` tells at most.
  static constexpr size_t kMaxWords = kMaxPlugins * (2 + kMaxIdLength / 8) + RLK_MAX_PRIVATE_BYTES / 8 + 1;

  // RLK_INVALID_ARGUMENT for a chain that breaks the rules of rlk_private_params, RLK_UNSUPPORTED for an element of
  // unknown type that is required.
  rlk_status read(const OpDecl& decl, const rlk_ext* chain, rlk_error* error);

  // nullptr: the plugin gets none.
  const rlk_private_params* of(std::string_view plugin) const;
  // The plugin that alone may serve the call; "": any may.
  std::string_view required() const { return required_; }
  // Tells everything: equal words and bytes, equal parameters. At most kMaxWords, if bytes are put into words.
  template <class AddWord, class AddBytes>
  void describe(const AddWord& add_word, const AddBytes& add_bytes) const {
    add_word(count_);
    for (size_t i = 0; i < count_; ++i) {
      const rlk_private_params& item = *items_[i];
      const uint64_t bytes = item.bytes;
      const size_t id_length = std::strlen(item.plugin);
      add_word(bytes | uint64_t{id_length} << 32 | uint64_t{item.type} >> 31 << 63);
      add_bytes(item.plugin, id_length);
      add_bytes(item.data, bytes);
    }
  }

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
