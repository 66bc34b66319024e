// How far is a plugin supported? `active` needs a recorded report: the conformance suite, passed by this version of the
// plugin on its vendor's hardware. Everything else is `experimental`: rlk verifies and uses it all the same.
#pragma once

#include <string>
#include <string_view>

#include "loader/store/record.hpp"

namespace rlk::loader {

struct Support {
  bool active = false;
  std::string reason;  // which report, or why there is none that counts
  std::string_view tier() const { return active ? "active" : "experimental"; }
};
// Reports are long: what matters of one is remembered in the store, where there is one, until the file changes.
class Store;
Support support_of(const PluginRecord& record, Store* store = nullptr);

}  // namespace rlk::loader
