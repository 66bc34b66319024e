// An operator's programs: what operator.hpp declares and every vendor has from here. Included where operators are
// compiled alone, once for all plugins (CMakeLists.txt).
#pragma once

#include "operator.hpp"

namespace rlk::composed {

// Whether an operator decides on the parts of its programs (parts.hpp).
template <class Operator, class = void>
struct IsInParts : std::false_type {};
template <class Operator>
struct IsInParts<Operator, std::void_t<decltype(&Operator::compose)>> : std::true_type {};

// The programs of one vendor and one call, whose tensors are views.
template <class Operator>
class Programs {
public:
  using Op = typename Operator::Op;

  Programs(const Primitives& primitives, const Arguments<Op>& views, const std::vector<Alias>& aliases)
      : primitives_(primitives), views_(views), aliases_(aliases) {}

  // All at once: what it needs is what its parts need.
  Program asked() const {
    if constexpr (IsInParts<Operator>::value) {
      Parts parts(primitives_, aliases_, true);
      Operator::compose(parts, views_);
      return parts.take();
    } else {
      Recorder recorder(primitives_.abilities);
      Operator::record_call(recorder, views_);
      Program made = program_of(recorder, primitives_, aliases_);
      made.has_lost_number = recorder.has_lost_number();
      return made;
    }
  }
  Program of_run() const {
    if constexpr (IsInParts<Operator>::value) {
      Parts parts(primitives_, aliases_);
      Operator::compose(parts, views_);
      return parts.take();
    } else {
      return chunked();
    }
  }

private:
  Program chunked() const {
    const auto record = [&](Recorder& recorder) { Operator::record_call(recorder, views_); };
    const uint64_t workspace_bytes = Operator::kChunks * primitives_.workspace_bytes;
    if constexpr (Operator::kChunks) return chunked_program_of(record, primitives_, aliases_, workspace_bytes);
    Recorder recorder(primitives_.abilities);
    record(recorder);
    return program_of(recorder, primitives_, aliases_);
  }

  const Primitives& primitives_;
  const Arguments<Op>& views_;
  const std::vector<Alias>& aliases_;
};

template <class Op>
std::vector<Alias> aliases_of(const sdk::Call<Op>& call) {
  std::vector<Alias> aliases;
  for (uint32_t i = 0; i < Op::kOutputs; ++i) {
    if (call.alias(i) >= 0) aliases.push_back({i, static_cast<uint32_t>(call.alias(i))});
  }
  return aliases;
}

template <class Operator>
uint64_t host_inputs_of([[maybe_unused]] const Arguments<typename Operator::Op>& views) {
  if constexpr (IsInParts<Operator>::value) return Operator::host_inputs(views);
  return 0;
}

// --- what operator.hpp declares --------------------------------------------------------------------------------------
template <class Operator>
uint64_t Composition<Operator>::host_inputs(const sdk::Call<Op>& call) {
  return host_inputs_of<Operator>(views_of<Op>(call, call.params()));
}

template <class Operator>
sdk::Support Composition<Operator>::query(const char* variant, const Primitives& primitives,
                                          const sdk::Call<Op>& call) {
  const auto views = views_of<Op>(call, call.params());
  const bool is_f64 = any_f64<Op>(views);
  if (!is_f64) {
    if (auto no = refuse_factors(Operator::factors_of(views))) return *no;
  }
  if (auto no = Operator::refuse(views, primitives.abilities)) return *no;
  const std::vector<Alias> aliases = aliases_of(call);
  const Program made = Programs<Operator>(primitives, views, aliases).asked();
  if (made.has_lost_number && !is_f64)
    return sdk::Support::no("PARAMETER", "a parameter is beyond fp32, in which this device computes");
  if (made.refusal) return *made.refusal;
  sdk::Support yes = sdk::Support::yes(variant, Operator::kNumerics);
  yes.workspace_bound = std::numeric_limits<uint64_t>::max();
  yes.cost_us = made.cost_us;
  yes.host_inputs = host_inputs_of<Operator>(views);
  return yes;
}

template <class Operator>
Recipe Composition<Operator>::recipe(const Primitives& primitives, const sdk::Call<Op>& call) {
  return [&primitives, params = call.params(), aliases = aliases_of(call)](const sdk::Run& run) {
    const auto views = views_of<Op>(run, params);
    return Programs<Operator>(primitives, views, aliases).of_run();
  };
}

}  // namespace rlk::composed
