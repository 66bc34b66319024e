// May a candidate be offered this call at all? What the host decides on a plugin's behalf: operator revisions that the
// plugin does not know, units that were not verified, run-time quarantine.
#pragma once

#include <rlk/abi.h>

#include <string>
#include <vector>

#include "core/declaration/numerics.hpp"
#include "core/declaration/validate.hpp"
#include "core/dispatch/call/registry.hpp"

namespace rlk::core {

struct Refusal {
  std::string code;  // empty: none
  std::string text;
};

// The dtype by which units and quarantine are distinguished; "" for an operator without dtype variables.
const char* first_dtype(const BoundCall& call);

// A parameter, optional input or output that is newer than the plugin and not at its default. The plugin would ignore
// it and be silently wrong.
Refusal refuse_newer(const Candidate& candidate, const BoundCall& call);

// Switched off for the call's dtype.
Refusal refuse_quarantined(const Candidate& candidate, const BoundCall& call);

// The plain unit and the unit of every feature must be verified for the dtype and the variant that query named, with
// the classes demanded. The built-in plugin serves class tolerance where nothing was found against it.
Refusal refuse_unverified(const Candidate& candidate, const BoundCall& call, const std::vector<std::string>& features,
                          const std::string& variant, uint32_t numerics);

// Whether its operator is still to be tried: kWaiting.
bool is_untried(const Candidate& candidate);

// What the verdicts of a call that is not refused rest on, where that is not a test on this machine: empty, kCanary or
// kReported.
Refusal note_of_basis(const Candidate& candidate, const BoundCall& call, const std::vector<std::string>& features,
                      const std::string& variant);

}  // namespace rlk::core
