// Locked files that say "this process lives". The kernel unlocks one when the process ends, however it ends, and does
// not wait for the children that it forked.
#pragma once

#include <functional>
#include <utility>

#include "loader/store/file.hpp"

namespace rlk::loader {

// A lock of flock belongs to the open file, which a forked child shares: a worker that lives would keep its parent's
// lock after a crash. So a child gives its share up within fork: there, the descriptor's number leads elsewhere, and
// reading and writing through it fail. (Locks of fcntl are no child's, but every descriptor of the file that a process
// closes, one that only looks for instance, takes them away.)
class HeldFile {
public:
  HeldFile() = default;
  // What `open` gives, not locked yet; empty, with errno, where it gives nothing. No fork comes between.
  explicit HeldFile(const std::function<UniqueFd()>& open);
  HeldFile(HeldFile&& other) noexcept : fd_(std::move(other.fd_)) {}
  HeldFile& operator=(HeldFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~HeldFile();

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset() { *this = HeldFile(); }
  // False with errno; EWOULDBLOCK when another process, or another open file of this one, has locked it.
  bool try_lock() const;

private:
  UniqueFd fd_;
};

}  // namespace rlk::loader
