// Which rows of a batch are a group: samples of the same prompt.
#pragma once

#include <rlk/sdk/ops/group_advantages.hpp>

#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

using Grouping = sdk::ops::group_advantages::Grouping;

struct GroupingArgs {
  Grouping kind = Grouping::fixed;
  int64_t rows = 0;
  int64_t groups = 0;              // boundaries
  int64_t samples_per_prompt = 0;  // fixed; 0: all rows
  IntArray group_boundaries;       // [groups + 1]
  IntArray group_ids;              // [rows]
  Array mask;                      // [rows], optional: a masked row is in no group, and its id is not looked at
  void* workspace = nullptr;       // groups_workspace_bytes, aligned to 8 bytes
};

int64_t groups_workspace_bytes(Grouping kind, int64_t rows);

// The rows of a group, or of the whole batch, in row order; as long as there are the Groups.
class Members {
public:
  Members(const int64_t* order, int64_t first, int64_t last, const Array& mask)
      : order_(order), first_(first), last_(last), mask_(mask) {}

  template <typename Function>
  void for_each(Function&& function) const {
    for (int64_t k = first_; k < last_; ++k) {
      if (order_ != nullptr) {
        function(order_[k]);
      } else if (mask_.keeps(k)) {
        function(k);
      }
    }
  }

private:
  const int64_t* order_;  // where group ids put the rows that count; nullptr: rows as they are
  int64_t first_, last_;
  const Array& mask_;
};

class Groups {
public:
  explicit Groups(const GroupingArgs& args);

  // Boundaries in error leave no group, ids in error leave their rows out.
  DataError error() const { return error_; }
  bool has(int64_t row) const;
  // Groups are numbered 0 .. count; some may be empty.
  int64_t count() const { return count_; }
  Members group(int64_t g) const;
  // All rows that are in some group: in row order whatever the groups.
  template <typename Function>
  void for_each_row(Function&& function) const {
    for (int64_t row = 0; row < args_.rows; ++row) {
      if (has(row)) function(row);
    }
  }

private:
  void sort_by_id();
  bool valid(int64_t id) const { return id >= 0 && id < args_.rows; }

  GroupingArgs args_;
  DataError error_;
  int64_t count_ = 0;
  int64_t size_ = 0;          // fixed
  int64_t* ends_ = nullptr;   // ids: where the group of each id ends in order_
  int64_t* order_ = nullptr;  // ids
};

// Calls function(g) for every group, some thousand rows per task.
template <typename Function>
void for_each_group(const Groups& groups, int64_t rows, const ParallelFor& hook, Function&& function) {
  if (rows == 0) return;
  const int64_t count = groups.count();
  const int64_t grain = count * kGrainElements / rows > 1 ? count * kGrainElements / rows : 1;
  parallel_for(hook, count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) function(g);
  });
}

}  // namespace rlk::cpu
