// Things that may still be in use by the device when their owner lets go of them: records, small buffers, descriptors.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace rlk::sdk {

// Keeps what is given back together with a marker (an event, say) that tells when it is free. [thread-safe]
template <class Thing, class Marker>
class Pool {
public:
  // Something free, or what `make()` makes. `is_free(marker)` is asked of each until one is; it may throw.
  template <class IsFree, class Make>
  Thing take(IsFree&& is_free, Make&& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (size_t i = 0; i < used_.size(); ++i) {
        if (!is_free(used_[i].second)) continue;
        Thing thing = std::move(used_[i].first);
        used_.erase(used_.begin() + static_cast<std::ptrdiff_t>(i));
        return thing;
      }
    }
    return make();
  }
  void give_back(Thing thing, Marker marker) {
    const std::lock_guard<std::mutex> lock(mutex_);
    used_.emplace_back(std::move(thing), std::move(marker));
  }
  // Hands out everything, free or not: for the end of the device, after its work.
  template <class End>
  void drain(End&& end) {
    std::vector<std::pair<Thing, Marker>> all;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      all.swap(used_);
    }
    for (auto& [thing, marker] : all) end(thing, marker);
  }

private:
  std::mutex mutex_;
  std::vector<std::pair<Thing, Marker>> used_;
};

}  // namespace rlk::sdk
