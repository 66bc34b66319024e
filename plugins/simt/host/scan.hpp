// The host's side of scans (../skeleton/scan.cuh): what RLK_SIMT_SCAN says of an operator becomes its implementation,
// for all floating dtypes and strides.
#pragma once

#include "../skeleton/scan.h"
#include "declared.hpp"

namespace rlk::simt::host {

// A call of a scan. Absent arguments are null.
struct ScanCall {
  const rlk_tensor* in = nullptr;  // [rows, columns], or packed with cu_seqlens
  const rlk_tensor* values = nullptr;
  const rlk_tensor* mask = nullptr;
  const rlk_tensor* cu_seqlens = nullptr;
  const rlk_tensor* start_value = nullptr;
  const rlk_tensor* start_sum = nullptr;
  const rlk_tensor* out = nullptr;
  const rlk_tensor* targets = nullptr;
  double discount = 0, decay = 1;
  int32_t rule = simt::kScanCarry;
  bool from_first = false;  // rows are read backwards

  sdk::Dtype dtype() const { return sdk::dtype_of(*in); }
  bool is_packed() const noexcept { return cu_seqlens != nullptr; }
  int64_t rows() const { return is_packed() ? cu_seqlens->shape[0] - 1 : in->shape[0]; }
  int64_t length() const { return is_packed() ? in->shape[0] : in->shape[1]; }  // packed: of all sequences
};

// Sums of each row from its first number to each one, or from each one to its last.
inline ScanCall sums_from_first(const rlk_tensor* out, const rlk_tensor* in) {
  ScanCall scan;
  scan.out = out;
  scan.in = in;
  scan.from_first = true;
  return scan;
}
inline ScanCall sums_to_last(const rlk_tensor* out, const rlk_tensor* in) {
  ScanCall scan = sums_from_first(out, in);
  scan.from_first = false;
  return scan;
}
template <class Rule>
int32_t scan_rule(Rule rule) {
  return rule == Rule::carry ? simt::kScanCarry : rule == Rule::zero ? simt::kScanZero : simt::kScanReset;
}
// Of operators on sequences of tokens, by their rewards. a = reward + gamma v' - v + gamma lam a, with the targets a +
// v; and a = reward + gamma a.
template <class Call>
ScanCall scan_of_rewards(const Call& call, const rlk_tensor* out) {
  ScanCall scan = sums_to_last(out, call.rewards);
  scan.mask = call.mask;
  scan.cu_seqlens = call.cu_seqlens;
  scan.rule = scan_rule(call.params.mask_rule);
  return scan;
}
template <class Call>
ScanCall discounted_advantages(const Call& call) {
  ScanCall scan = scan_of_rewards(call, call.advantages);
  scan.values = call.values;
  scan.start_value = call.bootstrap;
  scan.targets = call.returns;
  scan.discount = call.params.gamma;
  scan.decay = call.params.gamma * call.params.lam;
  return scan;
}
template <class Call>
ScanCall discounted_returns(const Call& call) {
  ScanCall scan = scan_of_rewards(call, call.returns);
  scan.start_sum = call.bootstrap;
  scan.decay = call.params.gamma;
  return scan;
}

struct ScanKernels {
  const char* image;
  const char* prefix;  // of the kernels' names
  bool has_tokens;     // sequences, masks and the like
};

// Whether the kernel for the commonest sequences can have the call (../skeleton/plain_scan.cuh).
bool is_plain_scan(const simt::ScanArgs& args, int wave);

// The kernel's arguments on a device of such waves and so many multiprocessors; their places in the workspace, when it
// is there, and the bytes it takes.
simt::ScanArgs arguments_of_scan(const ScanCall& call, int wave, int64_t multiprocessors);
uint64_t place_scan(const ScanCall& call, simt::ScanArgs& args, void* workspace);
// Whether waves have rows of packs, read and written in one direction (../skeleton/scan_rows.cuh).
bool is_of_packs(const simt::ScanArgs& args);

class ScanPlan : public KernelPlan {
public:
  static sdk::Support support(const Device& device, const ScanCall& call);
  ScanPlan(Device& device, const ScanKernels& kernels, const ScanCall& call);

protected:
  void launch(sdk::Stream& stream, const ScanCall& call, const sdk::Run& run) const;
  uint64_t workspace_of(const ScanCall& call) const;

private:
  FunctionHandle kernel_, packs_ = nullptr, plain_ = nullptr, kept_ = nullptr, check_ = nullptr;
  int wave_;
  int64_t multiprocessors_;
};

// Declared: what RLK_SIMT_SCAN made of an operator.
template <class Declared>
struct Scans : DeclaredBy<Declared, ScanPlan> {
  static constexpr const char* kName = "scan";
};

}  // namespace rlk::simt::host
