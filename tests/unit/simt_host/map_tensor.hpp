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
  void (*f32_line)(MapLineArgs);
  void (*half_line)(MapLineArgs);
  void (*f64_line)(MapLineArgs);
};

// As launch_map does where one grid holds so many blocks.
inline void run_lines(void (*kernel)(MapLineArgs), MapLineArgs args, unsigned blocks) {
  const int64_t pieces = kMapThreads * (args.line == kMapPairs ? 2 : 1);
  for (; args.first_block * pieces < args.pieces; args.first_block += blocks) {
    emulation::run_grid({blocks, 1, 1}, {kMapThreads, 1, 1}, 0, [=] { kernel(args); });
  }
}
// The one that launch_map takes.
inline void run(const MapFunctions& functions, const MapCall& call, unsigned blocks) {
  const MapArgs args = arguments_of_map(call);
  if (args.line != kMapNoLine) {
    const std::string name = call.line_kernel();
    return run_lines(name == "f64_line"   ? functions.f64_line
                     : name == "f32_line" ? functions.f32_line
                                          : functions.half_line,
                     args, blocks);
  }
  auto* const kernel = call.computes_f64() ? functions.f64 : functions.f32;
  emulation::run_grid({blocks, 1, 1}, {kMapThreads, 1, 1}, 0, [=] { kernel(args); });
}

}  // namespace rlk::simt::host
