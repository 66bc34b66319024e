// May a candidate be offered this call at all?
#include "core/dispatch/call/eligible.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace rlk::core {

namespace {

// reason_code of what failed at run time, in this process or an earlier one.
constexpr std::string_view kQuarantined = "QUARANTINED";
// Of what was right here, with a version of the vendor's runtime that is known to be wrong.
constexpr std::string_view kKnownBad = "KNOWN_BAD";

}  // namespace

const char* first_dtype(const BoundCall& call) {
  return call.decl->dtypes.empty() ? "" : name_of(call.dtypes[0]);
}

namespace {

Refusal too_new(const Candidate& candidate, const std::string& what, const char* name) {
  return {"OP_REVISION",
          fmt::format("the plugin knows revision {} of {}, which has no {} '{}'; this call sets it. Use a newer plugin",
                      candidate.implementation->op_revision, candidate.decl->name, what, name)};
}

}  // namespace

Refusal refuse_newer(const Candidate& candidate, const BoundCall& call) {
  const rlk_implementation& implementation = *candidate.implementation;
  for (const ParamDecl& param : call.decl->params) {
    if (param.offset < implementation.params_size) continue;
    const auto* given = static_cast<const char*>(call.params) + param.offset;
    const auto* standard = static_cast<const char*>(call.decl->defaults) + param.offset;
    if (std::memcmp(given, standard, 8) != 0) return too_new(candidate, "parameter", param.name);
  }
  for (size_t i = implementation.n_inputs; i < call.decl->inputs.size(); ++i) {
    if (call.values().has(static_cast<int>(i))) return too_new(candidate, "input", call.decl->inputs[i].name);
  }
  for (size_t i = implementation.n_outputs; i < call.decl->outputs.size(); ++i) {
    if (call.values().has(static_cast<int>(32 + i))) return too_new(candidate, "output", call.decl->outputs[i].name);
  }
  return {};
}

Refusal refuse_quarantined(const Candidate& candidate, const BoundCall& call) {
  for (const auto& entry : candidate.quarantined) {
    if (!entry->dtype.empty() && entry->dtype != first_dtype(call)) continue;
    return {std::string(kQuarantined),
            fmt::format("switched off after a failure at run time ({}): {}", entry->reason_code, entry->reason)};
  }
  return {};
}

namespace {

enum class Standing { verified, failed, unknown };

struct Unit {
  Standing standing = Standing::unknown;
  const UnitResult* result = nullptr;  // of a failed one, and of one verified for too few classes
};

Unit find_unit(const Candidate& candidate, const char* dtype, const std::string& feature, const std::string& variant,
               uint32_t numerics) {
  Unit best;
  for (const UnitResult* unit : candidate.units) {
    if (unit->dtype != dtype || unit->feature != feature || unit->variant != variant) continue;
    if (unit->verdict == UnitResult::Verdict::failed) return {Standing::failed, unit};
    if (unit->verdict != UnitResult::Verdict::verified) continue;
    best.result = unit;
    if ((unit->numerics & numerics) == numerics) best.standing = Standing::verified;
  }
  return best;
}

}  // namespace

Refusal refuse_unverified(const Candidate& candidate, const BoundCall& call, const std::vector<std::string>& features,
                          const std::string& variant, uint32_t numerics) {
  numerics |= RLK_NUMERICS_TOLERANCE;
  const bool trusted = candidate.plugin->built_in && numerics == RLK_NUMERICS_TOLERANCE;
  const auto check = [&](const std::string& feature) -> Refusal {
    const Unit unit = find_unit(candidate, first_dtype(call), feature, variant, numerics);
    if (unit.standing == Standing::verified) return {};
    const std::string name = std::string(first_dtype(call)) + (feature.empty() ? "" : " with " + feature) +
                             (variant.empty() ? "" : ", variant " + variant);
    if (unit.standing == Standing::failed && unit.result->reason_code == kQuarantined)
      return {std::string(kQuarantined), "switched off after an earlier failure: " + unit.result->reason};
    if (unit.standing == Standing::failed && unit.result->reason_code == kKnownBad)
      return {std::string(kKnownBad), "known to be wrong with this " + unit.result->reason};
    if (unit.standing == Standing::failed) {
      return {"VERIFICATION_FAILED",
              fmt::format("{} failed its test ({}): {}", name, unit.result->reason_code, unit.result->reason)};
    }
    if (trusted) return {};
    if (unit.result != nullptr) {
      return {"NUMERICS", fmt::format("{} is verified as {}; demanded is {}", name,
                                      text_of_numerics(unit.result->numerics), text_of_numerics(numerics))};
    }
    if (is_untried(candidate)) {
      return {
          kWaiting,
          fmt::format("{} has not been tried on this machine yet; it is tried next, behind the calls, and serves when "
                      "it is verified. RLK_REQUIRE={}:{} has the start wait for that",
                      candidate.decl->name, candidate.on->backend, candidate.decl->name)};
    }
    return {"NOT_VERIFIED", name + " was not verified on this machine"};
  };
  Refusal refusal = check("");
  for (size_t i = 0; i < features.size() && refusal.code.empty(); ++i) refusal = check(features[i]);
  return refusal;
}

bool is_untried(const Candidate& candidate) {
  return std::any_of(candidate.units.begin(), candidate.units.end(),
                     [](const UnitResult* unit) { return is_waiting(*unit); });
}

Refusal note_of_basis(const Candidate& candidate, const BoundCall& call, const std::vector<std::string>& features,
                      const std::string& variant) {
  const auto of_unit = [&](const std::string& feature) -> Refusal {
    const Unit unit = find_unit(candidate, first_dtype(call), feature, variant, RLK_NUMERICS_TOLERANCE);
    if (unit.result == nullptr) return {};
    if (unit.result->reason_code == kReported) return {kReported, unit.result->reason};
    if (unit.result->reason_code != kCanary) return {};
    return {kCanary,
            "verified when rlk was built; on this machine a canary was tried: one call of each operator and "
            "dtype"};
  };
  Refusal note = of_unit("");
  for (size_t i = 0; i < features.size() && note.code.empty(); ++i) note = of_unit(features[i]);
  return note;
}

}  // namespace rlk::core
