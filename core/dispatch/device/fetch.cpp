// The stretches in which the wanted elements lie, the gaps that are worth a copy of their own, and the picking
// afterwards.
#include "core/dispatch/device/fetch.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace rlk::core {
namespace {

using Stretch = Fetch::Stretch;

constexpr int64_t kMostPieces = 8192;  // that are looked at one by one

// Which of the gaps between sorted pieces separate copies, so that few bytes are copied in few copies. Empty: even the
// most copies are more than most_bytes.
std::vector<bool> separating_gaps(const std::vector<Stretch>& pieces, uint64_t wanted_bytes, uint64_t most_bytes) {
  const auto gap = [&](size_t i) { return pieces[i + 1].begin - pieces[i].end; };
  std::vector<size_t> order(pieces.size() - 1);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return gap(a) > gap(b); });
  const size_t most = std::min(pieces.size(), Fetch::kMostCopies);
  const uint64_t cheap = std::min(most_bytes, std::max(Fetch::kCheapBytes, 2 * wanted_bytes));
  auto bytes = static_cast<uint64_t>(pieces.back().end - pieces.front().begin);  // of one copy
  size_t copies = 1;
  for (size_t allowed = std::min(Fetch::kFewCopies, most);; allowed = std::min(2 * allowed, most)) {
    for (; copies < allowed; ++copies) bytes -= static_cast<uint64_t>(gap(order[copies - 1]));
    if (bytes <= cheap || copies == most) break;
  }
  if (bytes > most_bytes) return {};
  std::vector<bool> separating(pieces.size());  // the last one's has none behind it
  for (size_t i = 0; i + 1 < copies; ++i) separating[order[i]] = true;
  return separating;
}

// Sorted, and one where they touch or overlap.
void unite_pieces(std::vector<Stretch>& pieces) {
  const auto before = [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; };
  if (!std::is_sorted(pieces.begin(), pieces.end(), before)) std::sort(pieces.begin(), pieces.end(), before);
  size_t last = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i].begin <= pieces[last].end) {
      pieces[last].end = std::max(pieces[last].end, pieces[i].end);
    } else {
      pieces[++last] = pieces[i];
    }
  }
  pieces.resize(last + 1);
}

}  // namespace

std::optional<Fetch> Fetch::make(const rlk_tensor& tensor, std::vector<std::optional<std::vector<int64_t>>> wanted,
                                 uint64_t most_bytes) {
  Fetch fetch;
  fetch.element_ = tensor.dtype.bits;
  int64_t count = 1;
  for (size_t axis = 0; axis < wanted.size(); ++axis) {
    Axis& own = fetch.axes_.emplace_back(
        Axis{tensor.shape[axis], tensor.strides[axis] * fetch.element_, std::move(wanted[axis])});
    if (own.count() == own.size) own.list.reset();
    count *= own.count();
  }
  if (count == 0) return fetch;
  std::vector<Stretch> pieces = fetch.pieces();
  unite_pieces(pieces);
  const auto wanted_bytes = static_cast<uint64_t>((count * fetch.element_ + 7) / 8);
  const std::vector<bool> separating = separating_gaps(pieces, wanted_bytes, most_bytes);
  if (separating.empty()) return std::nullopt;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i == 0 || separating[i - 1]) {
      fetch.stretches_.push_back(pieces[i]);
    } else {
      fetch.stretches_.back().end = pieces[i].end;
    }
  }
  for (Stretch& stretch : fetch.stretches_) {
    stretch.at = static_cast<int64_t>(fetch.bytes_);
    fetch.bytes_ += static_cast<uint64_t>(stretch.end - stretch.begin);
  }
  return fetch;
}

