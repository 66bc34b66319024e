// Each sequence writes the G and W of its tokens into slots, one per position, so that the sums across a group are
// sums of rows. The baseline then takes the place of W.
#include "core/cpu/advantages/optimal_token_baseline.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/long_sum.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kPositions = 512;  // of a group, per task

class Kernel {
public:
  Kernel(const TokenBaselineArgs& args, const ParallelFor& hook) : args_(args), hook_(hook) {
    const int64_t count = args.sequences.count;
    const int64_t total = args.sequences.packed ? args.sequences.length : count * args.sequences.length;
    returns_ = static_cast<double*>(args.workspace);
    weights_ = returns_ + total;
    active_ = reinterpret_cast<int64_t*>(weights_ + total);
    groups_workspace_ = active_ + count;
    has_tokens_ = reinterpret_cast<uint8_t*>(groups_workspace_ + (args.group_ids.data != nullptr ? 2 * count : 0));
  }

  DataError run() {
    for_each_sequence(args_.sequences, hook_, [this](int64_t b) { sum_along(b); });
    const Groups groups(grouping());
    int64_t longest = 0;
    for (int64_t b = 0; b < args_.sequences.count; ++b) longest = std::max(longest, slots(b));
    const int64_t pieces = (longest + kPositions - 1) / kPositions;
    parallel_for(hook_, groups.count() * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        sum_across(groups.group(task / pieces), task % pieces * kPositions);
      }
    });
    for_each_sequence(args_.sequences, hook_, [&](int64_t b) {
      const bool empty = args_.active_positions && active_[b] == 0;
      write(b, groups.has(b) || empty);
    });
    return groups.error();
  }

private:
  GroupingArgs grouping() const {
    GroupingArgs grouping;
    grouping.rows = args_.sequences.count;
    grouping.samples_per_prompt = args_.samples_per_prompt;
    if (args_.group_ids.data != nullptr) grouping.kind = GroupingArgs::Kind::ids;
    grouping.group_ids = args_.group_ids;
    if (args_.active_positions) grouping.mask = {has_tokens_, {1, 0}};
    grouping.workspace = groups_workspace_;
    return grouping;
  }

  int64_t first_slot(int64_t b) const {
    return args_.sequences.packed ? args_.sequences.cu_seqlens.get(b) : b * args_.sequences.length;
  }
  int64_t slots(int64_t b) const { return args_.active_positions ? active_[b] : args_.sequences.tokens(b); }

  void sum_along(int64_t b) const {
    LongSum variance, sum;
    int64_t active = 0, slot = first_slot(b);
    const int64_t tokens = args_.sequences.tokens(b);
    for (int64_t t = 0; t < tokens; ++t) {
      const Position at = args_.sequences.at(b, t);
      const bool kept = args_.mask.keeps(at);
      if (kept) {
        const double weight = args_.weight.present() ? args_.weight.get(at) : 1;
        variance.add((1 - 2 * std::exp(args_.logp.get(at)) + args_.sum_p2.get(at)) * (weight * weight));
        ++active;
      }
      if (kept || !args_.active_positions) weights_[slot++] = kept ? variance.value() : 0;
    }
    for (int64_t t = tokens - 1; t >= 0; --t) {
      const Position at = args_.sequences.at(b, t);
      const bool kept = args_.mask.keeps(at);
      if (kept) sum.add(args_.rewards.get(at));
      if (kept || !args_.active_positions) returns_[--slot] = kept ? sum.value() : 0;
    }
    active_[b] = active;
    has_tokens_[b] = active > 0 ? 1 : 0;
  }

  // The baselines of positions first .. first + kPositions of a group.
  void sum_across(const Members& members, int64_t first) const {
    double numerator[kPositions] = {}, denominator[kPositions] = {};
    int64_t n = 0, longest = -1, second = -1, longest_b = -1;
    members.for_each([&](int64_t b) {
      ++n;
      if (active_[b] > longest) {
        second = longest;
        longest = active_[b];
        longest_b = b;
      } else {
        second = std::max(second, active_[b]);
      }
      const int64_t slot = first_slot(b) + first, end = std::min(slots(b) - first, kPositions);
      for (int64_t p = 0; p < end; ++p) {
        numerator[p] += returns_[slot + p] * weights_[slot + p];
        denominator[p] += weights_[slot + p];
      }
    });
    members.for_each([&](int64_t b) {
      const bool has_tail = args_.zero_tail && b == longest_b && longest > second;
      const int64_t slot = first_slot(b) + first, end = std::min(slots(b) - first, kPositions);
      for (int64_t p = 0; p < end; ++p) {
        const bool none = n == 1 || (has_tail && first + p >= second);
        weights_[slot + p] = none ? 0 : numerator[p] / (denominator[p] + args_.eps);
      }
    });
  }

  void write(int64_t b, bool valid) const {
    int64_t slot = first_slot(b);
    for (int64_t t = 0; t < args_.sequences.tokens(b); ++t) {
      const Position at = args_.sequences.at(b, t);
      const bool kept = args_.mask.keeps(at);
      const double none = valid ? 0 : kNan;
      args_.advantages.put(at, kept && valid ? returns_[slot] - weights_[slot] : none);
      if (args_.returns.present()) args_.returns.put(at, kept && valid ? returns_[slot] : none);
      if (kept || !args_.active_positions) ++slot;
    }
  }

  const TokenBaselineArgs& args_;
  const ParallelFor& hook_;
  double* returns_;
  double* weights_;
  int64_t* active_;
  int64_t* groups_workspace_;
  uint8_t* has_tokens_;
};

}  // namespace

int64_t token_baseline_workspace_bytes(int64_t sequences, int64_t total, bool has_group_ids) {
  const int64_t integers = (has_group_ids ? 3 : 1) * sequences + (sequences + 7) / 8;  // then one byte per sequence
  return (2 * total + integers) * 8;
}

DataError optimal_token_baseline(const TokenBaselineArgs& args, const ParallelFor& hook) {
  if (const DataError error = args.sequences.error(); error.kind != kNoDataError) {
    fill(args.sequences, args.advantages, kNan);
    fill(args.sequences, args.returns, kNan);
    return error;
  }
  if (args.sequences.count == 0) return {};
  return Kernel(args, hook).run();
}

}  // namespace rlk::cpu
