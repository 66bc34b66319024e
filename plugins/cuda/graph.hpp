// The extension "rlk.graph/1": capture a stream's work, replay it.
#pragma once

#include <rlk/abi/ext/draft/graph.h>
#include <rlk/sdk.hpp>

namespace rlk::cuda {

// nullptr when the driver is too old for it.
const rlk_graph_api* graph_extension();

}  // namespace rlk::cuda
