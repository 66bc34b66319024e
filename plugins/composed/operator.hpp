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

// Whether an operator decides on the parts of its programs (parts.hpp).
template <class Operator, class = void>
struct IsInParts : std::false_type {};
template <class Operator>
struct IsInParts<Operator, std::void_t<decltype(&Operator::compose)>> : std::true_type {};

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
    const auto views = views_of<Op>(call, call.params());
    if (!any_f64<Op>(views)) {
      if (auto no = refuse_factors(Operator::factors_of(views))) return *no;
    }
    if (auto no = Operator::refuse(views, Vendor::primitives().abilities)) return *no;
    const Program made = asked(views, aliases_of(call));
    if (made.has_lost_number && !any_f64<Op>(views))
      return sdk::Support::no("PARAMETER", "a parameter is beyond fp32, in which this device computes");
    if (made.refusal) return *made.refusal;
    sdk::Support yes = sdk::Support::yes(Vendor::kName, Operator::kNumerics);
    yes.workspace_bound = std::numeric_limits<uint64_t>::max();
    yes.cost_us = made.cost_us;
    yes.host_inputs = host_inputs(views);
    return yes;
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    const uint64_t read = host_inputs(views_of<Op>(call, call.params()));
    auto made = Vendor::plan(device, {Op::kInputs, Op::kOutputs, Op::kSymbols, read},
                             [params = call.params(), aliases = aliases_of(call)](const sdk::Run& run) {
                               return program(views_of<Op>(run, params), aliases);
                             });
    made->host_inputs = read;
    made->dynamic_symbols = dynamic_symbols<Operator>();
    if (made->dynamic_symbols != 0) {
      made->symbol_min.assign(Op::kSymbols, 0);
      for (uint32_t i = 0; i < Op::kSymbols; ++i) made->symbol_max.push_back(std::max(kMostRows, call.symbol(i)));
    }
    return made;
  }

private:
  static uint64_t host_inputs([[maybe_unused]] const Arguments<Op>& views) {
    if constexpr (IsInParts<Operator>::value) return Operator::host_inputs(views);
    return 0;
  }
  // All at once: what it needs is what its parts need.
  static Program asked(const Arguments<Op>& views, const std::vector<Alias>& aliases) {
    if constexpr (IsInParts<Operator>::value) {
      Parts parts(Vendor::primitives(), aliases, true);
      Operator::compose(parts, views);
      return parts.take();
    } else {
      Recorder recorder(Vendor::primitives().abilities);
      Operator::record_call(recorder, views);
      Program made = program_of(recorder, Vendor::primitives(), aliases);
      made.has_lost_number = recorder.has_lost_number();
      return made;
    }
  }
  static Program program(const Arguments<Op>& views, const std::vector<Alias>& aliases) {
    if constexpr (IsInParts<Operator>::value) {
      Parts parts(Vendor::primitives(), aliases);
      Operator::compose(parts, views);
      return parts.take();
    } else {
      return chunked(views, aliases);
    }
  }
  static Program chunked(const Arguments<Op>& views, const std::vector<Alias>& aliases) {
    const auto record = [&](Recorder& recorder) { Operator::record_call(recorder, views); };
    const uint64_t workspace_bytes = Operator::kChunks * Vendor::primitives().workspace_bytes;
    if constexpr (Operator::kChunks) return chunked_program_of(record, Vendor::primitives(), aliases, workspace_bytes);
    Recorder recorder(Vendor::primitives().abilities);
    record(recorder);
    return program_of(recorder, Vendor::primitives(), aliases);
  }
  static std::vector<Alias> aliases_of(const sdk::Call<Op>& call) {
    std::vector<Alias> aliases;
    for (uint32_t i = 0; i < Op::kOutputs; ++i) {
      if (call.alias(i) >= 0) aliases.push_back({i, static_cast<uint32_t>(call.alias(i))});
    }
    return aliases;
  }
};

}  // namespace rlk::composed
