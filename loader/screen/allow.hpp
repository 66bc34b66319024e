// Which files may be plugins, by their content: the list of a cluster's operator, in the form that `sha256sum` writes.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "loader/discover/environment.hpp"
#include "loader/screen/trust.hpp"

namespace rlk::loader {

enum class AllowMode { off, warn, require };

// False when the text is none of the three words.
bool parse_allow_mode(std::string_view text, AllowMode* mode);

struct AllowList {
  AllowMode mode = AllowMode::off;
  std::string path;             // of the list, "" when none is named
  std::string problem;          // why the list cannot be believed; it is empty then
  std::set<std::string> files;  // SHA-256, 64 digits each

  // RLK_ALLOW and RLK_ALLOW_LIST. A list without a mode is required; a mode that is none of the three is taken for
  // require, with a problem, because a mistyped word must not open what an administrator closed.
  static AllowList of(const Environment& environment, const Identity& identity);

  // Why the file must not (require) or should not (warn) be used; nothing when it is on the list, or in mode off.
  std::optional<std::string> refuse(const std::string& file, const std::optional<std::string>& sha256) const;
};

// The lines "HASH  NAME", empty ones and comments (#). False with the number of the first line that is neither.
bool parse_allow_list(std::string_view text, std::set<std::string>* files, size_t* line);

}  // namespace rlk::loader
