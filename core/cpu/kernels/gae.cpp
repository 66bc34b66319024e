// One sequence after the other, from the back.
#include "core/cpu/kernels/gae.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

DataError gae(const GaeArgs& args, const ParallelFor& hook) {
  if (const DataError error = args.sequences.error(); error.kind != kNoDataError) {
    fill(args.sequences, args.advantages, kNan);
    fill(args.sequences, args.returns, kNan);
    return error;
  }
  for_each_sequence(args.sequences, hook, [&args](int64_t b) {
    double next_value = args.bootstrap.present() ? args.bootstrap.get(b) : 0;
    double advantage = 0;
    for (int64_t t = args.sequences.tokens(b) - 1; t >= 0; --t) {
      const Position at = args.sequences.at(b, t);
      const bool kept = args.mask.keeps(at);
      if (kept || !args.carry) {
        const double value = kept ? args.values.get(at) : 0;
        const double reward = kept ? args.rewards.get(at) : 0;
        const double delta = reward + args.gamma * next_value - value;
        advantage = delta + args.gamma * args.lam * advantage;
        next_value = value;
      }
      args.advantages.put(at, kept ? advantage : 0);
      if (args.returns.present()) args.returns.put(at, kept ? advantage + next_value : 0);
    }
  });
  return {};
}

DataError returns(const ReturnsArgs& args, const ParallelFor& hook) {
  if (const DataError error = args.sequences.error(); error.kind != kNoDataError) {
    fill(args.sequences, args.returns, kNan);
    return error;
  }
  for_each_sequence(args.sequences, hook, [&args](int64_t b) {
    double sum = 0;
    for (int64_t t = args.sequences.tokens(b) - 1; t >= 0; --t) {
      const Position at = args.sequences.at(b, t);
      const bool kept = args.mask.keeps(at);
      sum = !kept && args.reset ? 0 : (kept ? args.rewards.get(at) : 0) + args.gamma * sum;
      args.returns.put(at, kept ? sum : 0);
    }
  });
  return {};
}

}  // namespace rlk::cpu
