// The operators that a vendor's library of products serves, each an implementation of the library's name. What they do
// is said where it is defined. Vendor::kName is that name.
#pragma once

#include <rlk/sdk/ops/fused_linear_cross_entropy.hpp>
#include <rlk/sdk/ops/gemm.hpp>
#include <rlk/sdk/ops/linear.hpp>
#include <rlk/sdk/ops/linear_backward.hpp>
#include <rlk/sdk/ops/linear_cross_entropy.hpp>
#include <rlk/sdk/ops/linear_cross_entropy_backward.hpp>
#include <rlk/sdk/ops/linear_jsd.hpp>
#include <rlk/sdk/ops/linear_jsd_backward.hpp>
#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>
#include <rlk/sdk/ops/matmul.hpp>
#include <rlk/sdk/ops/matmul_backward.hpp>

#include "../simt/host/device.hpp"

#include <memory>
#include <tuple>

namespace rlk::products {

using simt::host::Device;

// query and plan of each are defined in a file of its family.
#define RLK_PRODUCTS_OPERATORS(X) \
  X(FusedLinearCrossEntropy)      \
  X(Gemm)                         \
  X(Linear)                       \
  X(LinearBackward)               \
  X(LinearCrossEntropy)           \
  X(LinearCrossEntropyBackward)   \
  X(LinearJsd)                    \
  X(LinearJsdBackward)            \
  X(LinearLogp)                   \
  X(LinearLogpBackward)           \
  X(Matmul)                       \
  X(MatmulBackward)

#define RLK_PRODUCTS_DECLARE(Name)                                           \
  sdk::Support query(Device& device, const sdk::Call<sdk::ops::Name>& call); \
  std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<sdk::ops::Name>& call);
RLK_PRODUCTS_OPERATORS(RLK_PRODUCTS_DECLARE)
#undef RLK_PRODUCTS_DECLARE

// Sizes of which some cases must be for the others' algorithm to be tried.
template <class Operator>
struct SizesOf {};
template <>
struct SizesOf<sdk::ops::Linear> {  // together, rows of 16-bit elements that are multiples of 16 bytes
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "K", 64}, {sizeof(rlk_switch), 0, "M", 128}};
};

template <class Vendor, class Operator>
struct Implementation : SizesOf<Operator> {
  using Op = Operator;
  static constexpr const char* kName = Vendor::kName;
  static sdk::Support query(Device& device, const sdk::Call<Op>& call) { return products::query(device, call); }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    return products::plan(device, call);
  }
};

#define RLK_PRODUCTS_ONE(Name) std::declval<std::tuple<Implementation<Vendor, sdk::ops::Name>>>(),
template <class Vendor>
using Implementations = decltype(std::tuple_cat(RLK_PRODUCTS_OPERATORS(RLK_PRODUCTS_ONE) std::tuple<>()));
#undef RLK_PRODUCTS_ONE

}  // namespace rlk::products
