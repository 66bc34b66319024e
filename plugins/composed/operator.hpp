// An operator by its formula, on any vendor: query records the program of a call and finds what the vendor lacks, a
// plan records it anew for the sizes of a run. A vendor is a class with
//
//   using Device = ...;
//   static constexpr const char* kName;                    // of its implementations
//   static const Primitives& primitives();
//   static sdk::Refusal refuse(const rlk_call_desc&);      // tensors that it can read in no way
//   static std::unique_ptr<sdk::Plan> plan(Device&, const Shape&, Recipe);
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>

#include "parts.hpp"

namespace rlk::composed {

// Parameters that a formula multiplies by, and their names.
struct Factor {
  const char* name;
  double value;
};
using Factors = std::vector<Factor>;
// Empty where each can be used in fp32.
sdk::Refusal refuse_factors(const Factors& factors);

// What a vendor's own call for the whole operator takes, which passes over every tensor once.
double cost_of_call(const Speed& speed, const rlk_call_desc& desc);

bool has_f64(const std::vector<View>& views);
template <class Op>
bool any_f64(const Arguments<Op>& call) {
  bool found = false;
  const auto look = [&](const View& view) { found = found || (view.is_present() && view.dtype == sdk::Dtype::f64); };
  Arguments<Op>::each_input(call, look);
  Arguments<Op>::each_output(call, look);
  return found;
}

// How many of each an operator has, and what the host reads of its inputs: programs depend on it.
struct Shape {
  uint32_t inputs, outputs, symbols;
  uint64_t host_inputs = 0;
};
// The program of a run.
using Recipe = std::function<Program(const sdk::Run&)>;

// What is the same on every vendor, compiled once for all (composition.hpp): a plugin has it from rlk_composed.
template <class Operator>
struct Composition {
  using Op = typename Operator::Op;

  // What the host reads of the inputs, bits by input.
  static uint64_t host_inputs(const sdk::Call<Op>& call);
  static sdk::Support query(const char* variant, const Primitives& primitives, const sdk::Call<Op>& call);
  // Primitives live as long as the process.
  static Recipe recipe(const Primitives& primitives, const sdk::Call<Op>& call);
};

// Symbols of any size in one plan, which change from step to step: none unless an operator names some, since a program
// may decline other sizes than it was asked for.
template <class Operator>
uint64_t dynamic_symbols() {
  return 0;
}
// Rows are counted in 32 bits.
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max() - 1;

template <class Vendor, class Operator>
struct Implementation {
  using Op = typename Operator::Op;
  using Device = typename Vendor::Device;
  static constexpr const char* kName = Vendor::kName;

  static sdk::Support query(Device&, const sdk::Call<Op>& call) {
    if (auto no = Vendor::refuse(call.desc())) return *no;
    return Composition<Operator>::query(Vendor::kName, Vendor::primitives(), call);
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    const uint64_t read = Composition<Operator>::host_inputs(call);
    auto made = Vendor::plan(device, {Op::kInputs, Op::kOutputs, Op::kSymbols, read},
                             Composition<Operator>::recipe(Vendor::primitives(), call));
    made->host_inputs = read;
    made->dynamic_symbols = dynamic_symbols<Operator>();
    if (made->dynamic_symbols != 0) {
      made->symbol_min.assign(Op::kSymbols, 0);
      for (uint32_t i = 0; i < Op::kSymbols; ++i) made->symbol_max.push_back(std::max(kMostRows, call.symbol(i)));
    }
    return made;
  }
};

}  // namespace rlk::composed
