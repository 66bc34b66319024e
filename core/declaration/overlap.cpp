// Do two tensors, or two elements of one tensor, share memory?
#include "core/declaration/overlap.hpp"

#include <cstdlib>

namespace rlk::core {

int64_t element_count(const rlk_tensor& tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return 0;
    count *= tensor.shape[i];
  }
  return count;
}

bool is_contiguous(const rlk_tensor& tensor) {
  if (element_count(tensor) == 0) return true;
  int64_t expected = 1;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

namespace {

// What a tensor is made of, as far as bytes go: its elements, or, where these have less than a byte, its rows, which
// begin and end at whole bytes.
struct Units {
  explicit Units(const rlk_tensor& tensor) : bytes(tensor.dtype.bits / 8), ndim(tensor.ndim) {
    if (tensor.dtype.bits % 8 == 0) return;
    if (ndim > 0) --ndim;
    bytes = ((tensor.ndim > 0 ? tensor.shape[ndim] : 1) * tensor.dtype.bits + 7) / 8;
  }
  int64_t bytes;
  int32_t ndim;  // of the dimensions over them
};

// In bytes; the stride of a single element leads nowhere, and may be any number.
int64_t step_of(const rlk_tensor& tensor, int32_t dimension) {
  if (tensor.shape[dimension] <= 1) return 0;
  const int64_t stride = tensor.strides[dimension], bits = tensor.dtype.bits;
  return bits % 8 == 0 ? stride * (bits / 8) : stride * bits / 8;
}

}  // namespace

ByteRange byte_range_of(const rlk_tensor& tensor) {
  const Units units(tensor);
  ByteRange range{0, units.bytes};
  for (int32_t i = 0; i < units.ndim; ++i) {
    if (tensor.shape[i] == 0) return {};
    const int64_t reach = (tensor.shape[i] - 1) * step_of(tensor, i);
    (reach < 0 ? range.low : range.high) += reach;
  }
  if (units.bytes == 0) return {};  // rows of nothing
  return range;
}

bool overlaps_itself(const rlk_tensor& tensor) {
  if (is_contiguous(tensor)) return false;
  // From the smallest stride up, each step must clear everything that the smaller ones reach.
  struct {
    int64_t stride, size;
  } dims[RLK_MAX_NDIM];
  int count = 0;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] <= 1) continue;
    const int64_t stride = std::abs(tensor.strides[i]);
    int at = count++;
    for (; at > 0 && dims[at - 1].stride > stride; --at) dims[at] = dims[at - 1];
    dims[at] = {stride, tensor.shape[i]};
  }
  int64_t reach = 0;
  for (int i = 0; i < count; ++i) {
    if (dims[i].stride <= reach) return true;
    reach += dims[i].stride * (dims[i].size - 1);
  }
  return false;
}

namespace {

// Where a tensor's bytes lie modulo the pitch: steps by multiples of it are left out. False when they fill it.
bool residue(const rlk_tensor& tensor, uint64_t pitch, uint64_t& begin, uint64_t& length) {
  const Units units(tensor);
  ByteRange inner{0, units.bytes};
  for (int32_t i = 0; i < units.ndim; ++i) {
    const int64_t step = step_of(tensor, i);
    if (static_cast<uint64_t>(std::abs(step)) % pitch == 0) continue;
    (step < 0 ? inner.low : inner.high) += (tensor.shape[i] - 1) * step;
  }
  begin = (address_of(tensor) + static_cast<uint64_t>(inner.low)) % pitch;
  length = static_cast<uint64_t>(inner.high - inner.low);
  return length < pitch;
}

bool apart_modulo(const rlk_tensor& a, const rlk_tensor& b, uint64_t pitch) {
  uint64_t begin_a = 0, length_a = 0, begin_b = 0, length_b = 0;
  if (!residue(a, pitch, begin_a, length_a) || !residue(b, pitch, begin_b, length_b)) return false;
  // On a circle of `pitch` bytes each must end before the other begins.
  const uint64_t from_a_to_b = (begin_b + pitch - begin_a) % pitch;
  return length_a <= from_a_to_b && length_b <= pitch - from_a_to_b;
}

bool some_pitch_tells_apart(const rlk_tensor& a, const rlk_tensor& b, const rlk_tensor& pitches) {
  for (int32_t i = 0; i < pitches.ndim; ++i) {
    const auto pitch = static_cast<uint64_t>(std::abs(step_of(pitches, i)));
    if (pitch != 0 && pitches.shape[i] > 1 && apart_modulo(a, b, pitch)) return true;
  }
  return false;
}

}  // namespace

bool may_overlap(const rlk_tensor& a, const rlk_tensor& b) {
  const ByteRange range_a = byte_range_of(a), range_b = byte_range_of(b);
  if (range_a.low == range_a.high || range_b.low == range_b.high) return false;
  const uintptr_t at_a = address_of(a), at_b = address_of(b);
  const uintptr_t low_a = at_a + static_cast<uintptr_t>(range_a.low),
                  high_a = at_a + static_cast<uintptr_t>(range_a.high);
  const uintptr_t low_b = at_b + static_cast<uintptr_t>(range_b.low),
                  high_b = at_b + static_cast<uintptr_t>(range_b.high);
  if (high_a <= low_b || high_b <= low_a) return false;
  return !some_pitch_tells_apart(a, b, a) && !some_pitch_tells_apart(a, b, b);
}

bool has_same_layout(const rlk_tensor& a, const rlk_tensor& b) {
  if (a.ndim != b.ndim || a.dtype.code != b.dtype.code || a.dtype.bits != b.dtype.bits ||
      a.dtype.lanes != b.dtype.lanes) {
    return false;
  }
  const bool is_empty = element_count(a) == 0;
  for (int32_t i = 0; i < a.ndim; ++i) {
    if (a.shape[i] != b.shape[i]) return false;
    if (!is_empty && a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

bool is_same_memory(const rlk_tensor& a, const rlk_tensor& b) {
  return address_of(a) == address_of(b) && has_same_layout(a, b);
}

}  // namespace rlk::core
