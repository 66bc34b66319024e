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
    if (output.is_sum) continue;
    const Dims dims = output.first_row < 0 ? output.view.dims : token_rows_of(output.view).dims;
    if (dims.size() <= window.rank) continue;
    window.rank = dims.size();
    window.rows = dims[0];
  }
  return window;
}

// How many rows have memory in so many bytes. What does not grow with them (blocks of a weight matrix) shows in a chunk
// of few.
int64_t rows_within(uint64_t bytes, const Window& window, uint64_t whole_bytes, const Record& record, Pass pass,
                    const Primitives& primitives, const std::vector<Alias>& aliases) {
  constexpr int64_t kFew = 32;  // multiples of it, where there are as many, keep every vector's chunk aligned
  const auto share = [&](int64_t rows, double of_bytes) {
    return std::max<int64_t>(1,
                             static_cast<int64_t>(static_cast<double>(rows) * static_cast<double>(bytes) / of_bytes));
  };
  if (window.rows < 2 * kFew) {
    const int64_t rows = share(window.rows, static_cast<double>(whole_bytes));
    return rows >= kFew ? kFew : rows;
  }
  const auto bytes_of = [&](int64_t rows) {
    Recorder part(primitives.abilities, {window.rank, window.rows, window.rows - rows, rows}, pass);
    record(part);
    return static_cast<double>(program_of(part, primitives, aliases).workspace_bytes);
  };
  const double few_bytes = bytes_of(kFew);
  const double own = (static_cast<double>(whole_bytes) - few_bytes) / static_cast<double>(window.rows - kFew);
  const double more = (static_cast<double>(bytes) - few_bytes) / std::max(own, 1.0);
  if (more < 0) return share(kFew, few_bytes);
  const int64_t rows = kFew + std::min(static_cast<int64_t>(more), window.rows - kFew) / kFew * kFew;
  // Where memory is taken with gaps a few less.
  const double needed = bytes_of(rows);
  return needed <= static_cast<double>(bytes) ? rows : std::max(kFew, share(rows, needed) / kFew * kFew);
}

}  // namespace

Program chunked_program_of(const Record& record, const Primitives& primitives, const std::vector<Alias>& aliases,
                           uint64_t workspace_bytes) {
  Recorder whole(primitives.abilities);
  record(whole);
  Program program = program_of(whole, primitives, aliases);
  if (program.refusal || program.workspace_bytes <= workspace_bytes) return program;
  Window window = window_of(whole);
  if (window.rows <= 1) return program;
  Parts chunks(primitives, aliases);
  for (const View& view : whole.kept()) chunks.keep(view.dtype, view.dims);
  const bool keeps = !whole.kept().empty() || whole.ends();
  const Pass pass = keeps ? Pass::chunk : Pass::whole;
  const uint64_t left = workspace_bytes - std::min(workspace_bytes, chunks.kept_bytes());
  const int64_t rows = rows_within(left, window, program.workspace_bytes, record, pass, primitives, aliases);
  if (keeps) chunks.add(record, window, Pass::ahead);
  for (; window.first < window.rows; window.first += rows) {
    window.count = std::min(rows, window.rows - window.first);
    chunks.add(record, window, pass);
  }
  if (whole.ends()) chunks.add(record, {window.rank, window.rows, 0, 0}, Pass::last);
  program = chunks.take();
  if (program.refusal)
    throw sdk::Error(RLK_INTERNAL, "chunks need what the whole does not: " + program.refusal->reason);
  return program;
}

}  // namespace rlk::composed
