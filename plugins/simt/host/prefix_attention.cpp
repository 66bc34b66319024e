// prefix_shared_attention without matrix units (../prefix_attention.cuh).
#include "attention_samples.hpp"
#include "operators.hpp"

namespace rlk::simt::host {
namespace {

using Op = sdk::ops::PrefixSharedAttention;

class PrefixAttentionPlan final : public OperatorPlan<Op> {
public:
  PrefixAttentionPlan(Device& device, const sdk::Call<Op>& call)
      : OperatorPlan(device, call), shared_(device, dtype_of(call)) {
    kernel_ = device.kernel("prefix_attention", std::string("prefix_attention_") + sdk::name_of(dtype_of(call)),
                            shared_.most());
    dynamic_symbols = sample_symbols<Op>();
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    simt::SampleAttentionArgs args{};
    set_samples(args, arguments_of(run));
    args.key_columns = static_cast<int32_t>(shared_.columns(args.head_size));
    const int64_t blocks = ceil_divide(args.samples * args.queries * args.group, simt::kSimtBlockRows);
    const PlaceScope scope(place_);
    launch(kernel_, args.batches * args.kv_heads * blocks, simt::kSimtWaves * shared_.wave,
           shared_.bytes(args.head_size), own(stream).handle(), args);
  }

private:
  static sdk::Dtype dtype_of(const sdk::Call<Op>& call) { return sdk::dtype_of(*sdk::arguments_of(call).q); }

  SimtShared shared_;
  FunctionHandle kernel_ = nullptr;
};

}  // namespace

sdk::Support PrefixSharedAttentionSimt::query(Device& device, const sdk::Call<Op>& call) {
  if (auto refused = device.refusal()) return *refused;
  const auto named = sdk::arguments_of(call);
  const sdk::Dtype dtype = sdk::dtype_of(*named.q);
  if (auto refused = refuse_dtype(named.q, "q")) return *refused;
  if (auto refused = refuse_scores(named.params.scale, named.params.softcap, dtype)) return *refused;
  if (auto refused = refuse_strided_heads({{named.q, "q"},
                                           {named.prefix_k, "prefix_k"},
                                           {named.prefix_v, "prefix_v"},
                                           {named.k, "k"},
                                           {named.v, "v"},
                                           {named.out, "out"}})) {
    return *refused;
  }
  if (auto refused = SimtShared(device, dtype).refuse(named.D)) return *refused;
  sdk::Support answer = sdk::Support::yes(kName, kAttentionNumerics, RLK_SUPPORT_OK);
  // As attention without matrix units, whose tiles these are.
  const bool halved = named.params.causal != decltype(named.params.causal)::off && named.Sq > 1 && named.Sp == 0;
  const double operations = 4.0 * sample_pairs(named) * static_cast<double>(named.D) * (halved ? 0.5 : 1.0);
  answer.cost_us = kLaunchUs + device.matrix_us(slower_than_matrix_units(dtype) * operations);
  return answer;
}
std::unique_ptr<sdk::Plan> PrefixSharedAttentionSimt::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<PrefixAttentionPlan>(device, call);
}

}  // namespace rlk::simt::host
