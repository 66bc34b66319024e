// embedding_backward: sums of the rows of each id, which are neighbours in the order of the ids, by doubling, in twice
// the digits of fp32. aclnnEmbeddingDenseBackward adds in an order of its own.
#pragma once

#include <rlk/sdk/ops/embedding_backward.hpp>

#include "plan.hpp"

namespace rlk::ascend {

struct EmbeddingBackward {
  using Op = sdk::ops::EmbeddingBackward;
  static constexpr const char* kName = "sorted";
  static sdk::Support query(Device&, const sdk::Call<Op>&);
  static std::unique_ptr<sdk::Plan> plan(Device&, const sdk::Call<Op>&);
};

}  // namespace rlk::ascend
