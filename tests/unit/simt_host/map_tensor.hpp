// Running a map's kernel as a function of fibers.
#pragma once

#include "plugins/simt/host/map.hpp"
#include "plugins/simt/skeleton/map.cuh"
#include "tests/unit/simt_host/tensor.hpp"

namespace rlk::simt::host {

inline void run(void (*f32)(MapArgs), void (*f64)(MapArgs), const MapCall& call, unsigned blocks) {
  const MapArgs args = arguments_of_map(call);
  const auto kernel = call.computes_f64() ? f64 : f32;
  emulation::run_grid({blocks, 1, 1}, {kMapThreads, 1, 1}, 0, [=] { kernel(args); });
}

}  // namespace rlk::simt::host
