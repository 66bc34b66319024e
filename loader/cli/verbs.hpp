// The verbs of rlk-plugins, one file each.
#pragma once

#include "loader/cli/verb.hpp"

namespace rlk::cli {

Verb verb_list();
Verb verb_inspect();
Verb verb_explain();
Verb verb_ops();
Verb verb_run();
Verb verb_bench();
Verb verb_probe();
Verb verb_conformance();
Verb verb_scope();
Verb verb_doctor();
Verb verb_report();
Verb verb_metrics();
Verb verb_lint();
Verb verb_cache();
Verb verb_quarantine();
Verb verb_new();
Verb verb_pack();

}  // namespace rlk::cli
