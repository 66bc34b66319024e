// A program whose intermediates would need too much memory, as programs of some rows each, one after the other. What
// rows share is made before the first, and what is made of all rows after the last; both pass through memory of their
// own.
#include <algorithm>
#include <iterator>

#include "program.hpp"

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

class Chunks {
public:
  Chunks(const Record& record, const Primitives& primitives, const std::vector<Alias>& aliases, const Recorder& whole)
      : record_(record), primitives_(primitives), aliases_(aliases) {
    for (const View& view : whole.kept()) {
      places_.push_back(kept_bytes_);
      const int64_t bytes = element_count(view.dims) * sdk::bytes_of(view.dtype);
      kept_bytes_ += (bytes + primitives.alignment - 1) / primitives.alignment * primitives.alignment;
    }
  }
  uint64_t kept_bytes() const { return static_cast<uint64_t>(kept_bytes_); }

  void add(const Window& window, Pass pass) {
    Recorder part(primitives_.abilities, window, pass);
    record_(part);
    Program own = program_of(part, primitives_, aliases_);
    if (own.refusal) throw sdk::Error(RLK_INTERNAL, "chunks need what the whole does not: " + own.refusal->reason);
    program_.workspace_bytes = std::max(program_.workspace_bytes, kept_bytes() + own.workspace_bytes);
    for (Step& step : own.steps) {
      for (Operand& operand : step.in) settle(operand);
      settle(step.out);
    }
    program_.steps.insert(program_.steps.end(), std::make_move_iterator(own.steps.begin()),
                          std::make_move_iterator(own.steps.end()));
  }
  Program take() { return std::move(program_); }

private:
  void settle(Operand& operand) const {
    if (operand.place == Operand::Place::workspace) operand.byte_offset += kept_bytes_;
    if (operand.place != Operand::Place::kept) return;
    operand.place = Operand::Place::workspace;
    operand.byte_offset += places_[operand.index];
  }

  const Record& record_;
  const Primitives& primitives_;
  const std::vector<Alias>& aliases_;
  std::vector<int64_t> places_;  // of what is kept
  int64_t kept_bytes_ = 0;
  Program program_;
};

}  // namespace

Program chunked_program_of(const Record& record, const Primitives& primitives, const std::vector<Alias>& aliases) {
  Recorder whole(primitives.abilities);
  record(whole);
  Program program = program_of(whole, primitives, aliases);
  if (program.refusal || program.workspace_bytes <= primitives.workspace_bytes) return program;
  Window window = window_of(whole);
  if (window.rows <= 1) return program;
  Chunks chunks(record, primitives, aliases, whole);
  const uint64_t left = primitives.workspace_bytes - std::min(primitives.workspace_bytes, chunks.kept_bytes());
  const double share = static_cast<double>(left) / static_cast<double>(program.workspace_bytes);
  const auto fitting = static_cast<int64_t>(static_cast<double>(window.rows) * share);
  // Multiples of 32, where there are as many, keep every vector's chunk aligned.
  const int64_t rows = fitting >= 32 ? fitting / 32 * 32 : std::max<int64_t>(1, fitting);
  const bool keeps = !whole.kept().empty() || whole.ends();
  if (keeps) chunks.add(window, Pass::ahead);
  for (; window.first < window.rows; window.first += rows) {
    window.count = std::min(rows, window.rows - window.first);
    chunks.add(window, keeps ? Pass::chunk : Pass::whole);
  }
  if (whole.ends()) chunks.add({window.rank, window.rows, 0, 0}, Pass::last);
  return chunks.take();
}

}  // namespace rlk::composed
