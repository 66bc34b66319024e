// The words that a policy file may use, and what a mistyped one was meant for.
#pragma once

#include <string>

namespace rlk::loader {

// Where an operator may stand: what is wrong with a name that is nearly that of a setting, "" for any other. Taken for
// an operator it would only be a warning, and the setting that the user meant be off. plain: in a file of plain lines,
// where the settings of the whole file stand too.
std::string problem_of_dispatch_name(const std::string& name, bool plain);

// Of "logp" or "logp:fused" in [[known_bad]]: "" when there is such an operator.
std::string problem_of_operator(const std::string& which);

// Of a kind of evidence: "" unless it is within two slips of one that rlk's plugins show. Plugins have words of their
// own, so one that is like none may be right.
std::string problem_of_evidence(const std::string& kind);

}  // namespace rlk::loader
