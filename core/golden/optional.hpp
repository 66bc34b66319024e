// Arguments that may be absent.
#pragma once

#include <optional>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

// Whether a mask keeps an element; without a mask every one is.
template <typename... Index>
bool is_kept(const View& mask, Index... index) {
  return !mask.present() || mask.load_int(index...) != 0;
}
inline std::optional<Tracked> maybe(const View& view, int64_t n) {
  return view.present() ? std::optional<Tracked>(view.load(n)) : std::nullopt;
}
template <typename... Index>
double or_zero(const View& view, Index... index) {
  return view.present() ? view.load(index...) : 0.0;
}

}  // namespace rlk::golden
