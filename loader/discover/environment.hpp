// The environment variables as the loader sees them: a snapshot, so that tests can stage one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlk::loader {

struct Environment {
  std::map<std::string, std::string, std::less<>> values;
  // The process gained privileges when it started (set-user-id, file capabilities: AT_SECURE). The user who started it
  // must not choose what code it loads, so `path` then answers nothing, as secure_getenv does.
  bool privileged = false;
  // Of those of `values` that the policy file set and no variable: what sets it, in words for a message
  // ("/etc/rlk/rlk.toml:3: require").
  std::map<std::string, std::string, std::less<>> origins = {};

  static Environment of_process();

  // The variable's value; nothing when it is unset or empty.
  std::optional<std::string> get(std::string_view name) const;
  // The same for a variable that names files or folders; nothing in a privileged process, where only the policy file,
  // which the program itself named, has a say.
  std::optional<std::string> path(std::string_view name) const;
  // What set the value, for a text about it: the variable's name, or the file, line and setting.
  std::string origin(std::string_view name) const;
};

// "a,b,,c" at ',' -> {"a", "b", "c"}; empty pieces are dropped.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace rlk::loader
