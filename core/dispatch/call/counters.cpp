// What happened, counted always.
#include "core/dispatch/call/counters.hpp"

namespace rlk::core {

Counters::Counters() : ops_(declarations().size()) {}

ImplementationCounter* Counters::implementation(const OpDecl& decl, const std::string& plugin,
                                                const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (const auto& counter : implementations_) {
    if (counter->op == decl.name && counter->plugin == plugin && counter->implementation == name) return counter.get();
  }
  auto& counter = implementations_.emplace_back(std::make_unique<ImplementationCounter>());
  counter->op = decl.name;
  counter->plugin = plugin;
  counter->implementation = name;
  return counter.get();
}

FallbackCounter* Counters::fallback(const OpDecl& decl, const std::string& reason_code, const std::string& reason,
                                    bool* is_new) {
  const std::lock_guard lock(mutex_);
  *is_new = false;
  for (const auto& counter : fallbacks_) {
    if (counter->op == decl.name && counter->reason_code == reason_code) return counter.get();
  }
  *is_new = true;
  auto& counter = fallbacks_.emplace_back(std::make_unique<FallbackCounter>());
  counter->op = decl.name;
  counter->reason_code = reason_code;
  counter->reason = reason;
  return counter.get();
}

std::vector<const ImplementationCounter*> Counters::implementations(const OpDecl& decl) const {
  const std::lock_guard lock(mutex_);
  std::vector<const ImplementationCounter*> found;
  for (const auto& counter : implementations_) {
    if (counter->op == decl.name) found.push_back(counter.get());
  }
  return found;
}

std::vector<const FallbackCounter*> Counters::fallbacks(const OpDecl& decl) const {
  const std::lock_guard lock(mutex_);
  std::vector<const FallbackCounter*> found;
  for (const auto& counter : fallbacks_) {
    if (counter->op == decl.name) found.push_back(counter.get());
  }
  return found;
}

}  // namespace rlk::core
