// The implementations that every SIMT vendor registers. What each does is said where it is defined.
#pragma once

#include <rlk/sdk/ops/attention.hpp>
#include <rlk/sdk/ops/attention_backward.hpp>
#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>
#include <rlk/sdk/ops/prefix_shared_attention.hpp>
#include <rlk/sdk/ops/prefix_shared_attention_backward.hpp>

#include "grouped.hpp"
#include "maps.hpp"
#include "operator.hpp"
#include "packed.hpp"
#include "paged_attention.hpp"

namespace rlk::simt::host {

struct Logp {
  using Op = sdk::ops::Logp;
  static constexpr const char* kName = "segments";
  static sdk::Support query(Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
  // Columns of a thread's packs, and of a segment of 8-byte, 4-byte and 2-byte logits: the few columns of a second one
  // are read by the first one's block.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", 4097},
                                             {sizeof(rlk_switch), 0, "V", 8193},
                                             {sizeof(rlk_switch), 0, "V", 16385},
                                             {sizeof(rlk_switch), 0, "V", 32769}};
};

struct LogpBackward {
  using Op = sdk::ops::LogpBackward;
  static constexpr const char* kName = "columns";
  static sdk::Support query(Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", 1025}, {sizeof(rlk_switch), 0, "V", 2049}};
};

struct AttentionSimt {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "simt";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

struct AttentionBackwardSimt {
  using Op = sdk::ops::AttentionBackward;
  static constexpr const char* kName = "simt";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

struct PrefixSharedAttentionSimt {
  using Op = sdk::ops::PrefixSharedAttention;
  static constexpr const char* kName = "simt";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
};

struct PrefixSharedAttentionBackwardSimt {
  using Op = sdk::ops::PrefixSharedAttentionBackward;
  static constexpr const char* kName = "simt";
  static sdk::Support query(Device& device, const sdk::Call<Op>& call);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call);
  // Queries of 3 samples from which on a prefix sums its rows in parts.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "Sq", 22}};
};

// Without matrix units.
using AttentionOperators = std::tuple<AttentionSimt, AttentionBackwardSimt, PrefixSharedAttentionSimt,
                                      PrefixSharedAttentionBackwardSimt, PagedAttentionSplit, PagedAttentionWhole>;

// In the order in which they are tried where no call has asked for one: first what every step of a training wants.
using SharedOperators = PackStrided<decltype(std::tuple_cat(
    std::declval<std::tuple<Logp, LogpBackward>>(), std::declval<Maps>(), std::declval<AttentionOperators>(),
    std::declval<std::tuple<GroupedGemmSimt, GroupedGemmBackwardSimt>>()))>;

}  // namespace rlk::simt::host
