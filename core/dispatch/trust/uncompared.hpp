// Of which classes of calls has rlk compared no call, and why? A check that passes something over says so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/dispatch/call/registry.hpp"

namespace rlk::core {

enum class WhyNot : uint8_t {
  too_large,        // its smallest part that can be judged alone
  scattered,        // the part lies in too many pieces too far apart
  no_memory,        // pinned memory for the copies, or the reference's
  no_room,          // too many calls waited
  unusual_numbers,  // a difference where numbers are beyond what tests try
  data_error,       // values outside their domain
  failed,           // the call, its copies, or its stream
  captured,         // into a graph
  staged,           // the CPU served a device's stream
};
const char* code_of(WhyNot why);

// A call's class, as it is noted.
struct CallClass {
  std::string name;  // equal names, equal class
  ComparedClass unit;
  std::string sizes;
};

// The classes that are not compared yet. [not thread-safe]
class Uncompared {
public:
  // A call of the class was passed over. Gives the class when it is `final` for the first time with this reason: then
  // rlk reports it.
  std::optional<UncomparedClass> note(const CallClass& of, WhyNot why, const std::string& reason, bool final);
  // A call of the class was compared.
  void forget(const std::string& name);
  std::vector<UncomparedClass> list() const;

private:
  static constexpr size_t kMost = 1000;  // programs whose sizes grow at every step have more
  struct Entry {
    UncomparedClass what;
    bool told = false;
  };
  std::map<std::pair<std::string, WhyNot>, Entry> entries_;
};

// "logp by cuda/fused (f32, N=5,V=37) is not compared with the reference: ..."
std::string text_of(const UncomparedClass& uncompared);

}  // namespace rlk::core
