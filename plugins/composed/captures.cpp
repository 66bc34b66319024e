// Which captures there are, by a plugin or by the vendor's own calls.
#include "captures.hpp"

#include <algorithm>

namespace rlk::composed {

Captures::Ending::~Ending() {
  for (const auto& release : releases_) release();
}

bool Captures::retain(uint64_t key, std::function<void()> release) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(key);
  if (found == all_.end() || !found->second.end_is_told) return false;
  found->second.ending.releases_.push_back(std::move(release));
  return true;
}

void Captures::keep(uint64_t key, const std::shared_ptr<void>& what) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(key);
  if (found == all_.end()) return;
  auto& kept = found->second.ending.kept_;
  if (std::find(kept.begin(), kept.end(), what) == kept.end()) kept.push_back(what);
}

Captures::Ending Captures::end(uint64_t key, uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(key);
  if (found == all_.end() || (number != 0 && found->second.number != number)) return {};
  Ending ending = std::move(found->second.ending);
  all_.erase(found);
  return ending;
}

uint64_t Captures::known(uint64_t key, bool is_own) {
  decltype(all_)::node_type replaced;  // ends without the lock
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(key);
    if (!is_own && found != all_.end()) return found->second.number;
    if (found != all_.end()) replaced = all_.extract(found);
    number = all_[key].number = ++last_;
  }
  // Not with the lock: the vendor has one of its own, and may hold it when it calls.
  const bool is_told = tell_(key);
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(key);
  if (found != all_.end() && found->second.number == number) found->second.end_is_told = is_told || is_own;
  return number;
}

}  // namespace rlk::composed
