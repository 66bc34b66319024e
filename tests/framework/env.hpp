// Environment variables that hold for the life of an object.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlk::testing {

// For the environment of children that are meant to crash: a sanitizer would turn the signal into an exit code.
inline std::vector<std::pair<std::string, std::string>> crashes_stay_crashes() {
  const char* options = "handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0";
  return {{"ASAN_OPTIONS", options}, {"TSAN_OPTIONS", options}};
}

class ScopedEnv {
public:
  // Sets the variable, or unsets it when the value is null.
  ScopedEnv(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    set(value);
  }
  ~ScopedEnv() { set(before_ ? before_->c_str() : nullptr); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

private:
  void set(const char* value) {
    if (value == nullptr) {
      unsetenv(name_.c_str());
    } else {
      setenv(name_.c_str(), value, 1);
    }
  }
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace rlk::testing
