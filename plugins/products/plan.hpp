// The plan of an operator that is a list of products, one after another.
#pragma once

#include <rlk/sdk/arguments.hpp>

#include "product.hpp"

#include <algorithm>
#include <vector>

namespace rlk::products {

// fp32 is never rounded to fewer digits on the way, and every sum has one order; which one may depend on the other
// sizes.
constexpr uint32_t kProductNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;
constexpr const char* kVariant = "library";

// Products: a function from the operator's arguments to the products.
template <class Op, std::vector<Product> (*Products)(const sdk::Arguments<Op>&)>
class ProductsPlan final : public simt::host::OperatorPlan<Op> {
public:
  ProductsPlan(Device& device, const sdk::Call<Op>& call, int64_t sdk::Arguments<Op>::*dynamic)
      : simt::host::OperatorPlan<Op>(device, call), multiplier_(device) {
    this->dynamic_symbols = sdk::bits_of(dynamic);
    this->workspace_bound = UINT64_MAX;
    workspace_of(Products(sdk::arguments_of(call)));  // there is an algorithm
  }
  uint64_t prepare(const sdk::Run& run) override { return workspace_of(Products(this->arguments_of(run))); }
  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const simt::host::PlaceScope scope(this->place_);
    for (const Product& product : Products(this->arguments_of(run))) {
      multiplier_.run(product, simt::host::own(stream).handle(), run.workspace());
    }
  }

private:
  uint64_t workspace_of(const std::vector<Product>& products) {
    uint64_t bytes = 0;
    for (const Product& product : products) bytes = std::max(bytes, multiplier_.workspace_of(product));
    return bytes;
  }

  Multiplier multiplier_;
};

// numerics: what is claimed of a library that lets the caller choose how parts of a sum are added; of another, nothing.
inline sdk::Support supported(double cost_us, uint64_t workspace, uint32_t numerics = kProductNumerics) {
  if (library().numbers.reductions == kNone) numerics = 0;
  sdk::Support answer = sdk::Support::yes(kVariant, numerics, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = workspace;
  answer.cost_us = cost_us;
  return answer;
}

}  // namespace rlk::products
