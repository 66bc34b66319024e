// Hosts whose parallel-for differs from the runtime's: what a kernel computes must not depend on it.
#pragma once

#include <rlk/abi.h>

namespace rlk::test {

// One thread, which takes every range whole.
const rlk_host* serial_host();
// Says that it has seven threads and runs the ranges last first, in single grains.
const rlk_host* backwards_host();

}  // namespace rlk::test
