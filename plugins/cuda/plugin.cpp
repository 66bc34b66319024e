// The plugin for NVIDIA devices: what it is called, what it brings.
#include "../simt/host/plugin.hpp"
#include "../simt/host/grouped.hpp"

#include "attention_fixed_mma.hpp"
#include "attention_gradients_mma.hpp"
#include "attention_gradients_wgmma.hpp"
#include "attention_mma.hpp"
#include "attention_parts_mma.hpp"
#include "attention_wgmma.hpp"
#include "cublaslt.hpp"
#include "driver.hpp"
#include "grouped_mma.hpp"
#include "linear_logp_backward_wgmma.hpp"
#include "linear_logp_wgmma.hpp"
#include "paged_attention_mma.hpp"
#include "prefix_attention_wgmma.hpp"
#include "probe.hpp"

namespace rlk::cuda {

class Plugin final : public simt::host::Plugin {
public:
  // In the order in which they are tried where no call has asked for one.
  using Implementations = simt::host::PackStrided<decltype(std::tuple_cat(
      std::declval<std::tuple<simt::host::Logp, simt::host::LogpBackward>>(), std::declval<simt::host::Maps>(),
      std::declval<products::Implementations<CublasLt>>(),
      std::declval<std::tuple<LinearLogpWgmma, LinearLogpBackwardWgmma, AttentionWgmma, AttentionWgmmaAccurate,
                              AttentionMma, AttentionMmaAccurate, AttentionSplit, AttentionFixed,
                              PagedAttentionMmaSplit, PagedAttentionMmaFixed, PrefixSharedAttentionWgmma,
                              PrefixSharedAttentionMma, PrefixSharedAttentionMmaAccurate, AttentionBackwardWgmma,
                              AttentionBackwardMma, PrefixSharedAttentionBackwardMma>>(),
      std::declval<simt::host::AttentionOperators>(),
      std::declval<std::tuple<GroupedGemmWgmma, GroupedGemmBackwardWgmma, GroupedGemmMma, GroupedGemmBackwardMma,
                              simt::host::GroupedGemmSimt, simt::host::GroupedGemmBackwardSimt>>()))>;
  explicit Plugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence& evidence) override { return cuda::probe(evidence); }
};

}  // namespace rlk::cuda

const rlk::simt::host::Driver& rlk::simt::host::driver() {
  static const Driver table = cuda::open_driver();
  return table;
}

RLK_PLUGIN_WITH_ENVIRONMENT(rlk::cuda::Plugin, "cuda", "cuda", "0.1.0",
                            "operators for NVIDIA devices of sm_80 and later",
                            "LD_LIBRARY_PATH,CUDA_VISIBLE_DEVICES,CUDA_HOME,CUDA_PATH,MACA_PATH,RLK_CUDA_REMOTE")
