// Made-up inputs of a call that obey the declaration's value domains: what bench measures with.
#pragma once

#include "loader/cli/execution.hpp"

namespace rlk::cli {

// Random values, the same for the same call; never all zeros, no infinities. Inputs that are outputs of another
// operator (lse for logp_backward) are computed by it on the CPU, whose stream stays open in the session.
Arrays make_inputs(Session* session, const OpCall& call);

}  // namespace rlk::cli
