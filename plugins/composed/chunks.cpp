// A program whose intermediates would need too much memory, as programs of some rows each, one after the other. What
// rows share is made before the first, and what is made of all rows after the last; both pass through memory of their
// own.
#include <algorithm>

#include "parts.hpp"

namespace rlk::composed {
namespace {

// The rows that the chunks divide.
Window window_of(const Recorder& whole) {
  Window window;
  if (const View* collected = whole.first_collected()) {
    window.rank = collected->dims.size();
    window.rows = collected->dims[0];
    return window;
  }
  for (const Output& output : whole.outputs()) {
    const Dims dims = output.first_row < 0 ? output.view.dims : token_rows_of(output.view).dims;
    if (dims.size() <= window.rank) continue;
    window.rank = dims.size();
    window.rows = dims[0];
  }
  return window;
}

}  // namespace

Program chunked_program_of(const Record& record, const Primitives& primitives, const std::vector<Alias>& aliases) {
  Recorder whole(primitives.abilities);
  record(whole);
  Program program = program_of(whole, primitives, aliases);
  if (program.refusal || program.workspace_bytes <= primitives.workspace_bytes) return program;
  Window window = window_of(whole);
  if (window.rows <= 1) return program;
  Parts chunks(primitives, aliases);
  for (const View& view : whole.kept()) chunks.keep(view.dtype, view.dims);
  const uint64_t left = primitives.workspace_bytes - std::min(primitives.workspace_bytes, chunks.kept_bytes());
  const double share = static_cast<double>(left) / static_cast<double>(program.workspace_bytes);
  const auto fitting = static_cast<int64_t>(static_cast<double>(window.rows) * share);
  // Multiples of 32, where there are as many, keep every vector's chunk aligned.
  const int64_t rows = fitting >= 32 ? fitting / 32 * 32 : std::max<int64_t>(1, fitting);
  const bool keeps = !whole.kept().empty(), collects = whole.first_collected() != nullptr;
  if (keeps) chunks.add(record, window, Pass::ahead);
  for (; window.first < window.rows; window.first += rows) {
    window.count = std::min(rows, window.rows - window.first);
    chunks.add(record, window, keeps ? Pass::chunk : Pass::whole);
  }
  if (collects) chunks.add(record, {window.rank, window.rows, 0, 0}, Pass::last);
  return chunks.take();
}

}  // namespace rlk::composed
