// Advantages of tokens over a baseline per position of their group. One number per token, in fp64. Each sequence writes
// the G and W of its tokens into slots, one per position, so that the sums across a group are sums of rows. The
// baseline then takes the place of W.
//
// Cost model: two passes over the tokens to sum along sequences, one over their sums across the sequences of a group,
// some hundred positions at a time.
#include <rlk/sdk/ops/optimal_token_baseline.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/advantages/groups.hpp"
#include "core/cpu/simd/data_error.hpp"
#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"
#include "core/cpu/simd/sequences.hpp"

namespace rlk::cpu {
namespace {

namespace op = sdk::ops::optimal_token_baseline;
using Call = CallOf<sdk::ops::OptimalTokenBaseline>;

constexpr int64_t kPositions = 512;  // of a group, per task

class Baselines {
public:
  Baselines(const Call& call, const Context& context)
      : call_(call),
        hook_(context.parallel),
        sequences_(sequences_of(call.rewards, call.cu_seqlens)),
        active_positions_(call.params.position == op::Position::active) {
    const int64_t count = sequences_.count, total = sequences_.elements();
    returns_ = static_cast<double*>(context.workspace);
    weights_ = returns_ + total;
    active_ = reinterpret_cast<int64_t*>(weights_ + total);
    groups_workspace_ = active_ + count;
    has_tokens_ = reinterpret_cast<uint8_t*>(groups_workspace_ + (call.group_ids.given() ? 2 * count : 0));
  }

  DataError run() {
    for_each_sequence(sequences_, hook_, [this](int64_t b) { sum_along(b); });
    const Groups groups(grouping());
    int64_t longest = 0;
    for (int64_t b = 0; b < sequences_.count; ++b) longest = std::max(longest, slots(b));
    const int64_t pieces = (longest + kPositions - 1) / kPositions;
    parallel_for(hook_, groups.count() * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        sum_across(groups.group(task / pieces), task % pieces * kPositions);
      }
    });
    for_each_sequence(sequences_, hook_, [&](int64_t b) {
      const bool empty = active_positions_ && active_[b] == 0;
      write(b, groups.has(b) || empty);
    });
    return groups.error();
  }

private:
  GroupingArgs grouping() const {
    GroupingArgs grouping;
    grouping.rows = sequences_.count;
    grouping.samples_per_prompt = call_.params.samples_per_prompt;
    if (call_.group_ids.given()) grouping.kind = Grouping::ids;
    grouping.group_ids = call_.group_ids.integers();
    if (active_positions_) grouping.mask = Array::vector(has_tokens_, Dtype::u8);
    grouping.workspace = groups_workspace_;
    return grouping;
  }

  int64_t first_slot(int64_t b) const {
    return sequences_.packed ? sequences_.cu_seqlens.get(b) : b * sequences_.length;
  }
  int64_t slots(int64_t b) const { return active_positions_ ? active_[b] : sequences_.tokens(b); }

  void sum_along(int64_t b) const {
    LongSum variance, sum;
    const int64_t first = first_slot(b);
    int64_t active = 0, slot = first;
    const int64_t tokens = sequences_.tokens(b);
    for (int64_t t = 0; t < tokens; ++t) {
      const Position at = sequences_.at(b, t);
      const bool kept = call_.mask.keeps(at);
      if (kept) {
        const double weight = call_.weight.present() ? call_.weight.get(at) : 1;
        variance.add((1 - 2 * std::exp(call_.logp.get(at)) + call_.sum_p2.get(at)) * (weight * weight));
        ++active;
      }
      if (kept || !active_positions_) weights_[slot++] = kept ? variance.value() : 0;
    }
    for (int64_t t = tokens - 1; t >= 0; --t) {
      const Position at = sequences_.at(b, t);
      const bool kept = call_.mask.keeps(at);
      if (kept) sum.add(call_.rewards.get(at));
      // The mask may not be what it was above.
      if ((kept || !active_positions_) && slot > first) returns_[--slot] = kept ? sum.value() : 0;
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
      const bool has_tail = call_.params.zero_tail == op::ZeroTail::on && b == longest_b && longest > second;
      const int64_t slot = first_slot(b) + first, end = std::min(slots(b) - first, kPositions);
      for (int64_t p = 0; p < end; ++p) {
        const bool none = n == 1 || (has_tail && first + p >= second);
        weights_[slot + p] = none ? 0 : numerator[p] / (denominator[p] + call_.params.eps);
      }
    });
  }

  void write(int64_t b, bool valid) const {
    int64_t slot = first_slot(b);
    for (int64_t t = 0; t < sequences_.tokens(b); ++t) {
      const Position at = sequences_.at(b, t);
      const bool kept = call_.mask.keeps(at);
      const double none = valid ? 0 : kNan;
      call_.advantages.put(at, kept && valid ? returns_[slot] - weights_[slot] : none);
      if (call_.returns.present()) call_.returns.put(at, kept && valid ? returns_[slot] : none);
      if (kept || !active_positions_) ++slot;
    }
  }

  const Call& call_;
  const ParallelFor& hook_;
  const Sequences sequences_;
  const bool active_positions_;
  double* returns_;
  double* weights_;
  int64_t* active_;
  int64_t* groups_workspace_;
  uint8_t* has_tokens_;
};

DataError optimal_token_baseline(const Call& call, const Context& context) {
  const Sequences sequences = sequences_of(call.rewards, call.cu_seqlens);
  if (const DataError error = sequences.error(); error.kind != kNoDataError) return all_nan(call, error);
  if (sequences.count == 0) return {};
  return Baselines(call, context).run();
}

int64_t optimal_token_baseline_workspace(const Call& call) {
  const int64_t integers = (call.group_ids.given() ? 3 : 1) * call.B + (call.B + 7) / 8;  // then one byte per sequence
  return (2 * sequences_of(call.rewards, call.cu_seqlens).elements() + integers) * 8;
}

double optimal_token_baseline_operations(const Call& call) {
  return static_cast<double>(sequences_of(call.rewards, call.cu_seqlens).elements()) * 2000;
}

}  // namespace

RLK_CPU_KERNEL(OptimalTokenBaseline, .run = optimal_token_baseline, .operations = optimal_token_baseline_operations,
               .workspace_bytes = optimal_token_baseline_workspace);

}  // namespace rlk::cpu
