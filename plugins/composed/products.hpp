// products: matrices multiplied. An operator's file says what is recorded of a call:
//
//   RLK_COMPOSED_PRODUCTS(Matmul, (), (), { out(call.y, product(factor(call.a, true), factor(call.b, true))); })
//
// The operator's name, its parameters as doubles, what fp32 must be able to hold of them, and statements. factor(view,
// is_result) is a tensor of a product: as it is where the product becomes an output without another rounding
// (is_result) and the vendor rounds once, else in the type in which the formula counts. No vendor documents the order
// of its sums.
#pragma once

#include "rows.hpp"

namespace rlk::composed {

template <class D>
struct FactorReader {
  Recorder& recorder;

  Value operator()(const View& view, bool is_result) const {
    const int value = recorder.input(view);
    return {&recorder, is_result && recorder.rounds_products() ? value : recorder.cast(value, D::kDtype)};
  }
};

}  // namespace rlk::composed

#define RLK_COMPOSED_PRODUCTS(OP, numbers, factors, ...)                                                          \
  namespace rlk::composed {                                                                                       \
  struct OP##Products {                                                                                           \
    using Op = sdk::ops::OP;                                                                                      \
    static constexpr uint32_t kNumerics = 0;                                                                      \
    static constexpr bool kChunks = false;                                                                        \
    static sdk::Refusal refuse(const Arguments<Op>&, const Abilities&) { return std::nullopt; }                   \
    static Factors factors_of([[maybe_unused]] const Arguments<Op>& call) { return {RLK_COMPOSED_LIST factors}; } \
    static void record_call(Recorder& recorder, const Arguments<Op>& call) {                                      \
      record_rows(recorder, any_f64<Op>(call), [&](auto d) {                                                      \
        using V [[maybe_unused]] = Value;                                                                         \
        [[maybe_unused]] const Reader<decltype(d)> in{recorder};                                                  \
        const Writer out{recorder};                                                                               \
        const FactorReader<decltype(d)> factor{recorder};                                                         \
        RLK_COMPOSED_LIST numbers __VA_ARGS__                                                                     \
      });                                                                                                         \
    }                                                                                                             \
  };                                                                                                              \
  }                                                                                                               \
  RLK_COMPOSED_LISTED(OP##Products)
