// Two partial answers of attention as one: the declaration's formula, query by query, fp64.
#include <rlk/sdk/ops/merge_attention_states.hpp>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

// Of what is not empty.
Tracked sum_of_exponentials(const std::vector<double>& lse, double largest) {
  Tracked sum;
  for (const double number : lse) sum = sum + exp(Tracked(number) - Tracked(largest));
  return sum;
}

}  // namespace

DataError merge_attention_states(CallOf<sdk::ops::MergeAttentionStates>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t h = 0; h < call.H; ++h) {
      std::vector<double> lse;
      std::vector<const View*> parts;
      const auto add = [&](const View& out, double number) {
        if (std::isinf(number)) return;
        lse.push_back(number);
        parts.push_back(&out);
      };
      add(call.out_a, call.lse_a.load(n, h));
      add(call.out_b, call.lse_b.load(n, h));
      double largest = lse.empty() ? 0 : lse[0];
      for (const double number : lse) largest = std::isnan(number) ? number : std::max(number, largest);
      const Tracked sum = sum_of_exponentials(lse, largest);
      put(call.lse, lse.empty() ? Tracked(-kInfinity) : Tracked(largest) + log(sum));
      for (int64_t d = 0; d < call.D; ++d) {
        Tracked out;
        for (size_t i = 0; i < parts.size(); ++i) {
          out = out + exp(Tracked(lse[i]) - Tracked(largest)) / sum * Tracked(parts[i]->load(n, h, d));
        }
        put(call.out, out);
      }
    }
  }
  return {};
}

}  // namespace rlk::golden
