// Which implementations may be to blame when a stream, or the whole device, fails.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

#include "core/declaration/declaration.hpp"
#include "core/dispatch/call/registry.hpp"

namespace rlk::core {

struct Suspect {
  std::shared_ptr<const Candidate>
      candidate;  // nullptr: it is code that rlk does not know, such as the caller's own kernels
  Dtype dtype = Dtype::f32;
  // Every generation of the registry has candidates of its own for one implementation on one device.
  bool operator==(const Suspect& other) const {
    if (candidate == nullptr || other.candidate == nullptr) return candidate == other.candidate;
    return is(*other.candidate, other.dtype);
  }
  bool is(const Candidate& other, Dtype of_dtype) const {
    return candidate->implementation == other.implementation && candidate->device == other.device && dtype == of_dtype;
  }
};

// The implementations of a device that one stream called since it was last known to be fine. Written by the stream's
// thread; a device that dies asks those of all its streams.
class SuspectList {
public:
  // foreign: work that is not rlk's may be in the stream at any time.
  explicit SuspectList(bool foreign) : foreign_(foreign) {}

  void add(const Candidate& candidate, Dtype dtype) {
    for (size_t i = 0; i < size_; ++i) {
      if (suspects_[i].is(candidate, dtype)) {
        last_is_first_ = false;
        return;
      }
    }
    const std::lock_guard lock(mutex_);
    last_is_first_ = size_ < suspects_.size();
    if (last_is_first_) {
      Suspect& next = suspects_[size_++];
      // The one of the last time, mostly: to count it again would be what many threads wait for.
      if (next.candidate.get() != &candidate) next.candidate = candidate.shared_from_this();
      next.dtype = dtype;
    } else {
      unknown_ = true;
    }
  }
  // Work that no implementation answers for alone.
  void add_unknown() {
    const std::lock_guard lock(mutex_);
    unknown_ = true;
  }
  // The call that was noted last was refused: it cannot have caused what was found then. An earlier one of the same
  // implementation can.
  void take_back_last() {
    const std::lock_guard lock(mutex_);
    if (last_is_first_) --size_;
    last_is_first_ = false;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    size_ = 0;
    unknown_ = last_is_first_ = false;
  }
  // Appends those that are not in the list yet.
  void add_to(std::vector<Suspect>* out) const {
    const auto append = [&](const Suspect& suspect) {
      for (const Suspect& known : *out) {
        if (known == suspect) return;
      }
      out->push_back(suspect);
    };
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < size_; ++i) append(suspects_[i]);
    if (unknown_ || foreign_) append({});
  }

private:
  const bool foreign_;
  mutable std::mutex mutex_;
  std::array<Suspect, 8> suspects_{};
  size_t size_ = 0;
  bool unknown_ = false;
  bool last_is_first_ = false;  // the last call added the last entry
};

}  // namespace rlk::core
