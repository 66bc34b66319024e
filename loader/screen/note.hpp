// The ABI note: what a plugin file states about itself for readers that do not run its code. An ELF note of section
// .note.rlk, name "rlk", type 1, whose description is text such as
// "abi=1.0;draft=1;id=acme;backend=acme;version=0.1.0;env=ACME_HOME,ACME_TILE;files=kernels,$ACME_KERNELS".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/screen/elf.hpp"

namespace rlk::loader {

struct AbiVersion {
  uint32_t major = 0;
  uint32_t minor = 0;
  uint32_t draft = 0;  // 0: frozen
  bool operator==(const AbiVersion&) const = default;
};

struct AbiNote {
  AbiVersion abi;
  std::string id;       // [a-z0-9_-], at most 64 characters
  std::string backend;  // the same
  std::string version;
  std::vector<std::string> env;  // variables that change what the plugin offers; part of a cached result's key
  // Files, and folders with all that is below them, that do so too: a name beside the plugin's file, or "$VARIABLE".
  std::vector<std::string> files;
};

// The description of the file's note, or null without one.
const std::string* find_abi_note(const ElfInfo& info);

// Nothing, with `error` saying what was seen and expected, when the text is not a note. Unknown keys are ignored.
std::optional<AbiNote> parse_abi_note(std::string_view description, std::string* error);

// "1.0"
std::string abi_text(const AbiVersion& abi);

}  // namespace rlk::loader