// The axes that lie innermost are one piece from their first wanted element to their last one: those without a gap,
// and more until the others leave few enough. Of the first axis that is not wanted whole each run is a piece.
std::vector<Stretch> Fetch::pieces() const {
  std::vector<const Axis*> outer;  // the farthest apart first
  int64_t first = 0;               // bits
  for (const Axis& axis : axes_) {
    if (axis.count() > 1 && axis.stride != 0) {
      outer.push_back(&axis);
    } else {
      first += axis.offset(0);
    }
  }
  std::stable_sort(outer.begin(), outer.end(),
                   [](const Axis* a, const Axis* b) { return std::abs(a->stride) > std::abs(b->stride); });
  std::vector<Stretch> inner = {{first, first + element_}};  // bits
  const auto take_in = [&] {
    const Axis& axis = *outer.back();
    const int64_t a = axis.offset(0), b = axis.offset(axis.count() - 1);
    inner = {{inner.front().begin + std::min(a, b), inner.back().end + std::max(a, b)}};
    outer.pop_back();
  };
  const auto length = [&] { return inner.front().end - inner.front().begin; };
  while (!outer.empty() && !outer.back()->list && std::abs(outer.back()->stride) == length()) take_in();
  if (!outer.empty() && outer.back()->list && std::abs(outer.back()->stride) == length()) {
    inner = runs_of(*outer.back(), inner.front());
    outer.pop_back();
  }
  const auto is_many = [&] {
    auto count = static_cast<int64_t>(inner.size());
    for (const Axis* axis : outer) {
      if (count > kMostPieces || axis->count() > kMostPieces / count) return true;
      count *= axis->count();
    }
    return count > kMostPieces;
  };
  while (is_many()) {
    if (inner.size() > 1) {
      inner = {{inner.front().begin, inner.back().end}};
    } else {
      take_in();
    }
  }

  std::vector<Stretch> list;
  std::vector<int64_t> at(outer.size(), 0);
  for (;;) {
    int64_t offset = 0;
    for (size_t i = 0; i < outer.size(); ++i) offset += outer[i]->offset(at[i]);
    for (const auto& [begin, end, place] : inner) list.push_back({(offset + begin) >> 3, (offset + end + 7) >> 3});
    size_t axis = outer.size();
    while (axis > 0 && ++at[axis - 1] == outer[axis - 1]->count()) at[--axis] = 0;
    if (axis == 0) return list;
  }
}

// Where the consecutive ones of the wanted indices lie, the lowest first; `one` is where index 0 does.
std::vector<Stretch> Fetch::runs_of(const Axis& axis, const Stretch& one) {
  std::vector<Stretch> runs;
  for (int64_t i = 0; i < axis.count(); ++i) {
    // From the end where the axis runs backwards.
    const int64_t offset = axis.offset(axis.stride > 0 ? i : axis.count() - 1 - i);
    if (!runs.empty() && runs.back().end == one.begin + offset) {
      runs.back().end = one.end + offset;
    } else {
      runs.push_back({one.begin + offset, one.end + offset});
    }
  }
  return runs;
}

const Stretch& Fetch::stretch_of(int64_t byte) const {
  const auto behind = std::upper_bound(stretches_.begin(), stretches_.end(), byte,
                                       [](int64_t value, const Stretch& stretch) { return value < stretch.begin; });
  return *std::prev(behind);
}

// Of less than a byte.
std::byte Fetch::element_at(const char* copied, const Stretch& stretch, int64_t bits) const {
  const auto byte = static_cast<std::byte>(copied[(bits >> 3) - stretch.begin + stretch.at]);
  return byte >> static_cast<int>(bits & 7) & std::byte{static_cast<uint8_t>((1 << element_) - 1)};
}

std::vector<std::byte> Fetch::pick(const char* copied) const {
  std::vector<std::byte> picked;
  if (stretches_.empty()) return picked;
  const int64_t size = std::max<int64_t>(element_ / 8, 1);
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < axes_.size(); ++i) rows *= axes_[i].count();
  const Axis one{1, 0, std::nullopt};
  const Axis& inner = axes_.empty() ? one : axes_.back();
  picked.reserve(static_cast<size_t>(rows * inner.count() * size));
  const bool is_run = !inner.list && (inner.stride == element_ || inner.size == 1) && element_ % 8 == 0;
  std::vector<int64_t> at(axes_.empty() ? 0 : axes_.size() - 1, 0);
  const Stretch* stretch = &stretches_.front();
  for (int64_t row = 0; row < rows; ++row) {
    int64_t begin = 0;  // bits
    for (size_t axis = 0; axis < at.size(); ++axis) begin += axes_[axis].offset(at[axis]);
    for (int64_t i = 0; i < inner.count(); ++i) {
      const int64_t bits = begin + inner.offset(i);
      const int64_t byte = bits >> 3;
      if (byte < stretch->begin || byte >= stretch->end) stretch = &stretch_of(byte);
      if (element_ < 8) {
        picked.push_back(element_at(copied, *stretch, bits));
        continue;
      }
      // Elements that touch are in one stretch.
      const auto* from = reinterpret_cast<const std::byte*>(copied) + (byte - stretch->begin + stretch->at);
      picked.insert(picked.end(), from, from + size * (is_run ? inner.count() : 1));
      if (is_run) break;
    }
    for (size_t axis = at.size(); axis > 0 && ++at[axis - 1] == axes_[axis - 1].count(); --axis) at[axis - 1] = 0;
  }
  return picked;
}

}  // namespace rlk::core
