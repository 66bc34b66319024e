// Which rows make a group, and their moments in two passes: differences to a reward of the group first, so that equal
// rewards have differences of exactly 0, whatever their size.
#include "core/cpu/kernels/group_advantages.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/kernels/sequences.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Grouping = GroupAdvantagesArgs::Grouping;
using Scale = GroupAdvantagesArgs::Scale;

// Rows first .. last of the batch, or of the order in which group ids put them.
struct Members {
  const int64_t* order;  // nullptr: as they are
  int64_t first, last;

  int64_t size() const { return last - first; }
  int64_t operator[](int64_t k) const { return order != nullptr ? order[first + k] : first + k; }
};

struct Moments {
  double mean, deviation;
};
Moments moments_of(const GroupAdvantagesArgs& args, const Members& members) {
  const double first = args.rewards.get(members[0]);
  const int64_t n = members.size();
  if (n == 1) return args.raw_singletons ? Moments{0, 1} : Moments{first, 0};
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += args.rewards.get(members[k]) - first;
  const double mean = first + sum / static_cast<double>(n);
  double squares = 0;
  for (int64_t k = 0; k < n; ++k) {
    const double difference = args.rewards.get(members[k]) - mean;
    squares += difference * difference;
  }
  return {mean, std::sqrt(squares / static_cast<double>(args.unbiased ? n - 1 : n))};
}

double divisor_of(const GroupAdvantagesArgs& args, double deviation) {
  if (args.scale == Scale::none) return 1;
  if (args.additive_eps) return deviation + args.eps;
  return deviation < args.eps ? args.eps : deviation;  // a NaN stays
}

void normalise(const GroupAdvantagesArgs& args, const Members& members, double batch_deviation) {
  const int64_t n = members.size();
  if (n == 0) return;
  const Moments moments = moments_of(args, members);
  const double divisor = divisor_of(args, args.scale == Scale::batch ? batch_deviation : moments.deviation);
  const bool others = args.leave_one_out && n > 1;
  const double factor = others ? static_cast<double>(n) / static_cast<double>(n - 1) : 1.0;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t row = members[k];
    args.advantages.put(row, (args.rewards.get(row) - moments.mean) * factor / divisor);
  }
}

// Rows by group id, in row order within a group: a counting sort.
class ById {
public:
  ById(const GroupAdvantagesArgs& args, FirstBadRow& bad)
      : ends_(static_cast<int64_t*>(args.workspace)), order_(ends_ + args.rows) {
    std::fill(ends_, ends_ + args.rows, int64_t{0});
    for (int64_t row = 0; row < args.rows; ++row) {
      const int64_t id = args.group_ids.get(row);
      if (id >= 0 && id < args.rows) {
        ++ends_[id];
      } else {
        bad.report(row);
        args.advantages.put(row, kNan);
      }
    }
    int64_t start = 0;
    for (int64_t id = 0; id < args.rows; ++id) {
      const int64_t count = ends_[id];
      ends_[id] = start;
      start += count;
    }
    sorted_ = start;
    for (int64_t row = 0; row < args.rows; ++row) {
      const int64_t id = args.group_ids.get(row);
      if (id >= 0 && id < args.rows) order_[ends_[id]++] = row;  // every start becomes its group's end
    }
  }
  Members group(int64_t id) const { return {order_, id > 0 ? ends_[id - 1] : 0, ends_[id]}; }
  int64_t sorted() const { return sorted_; }

private:
  int64_t* ends_;
  int64_t* order_;
  int64_t sorted_ = 0;
};

// The standard deviation of the whole batch, in row order whatever the groups.
double deviation_of_batch(const GroupAdvantagesArgs& args, const Members& rows) {
  return args.scale == Scale::batch && rows.size() > 0 ? moments_of(args, rows).deviation : 0.0;
}

DataError by_ids(const GroupAdvantagesArgs& args, const ParallelFor& hook) {
  FirstBadRow bad;
  const ById groups(args, bad);
  const Members all = {groups.group(0).order, 0, groups.sorted()};
  const double batch_deviation = deviation_of_batch(args, all);
  parallel_for(hook, args.rows, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t id = begin; id < end; ++id) normalise(args, groups.group(id), batch_deviation);
  });
  if (!bad.any()) return {};
  return {kIdOutOfRange, bad.row(), args.group_ids.get(bad.row())};
}

}  // namespace

int64_t group_advantages_workspace_bytes(GroupAdvantagesArgs::Grouping grouping, int64_t rows) {
  return grouping == Grouping::ids ? 2 * rows * static_cast<int64_t>(sizeof(int64_t)) : 0;
}

DataError group_advantages(const GroupAdvantagesArgs& args, const ParallelFor& hook) {
  if (args.grouping == Grouping::ids) return args.rows > 0 ? by_ids(args, hook) : DataError{};
  if (args.grouping == Grouping::boundaries) {
    const DataError error = check_seqlens(args.group_boundaries, args.groups, args.rows);
    for (int64_t row = 0; error.kind != kNoDataError && row < args.rows; ++row) args.advantages.put(row, kNan);
    if (error.kind != kNoDataError) return error;
  }
  if (args.rows == 0) return {};
  const double batch_deviation = deviation_of_batch(args, {nullptr, 0, args.rows});
  const int64_t size = args.samples_per_prompt > 0 ? args.samples_per_prompt : args.rows;
  const bool fixed = args.grouping == Grouping::fixed;
  const int64_t groups = fixed ? args.rows / size : args.groups;
  const int64_t grain = std::max<int64_t>(1, kGrainElements * groups / args.rows);
  parallel_for(hook, groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      const int64_t first = fixed ? g * size : args.group_boundaries.get(g);
      const int64_t last = fixed ? first + size : args.group_boundaries.get(g + 1);
      normalise(args, {nullptr, first, last}, batch_deviation);
    }
  });
  return {};
}

}  // namespace rlk::cpu
