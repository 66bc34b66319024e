// Both are a scan from the last token to the first.
#include "core/cpu/advantages/gae.hpp"

namespace rlk::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using MaskRule = ReverseScanArgs::MaskRule;

}  // namespace

DataError gae(const GaeArgs& args, const ParallelFor& hook) {
  if (const DataError error = args.sequences.error(); error.kind != kNoDataError) {
    fill(args.sequences, args.advantages, kNan);
    fill(args.sequences, args.returns, kNan);
    return error;
  }
  ReverseScanArgs scan;
  scan.mask_rule = args.carry ? MaskRule::carry : MaskRule::zero;
  scan.sequences = args.sequences;
  scan.rewards = args.rewards;
  scan.values = args.values;
  scan.mask = args.mask;
  scan.start_value = args.bootstrap;
  scan.discount = args.gamma;
  scan.decay = args.gamma * args.lam;
  scan.sums = args.advantages;
  scan.targets = args.returns;
  scan.workspace = args.workspace;
  reverse_scan(scan, hook);
  return {};
}

DataError returns(const ReturnsArgs& args, const ParallelFor& hook) {
  if (const DataError error = args.sequences.error(); error.kind != kNoDataError) {
    fill(args.sequences, args.returns, kNan);
    return error;
  }
  ReverseScanArgs scan;
  scan.mask_rule = args.reset ? MaskRule::reset : MaskRule::zero;
  scan.sequences = args.sequences;
  scan.rewards = args.rewards;
  scan.mask = args.mask;
  scan.start_sum = args.bootstrap;
  scan.discount = 0;
  scan.decay = args.gamma;
  scan.sums = args.returns;
  scan.workspace = args.workspace;
  reverse_scan(scan, hook);
  return {};
}

}  // namespace rlk::cpu
