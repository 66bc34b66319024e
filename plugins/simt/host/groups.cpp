// Query, plan and launch of every operator on groups: how many threads have a group, and what is asked of all samples.
#include "groups.hpp"

#include <algorithm>

namespace rlk::simt::host {
namespace {

constexpr uint32_t kNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;
constexpr int64_t kSmallestChunk = 8192, kMostChunks = 1024;  // each block of the second launch reads all parts
constexpr int64_t kWaveSamples = 512;                         // of the largest group that a wave has

namespace advantages = sdk::ops::group_advantages;
namespace rewards = sdk::ops::multi_reward_advantages;
namespace whiten = sdk::ops::whiten;

template <class A, class B>
constexpr bool are(A a, B b) {
  return static_cast<int32_t>(a) == static_cast<int32_t>(b);
}
static_assert(are(advantages::Std::unbiased, simt::kStdUnbiased) && are(advantages::Scale::group, simt::kScaleGroup) &&
              are(advantages::Scale::batch, simt::kScaleBatch) && are(advantages::Scale::none, simt::kScaleNone) &&
              are(advantages::Baseline::mean, simt::kBaselineMean) &&
              are(advantages::Baseline::rloo, simt::kBaselineRloo) &&
              are(advantages::Baseline::opo, simt::kBaselineOpo) &&
              are(advantages::Baseline::given, simt::kBaselineGiven) &&
              are(advantages::Baseline::second_best, simt::kBaselineSecondBest) &&
              are(advantages::Singleton::raw, simt::kSingletonRaw) &&
              are(advantages::Rescale::nonzero, simt::kRescaleNonzero) &&
              are(advantages::EpsMode::additive, simt::kEpsAdditive));
static_assert(are(rewards::Std::unbiased, simt::kStdUnbiased) && are(rewards::Scale::batch, simt::kScaleBatch) &&
              are(rewards::Scale::none, simt::kScaleNone) && are(rewards::Baseline::mean, simt::kBaselineMean) &&
              are(rewards::Baseline::rloo, simt::kBaselineRloo) && are(rewards::Singleton::raw, simt::kSingletonRaw) &&
              are(rewards::EpsMode::additive, simt::kEpsAdditive) &&
              are(rewards::Combine::sum_then_normalize, simt::kCombineSums) &&
              are(rewards::Combine::normalize_then_sum, simt::kCombineNormal));
static_assert(are(whiten::Std::unbiased, simt::kStdUnbiased) && are(whiten::EpsMode::variance, simt::kWhitenVariance) &&
              are(whiten::EpsMode::variance_floor, simt::kWhitenVarianceFloor) &&
              are(whiten::EpsMode::deviation, simt::kWhitenDeviation) &&
              are(whiten::ShiftMean::on, simt::kShiftMeanOn));

namespace resampling = sdk::ops::resampling_weights;
static_assert(are(resampling::Method::pow, simt::kMethodPow) && are(resampling::Method::max_min, simt::kMethodMaxMin) &&
              are(resampling::Method::max_random, simt::kMethodMaxRandom));

// Along a dimension of one place nothing moves, whatever the stride says.
int64_t stride_of(const rlk_tensor& tensor, int32_t d) {
  return d >= tensor.ndim || tensor.shape[d] == 1 ? 0 : tensor.strides[d];
}
simt::GridTensor grid_tensor(const rlk_tensor* tensor) {
  simt::GridTensor out{};
  if (tensor == nullptr) return out;
  out.data = sdk::data_of(tensor);
  out.dtype = static_cast<int32_t>(sdk::dtype_of(*tensor));
  out.row = stride_of(*tensor, 0);
  out.column = stride_of(*tensor, 1);
  return out;
}

// Numbers of a matrix that follow each other by one stride, which becomes that of its columns.
bool join_rows(simt::GridTensor& tensor, int64_t rows, int64_t columns) {
  if (tensor.data == nullptr) return true;
  if (columns == 1) {
    tensor.column = tensor.row;
    return true;
  }
  return rows == 1 || tensor.row == tensor.column * columns;
}

// Threads of a group of so many samples, or of about as many.
int32_t team_of(int64_t samples, int wave) {
  if (samples > kWaveSamples) return simt::kGroupThreads;
  int32_t threads = 1;
  while (threads < samples && threads < wave) threads *= 2;
  return threads;
}

// Whether as many samples can be read and written at once.
bool in_packs(const simt::GridTensor& tensor, int64_t samples) {
  const auto bytes = static_cast<uintptr_t>(samples * sdk::bytes_of(static_cast<sdk::Dtype>(tensor.dtype)));
  return tensor.row == 1 && bytes <= 16 && reinterpret_cast<uintptr_t>(tensor.data) % bytes == 0;
}

// Whether a thread's kGroupItems neighbours, of at most 32 bits each, are whole packs of memory.
bool numbers_in_packs(const simt::GroupArgs& args) {
  if (args.one_row == 0 || args.samples % simt::kGroupItems != 0) return false;
  const auto fits = [](const simt::GridTensor& tensor, uintptr_t pack_bytes) {
    return tensor.data == nullptr || (tensor.column == 1 && reinterpret_cast<uintptr_t>(tensor.data) % pack_bytes == 0);
  };
  const auto is_f64 = [](const simt::GridTensor& tensor) { return tensor.dtype == simt::kMapF64; };
  return !is_f64(args.x) && !is_f64(args.out) && fits(args.x, 16) && fits(args.out, 16) &&
         fits(args.mask, simt::kGroupItems);
}

// Samples of a thread where groups are small (small_groups.cuh), or 0.
int32_t small_pack(const GroupsCall& call, const simt::GroupArgs& args, int wave) {
  const bool is_mean = call.baseline == simt::kBaselineMean || call.baseline == simt::kBaselineRloo ||
                       call.baseline == simt::kBaselineGiven;
  if (!call.has_small || call.asks_all() || !is_mean || call.dtype() == sdk::Dtype::f64 || args.group_samples > wave) {
    return 0;
  }
  const bool fits =
      args.group_samples % 4 == 0 && args.mask.data == nullptr && in_packs(args.x, 4) && in_packs(args.out, 4);
  return !fits ? 1 : args.group_samples % 8 == 0 ? 8 : 4;
}

}  // namespace

sdk::Support GroupsPlan::support(const Device& device, const GroupsCall& call) {
  if (auto refused = device.refusal()) return *refused;
  if (auto refused = refuse_dtype(call.x, call.is_matrix ? "x" : "rewards")) return *refused;
  if (auto refused = refuse_dtype(call.out, call.is_matrix ? "y" : "advantages")) return *refused;
  sdk::Support answer = sdk::Support::yes("groups", kNumerics, RLK_SUPPORT_PREFERRED);
  const auto bytes = static_cast<double>(sdk::element_count(*call.x) * sdk::bytes_of(call.dtype()));
  answer.cost_us = (call.asks_all() ? 2 : 1) * (kLaunchUs + device.bytes_us(2 * bytes));
  answer.workspace_bound = UINT64_MAX;
  return answer;
}

simt::GroupArgs arguments_of_groups(const GroupsCall& call, int wave) {
  simt::GroupArgs args{};
  args.x = grid_tensor(call.x);
  args.mask = grid_tensor(call.mask);
  args.weights = grid_tensor(call.weights);
  args.lengths = grid_tensor(call.lengths);
  args.baselines = grid_tensor(call.baselines);
  args.ids = grid_tensor(call.ids != nullptr ? call.ids : call.boundaries);
  args.mean = grid_tensor(call.mean);
  args.variance = grid_tensor(call.variance);
  args.out = grid_tensor(call.out);
  args.samples = call.is_matrix ? call.rows() * call.columns() : call.rows();
  args.columns = call.columns();
  args.eps = call.eps;
  args.std = call.std;
  args.eps_mode = call.eps_mode;
  args.scale = call.scale;
  args.baseline = call.baseline;
  args.singleton = call.singleton;
  args.rescale = call.rescale;
  args.combine = call.combine;
  args.shift_mean = call.shift_mean;
  args.method = call.method;
  args.power = call.power;
  args.best_weight = call.best_weight;
  args.other_weight = call.other_weight;
  args.dtype = static_cast<int32_t>(call.dtype());
  // Whole packs.
  args.chunk = std::max(kSmallestChunk, ceil_divide(args.samples, kMostChunks * simt::kGroupItems) * simt::kGroupItems);
  args.chunks = ceil_divide(args.samples, args.chunk);
  if (call.is_matrix) {
    args.team = simt::kGroupThreads;
    args.one_row = join_rows(args.x, call.rows(), call.columns()) &&
                           join_rows(args.mask, call.rows(), call.columns()) &&
                           join_rows(args.out, call.rows(), call.columns())
                       ? 1
                       : 0;
    args.in_packs = numbers_in_packs(args) ? 1 : 0;
    return args;
  }
  if (call.ids != nullptr) {
    args.grouping = simt::kGroupingIds;
    args.team = wave;
  } else if (call.boundaries != nullptr) {
    args.grouping = simt::kGroupingBoundaries;
    args.groups = call.boundaries->shape[0] - 1;
    args.team = team_of(args.groups > 0 ? ceil_divide(args.samples, args.groups) : 0, wave);
  } else {
    args.grouping = simt::kGroupingFixed;
    args.group_samples = call.samples_per_prompt > 0 ? call.samples_per_prompt : args.samples;
    args.groups = args.samples > 0 ? args.samples / args.group_samples : 0;
    args.pack = small_pack(call, args, wave);
    const int64_t free = args.std == simt::kStdUnbiased ? args.group_samples - 1 : args.group_samples;
    args.share = 1 / static_cast<double>(std::max<int64_t>(args.group_samples, 1));
    args.free_share = 1 / static_cast<double>(std::max<int64_t>(free, 1));
    args.team = team_of(args.group_samples / std::max(args.pack, 1), wave);
  }
  return args;
}

uint64_t place_groups(const GroupsCall& call, simt::GroupArgs& args, void* workspace) {
  Workspace at(workspace);
  uint64_t bytes = 0;
  const auto take = [&](auto*& part, int64_t count, uint64_t each) {
    const uint64_t size = static_cast<uint64_t>(count) * each;
    bytes += align_256(size);
    if (workspace != nullptr) part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(at.take<char>(size));
  };
  if (call.boundaries != nullptr && args.groups > simt::kGroupOwnCheck) take(args.bad, 1, sizeof(int64_t));
  if (call.asks_all() && args.samples > 0) take(args.part, call.rewards() * args.chunks, simt::kGroupPartBytes);
  // Sums of rewards that are normalised each; a single one may have a weight.
  if (!call.is_matrix && call.combine == simt::kCombineNormal && (call.columns() > 1 || call.weights != nullptr)) {
    take(args.sums, args.samples, sizeof(double));
  }
  return bytes;
}

GroupsPlan::GroupsPlan(Device& device, const GroupsKernels& kernels, const GroupsCall& call)
    : KernelPlan(device), wave_(device.simt_width()) {
  const std::string prefix = kernels.prefix, suffix = call.dtype() == sdk::Dtype::f64 ? "f64" : "f32";
  kernel_ = device.kernel(kernels.image, prefix + suffix);
  if (call.asks_all()) parts_ = device.kernel(kernels.image, prefix + "parts_" + suffix);
  if (call.has_small && call.dtype() != sdk::Dtype::f64) small_ = device.kernel(kernels.image, prefix + "small");
  if (call.has_packed && call.dtype() != sdk::Dtype::f64) {
    packed_ = device.kernel(kernels.image, prefix + "packed");
    packed_parts_ = device.kernel(kernels.image, prefix + "packed_parts");
  }
  if (call.boundaries != nullptr) check_ = device.kernel(kernels.image, prefix + "check");
  workspace_bound = UINT64_MAX;
}

uint64_t GroupsPlan::workspace_of(const GroupsCall& call) const {
  simt::GroupArgs args = arguments_of_groups(call, wave_);
  return place_groups(call, args, nullptr);
}

void GroupsPlan::launch(sdk::Stream& stream, const GroupsCall& call, const sdk::Run& run) const {
  simt::GroupArgs args = arguments_of_groups(call, wave_);
  place_groups(call, args, run.workspace());
  args.errors = error_sink(run);
  // What is said of boundaries holds without a sample, too.
  if (args.samples == 0 && call.boundaries == nullptr) return;
  const PlaceScope scope(place_);
  const StreamHandle handle = own(stream).handle();
  const auto run_kernel = [&](FunctionHandle kernel, int64_t blocks) {
    launch_walking(kernel, std::max<int64_t>(blocks, 1), simt::kGroupThreads, 0, handle, args, start_);
  };
  if (call.boundaries != nullptr && args.groups > simt::kGroupOwnCheck) run_kernel(check_, 1);
  const bool is_packed = packed_ != nullptr && args.in_packs != 0;
  if (call.asks_all() && args.samples > 0) {
    run_kernel(is_packed ? packed_parts_ : parts_, call.rewards() * args.chunks);
  }
  if (call.is_matrix) return run_kernel(is_packed ? packed_ : kernel_, args.chunks);
  const int64_t groups = args.grouping == simt::kGroupingIds ? args.samples : args.groups;
  run_kernel(args.pack > 0 ? small_ : kernel_, ceil_divide(groups, simt::kGroupThreads / args.team));
}

}  // namespace rlk::simt::host
