// Runs of rows as they are, and a counting sort for rows that group ids name.
#include "core/cpu/advantages/groups.hpp"

#include <algorithm>

#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {

int64_t groups_workspace_bytes(Grouping kind, int64_t rows) {
  return kind == Grouping::ids ? 2 * rows * static_cast<int64_t>(sizeof(int64_t)) : 0;
}

Groups::Groups(const GroupingArgs& args) : args_(args) {
  switch (args.kind) {
    case Grouping::fixed:
      size_ = args.samples_per_prompt > 0 ? args.samples_per_prompt : args.rows;
      count_ = args.rows > 0 ? args.rows / size_ : 0;
      break;
    case Grouping::boundaries:
      error_ = check_seqlens(args.group_boundaries, args.groups, args.rows);
      count_ = error_.kind == kNoDataError ? args.groups : 0;
      break;
    case Grouping::ids:
      sort_by_id();
      count_ = args.rows;
      break;
  }
}

void Groups::sort_by_id() {
  ends_ = static_cast<int64_t*>(args_.workspace);
  order_ = ends_ + args_.rows;
  std::fill(ends_, ends_ + args_.rows, int64_t{0});
  for (int64_t row = args_.rows - 1; row >= 0; --row) {
    if (!args_.mask.keeps(row)) continue;
    const int64_t id = args_.group_ids.get(row);
    if (valid(id)) {
      ++ends_[id];
    } else {
      error_ = {kIdOutOfRange, row, id};
    }
  }
  int64_t start = 0;
  for (int64_t id = 0; id < args_.rows; ++id) {
    const int64_t size = ends_[id];
    ends_[id] = start;
    start += size;
  }
  // Every start becomes its group's end.
  for_each_row([this](int64_t row) { order_[ends_[args_.group_ids.get(row)]++] = row; });
}

bool Groups::has(int64_t row) const {
  if (!args_.mask.keeps(row)) return false;
  if (args_.kind == Grouping::ids) return valid(args_.group_ids.get(row));
  return error_.kind == kNoDataError;
}

Members Groups::group(int64_t g) const {
  switch (args_.kind) {
    case Grouping::fixed:
      return {nullptr, g * size_, (g + 1) * size_, args_.mask};
    case Grouping::boundaries:
      return {nullptr, args_.group_boundaries.get(g), args_.group_boundaries.get(g + 1), args_.mask};
    case Grouping::ids:
      break;
  }
  return {order_, g > 0 ? ends_[g - 1] : 0, ends_[g], args_.mask};
}

}  // namespace rlk::cpu
