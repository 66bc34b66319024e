// One sequence after the other, from the back.
#include "core/cpu/kernels/gae.hpp"

#include <algorithm>

namespace rlk::cpu {
namespace {

// Calls function(b) for every sequence.
template <typename Function>
void for_each_sequence(int64_t sequences, int64_t length, const ParallelFor& hook, Function&& function) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, length));
  parallel_for(hook, sequences, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) function(b);
  });
}

}  // namespace

void gae(const GaeArgs& args, const ParallelFor& hook) {
  for_each_sequence(args.sequences, args.length, hook, [&args](int64_t b) {
    double next_value = args.bootstrap.present() ? args.bootstrap.get(b) : 0;
    double advantage = 0;
    for (int64_t t = args.length - 1; t >= 0; --t) {
      const bool kept = args.mask.keeps(b, t);
      if (kept || !args.carry) {
        const double value = kept ? args.values.get(b, t) : 0;
        const double reward = kept ? args.rewards.get(b, t) : 0;
        const double delta = reward + args.gamma * next_value - value;
        advantage = delta + args.gamma * args.lam * advantage;
        next_value = value;
      }
      args.advantages.put(b, t, kept ? advantage : 0);
      if (args.returns.present()) args.returns.put(b, t, kept ? advantage + next_value : 0);
    }
  });
}

void returns(const ReturnsArgs& args, const ParallelFor& hook) {
  for_each_sequence(args.sequences, args.length, hook, [&args](int64_t b) {
    double sum = 0;
    for (int64_t t = args.length - 1; t >= 0; --t) {
      const bool kept = args.mask.keeps(b, t);
      sum = !kept && args.reset ? 0 : (kept ? args.rewards.get(b, t) : 0) + args.gamma * sum;
      args.returns.put(b, t, kept ? sum : 0);
    }
  });
}

}  // namespace rlk::cpu
