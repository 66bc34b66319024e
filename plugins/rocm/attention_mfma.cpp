// attention on matrix units: which devices and calls have them, and the launch (kernels/attention_mfma.cuh).
#include "attention_mfma.hpp"

#include "kernels/attention_mfma.h"

namespace rlk::rocm {
namespace {

using namespace simt::host;

using Op = sdk::ops::Attention;

constexpr const char* kImage = "attention_mfma";
constexpr int64_t kMostHead = 256;

class AttentionMfmaPlan final : public AttentionPlan {
public:
  AttentionMfmaPlan(Device& device, const sdk::Call<Op>& described)
      : AttentionPlan(device, described), multiprocessors_(device.multiprocessors()) {
    const auto call = sdk::arguments_of(described);
    const int head = attention_mfma_head(static_cast<int>(call.D));
    shared_ = attention_mfma_shared_bytes(head);
    const std::string prefix = sdk::format("%s_%s_%d_", kImage, sdk::name_of(sdk::dtype_of(*call.q)), head);
    const bool options = params_.softcap != 0 || call.key_mask != nullptr;
    few_ = device.kernel(kImage, prefix + (options ? "64_options" : "64"), shared_);
    if (!options && head <= 128) many_ = device.kernel(kImage, prefix + "128", shared_);
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    simt::AttentionArgs args = arguments(run);
    args.block_rows = many_ != nullptr && is_for_large_blocks(args, multiprocessors_) ? kLargeBlock : kSmallBlock;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    start(args, handle);
    if (args.queries == 0) return;
    launch(args.block_rows == kLargeBlock ? many_ : few_, attention_grid(args), kMfmaThreads, shared_, handle, args);
  }

private:
  int64_t multiprocessors_;
  int shared_ = 0;
  FunctionHandle few_ = nullptr, many_ = nullptr;  // the latter not with options, nor of heads above 128, whose
                                                   // registers it has no room for
};

}  // namespace

sdk::Refusal refuse_matrix_unit(const std::string& architecture, int width, sdk::Dtype dtype) {
  if (width != 64) {
    return sdk::Support::no("SIMT_WIDTH",
                            sdk::format("the device executes %d threads together; the kernels of its matrix unit are "
                                        "made for 64",
                                        width));
  }
  const auto is = [&](const char* name) { return architecture == name; };
  const bool is_first = is("gfx908"), is_second = is("gfx90a");
  if (!is_first && !is_second && !is("gfx940") && !is("gfx941") && !is("gfx942") && !is("gfx950")) {
    return sdk::Support::no("ARCH", sdk::format("the device is %s; these kernels are made of an instruction that CDNA "
                                                "devices from gfx908 to gfx950 have",
                                                architecture.empty() ? "not named" : architecture.c_str()));
  }
  if (is_first && dtype == sdk::Dtype::bf16) {
    return sdk::Support::no("DTYPE", "gfx908 has the instruction of these kernels for f16 and not for bf16");
  }
  if (is_second && dtype == sdk::Dtype::f16) {
    return sdk::Support::no("SUBNORMALS",
                            "the matrix unit of gfx90a takes subnormal f16 numbers, those below 2^-14, for 0");
  }
  return std::nullopt;
}

sdk::Support AttentionMfma::query(Device& device, const sdk::Call<Op>& described) {
  if (auto refused = refuse_attention(device, described)) return *refused;
  const auto call = sdk::arguments_of(described);
  if (auto refused = sdk::refuse_dtype(call.q, "q", {sdk::Dtype::bf16, sdk::Dtype::f16})) return *refused;
  if (auto refused = refuse_matrix_unit(device.arch(), device.simt_width(), sdk::dtype_of(*call.q))) return *refused;
  if (auto refused = refuse_head_size(call.D, kMostHead, "the kernels on matrix units")) return *refused;
  if (auto refused = refuse_narrow({call.q, call.k, call.v, call.out}, "q, k, v and out")) return *refused;
  const int shared = attention_mfma_shared_bytes(attention_mfma_head(static_cast<int>(call.D)));
  if (auto refused = refuse_shared_memory(call.D, shared, device.shared_limit())) return *refused;
  sdk::Support answer = sdk::Support::yes(kName, kAttentionNumerics & ~RLK_NUMERICS_ACCURATE, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = attention_workspace(attention_sizes(described));
  answer.cost_us = attention_matrix_us(device, described, 1.0);
  return answer;
}

std::unique_ptr<sdk::Plan> AttentionMfma::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionMfmaPlan>(device, call);
}

}  // namespace rlk::rocm
