// Query, plan and launch of every scan: whether a wave, a block or a block per chunk has a row.
#include "scan.hpp"

#include <algorithm>
#include <cmath>

namespace rlk::simt::host {
namespace {

constexpr uint32_t kNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
constexpr int64_t kWaveTokens = 512;  // of the longest row that a wave has whatever there is beside it
constexpr int64_t kManyRows = 16;  // of a multiprocessor: as many waves keep memory busy, and need not wait for others

// Along a dimension of one place nothing moves, whatever the stride says.
int64_t stride_of(const rlk_tensor& tensor, int32_t d) {
  return tensor.shape[d] == 1 ? 0 : tensor.strides[d];
}

// per_token: of tokens, else of sequences.
simt::GridTensor scan_tensor(const ScanCall& call, const rlk_tensor* tensor, bool per_token = true) {
  simt::GridTensor out{};
  if (tensor == nullptr) return out;
  out.data = sdk::data_of(tensor);
  out.dtype = static_cast<int32_t>(sdk::dtype_of(*tensor));
  if (!per_token || !call.is_packed()) out.row = stride_of(*tensor, 0);
  if (per_token) out.column = stride_of(*tensor, call.is_packed() ? 0 : 1);
  if (call.from_first && call.length() > 0) {
    out.data = static_cast<char*>(out.data) + (call.length() - 1) * out.column * sdk::bytes_of(sdk::dtype_of(*tensor));
    out.column = -out.column;
  }
  return out;
}

// Whether the neighbours of a thread, of every tensor that the call has, are whole packs.
bool in_packs(const ScanCall& call, const simt::ScanArgs& args) {
  if (call.is_packed() || args.length % simt::kScanItems != 0) return false;
  const auto fits = [&](const simt::GridTensor& tensor, int64_t pack_bytes) {
    if (tensor.data == nullptr) return true;
    if (tensor.column != 1 && tensor.column != -1) return false;
    const int64_t bytes = sdk::bytes_of(static_cast<sdk::Dtype>(tensor.dtype));
    const auto first =
        reinterpret_cast<intptr_t>(tensor.data) - (tensor.column < 0 ? (simt::kScanItems - 1) * bytes : 0);
    return first % pack_bytes == 0 && tensor.row * bytes % pack_bytes == 0;
  };
  return fits(args.in, 16) && fits(args.values, 16) && fits(args.out, 16) && fits(args.targets, 16) &&
         fits(args.mask, simt::kScanItems);
}

bool asks_kept(const ScanCall& call) {
  return call.mask != nullptr && (call.values != nullptr || call.rule != simt::kScanCarry);
}
int64_t slots_of(const simt::ScanArgs& args) {
  return args.cu_seqlens == nullptr ? args.rows * args.chunks : args.chunks;
}

}  // namespace

sdk::Support ScanPlan::support(const Device& device, const ScanCall& call) {
  if (auto refused = device.refusal()) return *refused;
  double bytes = 0;
  const auto takes = [&](const rlk_tensor* tensor, const char* which) -> sdk::Refusal {
    if (tensor == nullptr) return std::nullopt;
    bytes += static_cast<double>(sdk::element_count(*tensor) * sdk::bytes_of(sdk::dtype_of(*tensor)));
    return refuse_dtype(tensor, which);
  };
  if (auto refused = takes(call.in, "input")) return *refused;
  if (auto refused = takes(call.values, "values")) return *refused;
  if (auto refused = takes(call.out, "output")) return *refused;
  if (auto refused = takes(call.targets, "returns")) return *refused;
  sdk::Support answer = sdk::Support::yes("scan", kNumerics, RLK_SUPPORT_PREFERRED);
  answer.cost_us = kLaunchUs + device.bytes_us(bytes);
  answer.workspace_bound = UINT64_MAX;
  return answer;
}

simt::ScanArgs arguments_of_scan(const ScanCall& call, int wave, int64_t multiprocessors) {
  simt::ScanArgs args{};
  args.rows = call.rows();
  args.length = call.length();
  if (call.is_packed()) {
    args.cu_seqlens = sdk::data_of(call.cu_seqlens);
    args.cu_stride = stride_of(*call.cu_seqlens, 0);
    args.cu_are_i64 = sdk::dtype_of(*call.cu_seqlens) == sdk::Dtype::i64 ? 1 : 0;
  }
  args.in = scan_tensor(call, call.in);
  args.values = scan_tensor(call, call.values);
  args.mask = scan_tensor(call, call.mask);
  args.out = scan_tensor(call, call.out);
  args.targets = scan_tensor(call, call.targets);
  args.start_value = scan_tensor(call, call.start_value, false);
  args.start_sum = scan_tensor(call, call.start_sum, false);
  args.discount = call.discount;
  args.decay = call.decay;
  // The fraction is in [3/4, 3/2): common decays are their own.
  args.decay_fraction = std::frexp(call.decay, &args.decay_power);
  if (args.decay_fraction < 0.75) {
    args.decay_fraction *= 2;
    --args.decay_power;
  }
  if (call.decay == 0) args.decay_fraction = args.decay_power = 0;
  args.rule = call.rule;
  args.dtype = static_cast<int32_t>(call.dtype());
  const int64_t longest = args.length, rows = std::max<int64_t>(args.rows, 1);
  const int64_t mean = call.is_packed() ? ceil_divide(args.length, rows) : args.length;
  const bool are_many = !call.is_packed() && args.rows >= kManyRows * multiprocessors;
  args.waves = mean <= kWaveTokens || are_many ? 1 : simt::kScanThreads / wave;
  args.packs = in_packs(call, args) ? 1 : 0;
  // Rows too few to keep the device busy, and one of several chunks.
  if (longest > simt::kScanChunk && args.rows < 2 * multiprocessors && args.rows <= simt::kScanOwnCheck) {
    args.form = simt::kScanChunks;
    args.waves = simt::kScanThreads / wave;
    const int64_t chunks = ceil_divide(longest, simt::kScanChunk);
    args.chunks = call.is_packed() ? longest / simt::kScanChunk + args.rows + 1 : chunks;
  }
  return args;
}

bool is_plain_scan(const simt::ScanArgs& args, int wave) {
  const auto is_f32_row = [](const simt::GridTensor& tensor) {
    return tensor.data == nullptr || (tensor.dtype == simt::kMapF32 && tensor.column == 1);
  };
  // The kernel multiplies a chunk's decays without looking at them.
  constexpr double kFactorBits = 390;
  const bool keeps_factors = args.decay_power == 0 && args.decay > 0 &&
                             std::fabs(std::log2(args.decay_fraction)) * simt::kScanChunk < kFactorBits;
  return keeps_factors && args.form == simt::kScanRows && args.waves == simt::kScanThreads / wave && args.packs != 0 &&
         args.cu_seqlens == nullptr && args.mask.data == nullptr && args.start_sum.data == nullptr &&
         is_f32_row(args.in) && is_f32_row(args.values) && is_f32_row(args.out) && is_f32_row(args.targets) &&
         is_f32_row(args.start_value);
}

uint64_t place_scan(const ScanCall& call, simt::ScanArgs& args, void* workspace) {
  Workspace at(workspace);
  uint64_t bytes = 0;
  const auto take = [&](auto*& part, uint64_t size) {
    bytes += align_256(size);
    if (workspace != nullptr) part = at.take<std::remove_reference_t<decltype(*part)>>(size);
  };
  const auto slots = static_cast<uint64_t>(slots_of(args));
  if (call.is_packed() && args.rows > simt::kScanOwnCheck) take(args.bad, sizeof(int64_t));
  if (args.form != simt::kScanRows) take(args.total, slots * sizeof(simt::ScanTotal));
  if (args.form != simt::kScanRows && asks_kept(call)) take(args.kept, slots * sizeof(int64_t));
  return bytes;
}

bool is_of_packs(const simt::ScanArgs& args) {
  return args.form == simt::kScanRows && args.waves == 1 && args.packs != 0 && args.out.data != nullptr &&
         args.out.dtype == args.in.dtype && args.out.column == args.in.column;
}

ScanPlan::ScanPlan(Device& device, const ScanKernels& kernels, const ScanCall& call)
    : KernelPlan(device), wave_(device.simt_width()), multiprocessors_(device.multiprocessors()) {
  const std::string prefix = kernels.prefix, suffix = call.dtype() == sdk::Dtype::f64 ? "f64" : "f32";
  kernel_ = device.kernel(kernels.image, prefix + suffix);
  if (!kernels.has_tokens && call.dtype() != sdk::Dtype::f64) {
    packs_ = device.kernel(kernels.image, prefix + "packs_" + sdk::name_of(call.dtype()));
  }
  if (kernels.has_tokens) {
    if (call.dtype() == sdk::Dtype::f32) plain_ = device.kernel(kernels.image, prefix + "plain");
    kept_ = device.kernel(kernels.image, prefix + "kept");
    check_ = device.kernel(kernels.image, prefix + "check");
  }
  workspace_bound = UINT64_MAX;
}

uint64_t ScanPlan::workspace_of(const ScanCall& call) const {
  simt::ScanArgs args = arguments_of_scan(call, wave_, multiprocessors_);
  return place_scan(call, args, nullptr);
}

void ScanPlan::launch(sdk::Stream& stream, const ScanCall& call, const sdk::Run& run) const {
  simt::ScanArgs args = arguments_of_scan(call, wave_, multiprocessors_);
  place_scan(call, args, run.workspace());
  args.errors = error_sink(run);
  // What is said of cu_seqlens holds without a token, too.
  if (!call.is_packed() && (args.rows == 0 || args.length == 0)) return;
  const PlaceScope scope(place_);
  const StreamHandle handle = own(stream).handle();
  const auto run_kernel = [&](FunctionHandle kernel, int64_t blocks) {
    launch_walking(kernel, std::max<int64_t>(blocks, 1), simt::kScanThreads, 0, handle, args, start_);
  };
  if (call.is_packed() && args.rows > simt::kScanOwnCheck) run_kernel(check_, 1);
  if (plain_ != nullptr && is_plain_scan(args, wave_)) return run_kernel(plain_, args.rows);
  if (args.form == simt::kScanRows)
    return run_kernel(packs_ != nullptr && is_of_packs(args) ? packs_ : kernel_,
                      ceil_divide(args.rows * args.waves * wave_, simt::kScanThreads));
  const int64_t slots = slots_of(args);
  if (asks_kept(call)) run_kernel(kept_, slots);
  args.form = simt::kScanTotals;
  run_kernel(kernel_, slots);
  args.form = simt::kScanChunks;
  run_kernel(kernel_, slots);
}

}  // namespace rlk::simt::host
