// How do some elements of a device's tensor come to the host, off the critical path? In few copies of whole stretches,
// from which the host picks what it wanted.
#pragma once

#include <rlk/abi.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace rlk::core {

class Fetch {
public:
  // What is wanted: the indices of each axis, increasing, or none for all of them. nullopt when the tensor's strides
  // would need more than kMaxCopies copies.
  static std::optional<Fetch> make(const rlk_tensor& tensor, std::vector<std::optional<std::vector<int64_t>>> wanted);
  static constexpr int64_t kMaxCopies = 32;

  // Bytes that are copied: the wanted ones and those between them.
  uint64_t bytes() const { return bytes_; }
  // Calls copy(to, from, bytes) -> rlk_status for each stretch, until one fails.
  template <class Copy>
  rlk_status enqueue(const rlk_tensor& tensor, char* to, Copy&& copy) const {
    const char* first = static_cast<const char*>(tensor.data) + tensor.byte_offset;
    for (const Stretch& stretch : stretches_) {
      if (const rlk_status status = copy(to, first + stretch.offset, stretch.bytes); status != RLK_OK) return status;
      to += stretch.bytes;
    }
    return RLK_OK;
  }
  // The wanted elements of what was copied, row-major.
  std::vector<std::byte> pick(const char* copied) const;

  // Of an axis of so many. Lists of all indices of long axes would be larger than the tensors.
  struct Axis {
    int64_t size;
    std::optional<std::vector<int64_t>> list;  // none: all

    int64_t count() const { return list ? static_cast<int64_t>(list->size()) : size; }
    int64_t at(int64_t i) const { return list ? (*list)[static_cast<size_t>(i)] : i; }
    // Where an index stands among them.
    int64_t place(int64_t index) const;
    // Stretches of consecutive indices.
    int64_t groups() const;
    bool operator==(const Axis&) const = default;
  };

private:
  struct Stretch {
    int64_t offset;  // bytes from the first element
    uint64_t bytes;
  };
  void add_stretches(const rlk_tensor& tensor);

  std::vector<Axis> wanted_, copied_;
  std::vector<Stretch> stretches_;
  int64_t element_ = 0;  // bytes
  uint64_t bytes_ = 0;
};

}  // namespace rlk::core
