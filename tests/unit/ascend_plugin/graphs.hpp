// Captures on the simulated Ascend device.
#pragma once

#include "fixture.hpp"
#include "framework/graph_calls.hpp"

namespace ascend_plugin {

using GraphFixture = rlk::test::GraphFixture<Acl>;

}  // namespace ascend_plugin

using CapturesVendor = ascend_plugin::Acl;  // of tests/unit/captures
