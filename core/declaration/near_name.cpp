// The distance of Damerau and Levenshtein in which no letter is moved twice.
#include "core/declaration/near_name.hpp"

#include <algorithm>
#include <numeric>

namespace rlk::core {

size_t slips_between(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), next[j - 1] + 1, row[j] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row.back();
}

std::string near_name(std::string_view word, const std::vector<std::string>& names) {
  if (word.size() < 3) return {};  // every short name is near every other
  std::string best;
  size_t fewest = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& name : names) {
    const size_t slips = slips_between(word, name);
    if (slips >= fewest) continue;
    best = name;
    fewest = slips;
  }
  return best;
}

}  // namespace rlk::core
