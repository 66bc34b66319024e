// Running a map's kernel as a function of fibers.
#pragma once

#include "plugins/simt/host/map.hpp"
#include "plugins/simt/skeleton/map.cuh"
#include "tests/unit/simt_host/tensor.hpp"

namespace rlk::simt::host {

// Of a map of numbers: those of any call, and of lines.
struct MapFunctions {
  void (*f32)(MapArgs);
  void (*f64)(MapArgs);
  void (*f32_line)(MapArgs);
  void (*half_line)(MapArgs);
  void (*f64_line)(MapArgs);
};

// The one that launch_map takes.
inline void run(const MapFunctions& functions, const MapCall& call, unsigned blocks) {
  const MapArgs args = arguments_of_map(call);
  auto* kernel = call.computes_f64() ? functions.f64 : functions.f32;
  if (args.line != 0) {
    const std::string name = call.line_kernel();
    kernel = name == "f64_line" ? functions.f64_line : name == "f32_line" ? functions.f32_line : functions.half_line;
  }
  emulation::run_grid({blocks, 1, 1}, {kMapThreads, 1, 1}, 0, [=] { kernel(args); });
}

}  // namespace rlk::simt::host
