// How do some elements of a device's tensor come to the host, off the critical path? In few copies of whole stretches,
// from which the host picks what it wanted. Any strides will do: axes are taken in the order in which they lie in
// memory, whatever order the caller names them in.
#pragma once

#include <rlk/abi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace rlk::core {

class Fetch {
public:
  // What is wanted: the indices of each axis, increasing, or none for all of them. nullopt when kMostCopies copies
  // would be more than most_bytes.
  static std::optional<Fetch> make(const rlk_tensor& tensor, std::vector<std::optional<std::vector<int64_t>>> wanted,
                                   uint64_t most_bytes = kMostBytes);
  // Gaps are copied with what lies about them until so few copies are left.
  static constexpr size_t kFewCopies = 32;
  // Unless that is more than kCheapBytes and twice what is wanted: then there are more copies. Each takes the caller's
  // thread microseconds.
  static constexpr size_t kMostCopies = 4096;
  static constexpr uint64_t kCheapBytes = uint64_t{16} << 20;
  static constexpr uint64_t kMostBytes = uint64_t{128} << 20;

  // Bytes that are copied: the wanted ones and those between them.
  uint64_t bytes() const { return bytes_; }
  // Calls copy(to, from, bytes) -> rlk_status for each stretch, until one fails.
  template <class Copy>
  rlk_status enqueue(const rlk_tensor& tensor, char* to, Copy&& copy) const {
    const char* first = static_cast<const char*>(tensor.data) + tensor.byte_offset;
    for (const Stretch& stretch : stretches_) {
      const auto bytes = static_cast<uint64_t>(stretch.end - stretch.begin);
      if (const rlk_status status = copy(to, first + stretch.begin, bytes); status != RLK_OK) return status;
      to += bytes;
    }
    return RLK_OK;
  }
  // The wanted elements of what was copied, row-major. Elements of less than a byte have one each.
  std::vector<std::byte> pick(const char* copied) const;

  // The bytes [begin, end) from the first element, which may lie behind others.
  struct Stretch {
    int64_t begin, end;
    int64_t at = 0;  // among what is copied
  };

private:
  // Of an axis of so many. Lists of all indices of long axes would be larger than the tensors.
  struct Axis {
    int64_t size;
    int64_t stride;                            // bits
    std::optional<std::vector<int64_t>> list;  // none: all

    int64_t count() const { return list ? static_cast<int64_t>(list->size()) : size; }
    int64_t at(int64_t i) const { return list ? (*list)[static_cast<size_t>(i)] : i; }
    int64_t offset(int64_t i) const { return at(i) * stride; }
  };
  std::vector<Stretch> pieces() const;
  static std::vector<Stretch> runs_of(const Axis& axis, const Stretch& one);
  std::byte element_at(const char* copied, const Stretch& stretch, int64_t bits) const;
  const Stretch& stretch_of(int64_t byte) const;

  std::vector<Axis> axes_;
  std::vector<Stretch> stretches_;  // increasing
  int64_t element_ = 0;             // bits
  uint64_t bytes_ = 0;
};

}  // namespace rlk::core
