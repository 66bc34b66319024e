// attention on tensor cores: for 16-bit tensors that 16-byte accesses can address (kernels/attention_mma.cuh).
#include "attention_mma.hpp"

namespace rlk::cuda {
namespace {

using namespace simt::host;

// The head size of the kernels that compute this one.
int padded(int64_t head) {
  return head <= 64 ? 64 : head <= 96 ? 96 : head <= 128 ? 128 : head <= 192 ? 192 : 256;
}

// One accuracy of the kernels.
struct Kernels {
  const char* name;   // of the implementation
  const char* image;  // of the kernels, and what their names begin with
  uint32_t numerics;
  double matrix_work;  // in products of queries and keys, and weights and values
};
constexpr Kernels kRounded{AttentionMma::kName, "attention_mma", kAttentionNumerics & ~RLK_NUMERICS_ACCURATE, 1.0};
constexpr Kernels kAccurate{AttentionMmaAccurate::kName, "attention_mma_accurate", kAttentionNumerics, 1.5};

class AttentionMmaPlan final : public AttentionPlan {
public:
  AttentionMmaPlan(Device& device, const sdk::Call<sdk::ops::Attention>& described, const Kernels& kernels)
      : AttentionPlan(device, described), multiprocessors_(device.multiprocessors()) {
    const auto call = sdk::arguments_of(described);
    head_ = padded(call.D);
    const std::string prefix = sdk::format("%s_%s_%d_", kernels.image, sdk::name_of(sdk::dtype_of(*call.q)), head_);
    const bool options = params_.softcap != 0 || call.key_mask != nullptr;
    few_ = device.kernel(kernels.image, prefix + (options ? "64_options" : "64"),
                         simt::attention_mma_shared_bytes(head_, 64));
    // Devices without the room of a data centre's (sm_86, sm_89, sm_120) compute wide heads in small blocks alone.
    const int shared = simt::attention_mma_shared_bytes(head_, 128);
    if (options || shared > device.shared_limit()) return;
    many_ = device.kernel(kernels.image, prefix + "128", shared);
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    simt::AttentionArgs args = arguments(run);
    args.block_rows = many_ != nullptr && is_for_large_blocks(args, multiprocessors_) ? kLargeBlock : kSmallBlock;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    start(args, handle);
    if (args.queries == 0) return;
    // Large blocks of a head size above 128 take 8 warps, all others 4.
    const int threads = args.block_rows == kLargeBlock && head_ > 128 ? 256 : 128;
    launch(args.block_rows == kLargeBlock ? many_ : few_, attention_grid(args), threads,
           simt::attention_mma_shared_bytes(head_, args.block_rows), handle, args);
  }

private:
  int64_t multiprocessors_;
  int head_ = 0;
  FunctionHandle few_ = nullptr, many_ = nullptr;  // the latter not with options, whose registers it has no room for,
                                                   // nor where a block's shared memory has none
};

sdk::Support support_of(Device& device, const sdk::Call<sdk::ops::Attention>& described, const Kernels& kernels) {
  if (auto refused = refuse_attention(device, described)) return *refused;
  const auto call = sdk::arguments_of(described);
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  const AttentionSizes sizes = attention_sizes(described);
  if (sizes.head % 8 != 0) {
    return sdk::Support::no("HEAD_SIZE", sdk::format("head size %lld; the tensor core kernels take multiples of 8",
                                                     static_cast<long long>(sizes.head)));
  }
  if (auto refused = refuse_narrow({call.q, call.k, call.v, call.out}, "q, k, v and out")) return *refused;
  const int shared = simt::attention_mma_shared_bytes(padded(sizes.head), 64);
  if (auto refused = refuse_shared_memory(sizes.head, shared, device.shared_limit())) return *refused;
  sdk::Support answer = sdk::Support::yes(kernels.name, kernels.numerics, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = attention_workspace(sizes);
  answer.cost_us = attention_matrix_us(device, described, kernels.matrix_work);
  return answer;
}

}  // namespace

sdk::Support AttentionMma::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kRounded);
}
std::unique_ptr<sdk::Plan> AttentionMma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionMmaPlan>(device, call, kRounded);
}

sdk::Support AttentionMmaAccurate::query(Device& device, const sdk::Call<Op>& call) {
  return support_of(device, call, kAccurate);
}
std::unique_ptr<sdk::Plan> AttentionMmaAccurate::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionMmaPlan>(device, call, kAccurate);
}

}  // namespace rlk::cuda
