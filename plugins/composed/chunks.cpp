// A program whose intermediates would need too much memory, as programs of some rows each, one after the other.
#include <algorithm>
#include <iterator>

#include "program.hpp"

namespace rlk::composed {

Program chunked_program_of(const Record& record, const Primitives& primitives, const std::vector<Alias>& aliases) {
  Recorder whole(primitives.has_f64);
  record(whole);
  Program program = program_of(whole, primitives, aliases);
  if (program.refusal || program.workspace_bytes <= primitives.workspace_bytes) return program;
  Window window;
  for (const Output& output : whole.outputs()) {
    if (output.view.dims.size() <= window.rank) continue;
    window.rank = output.view.dims.size();
    window.rows = output.view.dims[0];
  }
  if (window.rows <= 1) return program;
  const double share = static_cast<double>(primitives.workspace_bytes) / static_cast<double>(program.workspace_bytes);
  const auto fitting = static_cast<int64_t>(static_cast<double>(window.rows) * share);
  // Multiples of 32, where there are as many, keep every vector's chunk aligned.
  const int64_t rows = fitting >= 32 ? fitting / 32 * 32 : std::max<int64_t>(1, fitting);
  program = {};
  for (; window.first < window.rows; window.first += rows) {
    window.count = std::min(rows, window.rows - window.first);
    Recorder part(primitives.has_f64, window);
    record(part);
    Program own = program_of(part, primitives, aliases);
    program.workspace_bytes = std::max(program.workspace_bytes, own.workspace_bytes);
    program.steps.insert(program.steps.end(), std::make_move_iterator(own.steps.begin()),
                         std::make_move_iterator(own.steps.end()));
  }
  return program;
}

}  // namespace rlk::composed
