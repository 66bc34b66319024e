// The trial of one operator and dtype.
#pragma once

#include <string>
#include <vector>

#include "core/conformance/conformance.hpp"
#include "core/conformance/examples.hpp"
#include "core/conformance/harness.hpp"
#include "core/conformance/plan_reuse.hpp"
#include "core/declaration/processor_wait.hpp"

namespace rlk::core::conformance {

// An operator and dtype, and the implementations that have it.
struct Subject {
  const OpDecl* decl;
  int dtype_choice;
  const std::vector<const rlk_implementation*>* implementations;
};

// Tries the schedule of a subject on all its implementations at once, since one golden answer serves them all: what was
// verified, declined and failed, each by dtype, variant and feature. Nothing is thrown for what a plugin does.
std::vector<UnitResult> try_subject(const Subject& subject, Harness& harness, Surroundings& around, Examples& examples,
                                    const ConformanceOptions& options, const Budget& budget);

// Why a case was not tried once the budget was used up.
std::string budget_passed(const ConformanceOptions& options);

}  // namespace rlk::core::conformance
