// Parts behind each other: their steps in one workspace, behind what they share.
#include "parts.hpp"

#include <algorithm>
#include <iterator>

namespace rlk::composed {

View Parts::keep(sdk::Dtype dtype, const Dims& dims) {
  View view;
  view.place = View::Place::kept;
  view.index = static_cast<uint32_t>(places_.size());
  view.dtype = dtype;
  view.dims = dims;
  view.strides = dense_strides(dims);
  places_.push_back(kept_bytes_);
  const int64_t bytes = element_count(dims) * sdk::bytes_of(dtype);
  kept_bytes_ += (bytes + primitives_.alignment - 1) / primitives_.alignment * primitives_.alignment;
  return view;
}

bool Parts::fits(const Record& record, uint64_t kept_bytes) const {
  Recorder recorder(primitives_.abilities);
  record(recorder);
  const Program own = program_of(recorder, primitives_, aliases_);
  return kept_bytes + own.workspace_bytes <= primitives_.workspace_bytes;
}

void Parts::add(const Record& record, const Window& window, Pass pass) {
  Recorder part(primitives_.abilities, window, pass);
  record(part);
  Program own = program_of(part, primitives_, aliases_);
  if (own.refusal && !program_.refusal) program_.refusal = own.refusal;
  program_.has_lost_number = program_.has_lost_number || part.has_lost_number();
  program_.workspace_bytes = std::max(program_.workspace_bytes, kept_bytes() + own.workspace_bytes);
  program_.cost_us += own.cost_us;
  for (Step& step : own.steps) {
    for (Operand& operand : step.in) settle(operand);
    settle(step.out);
  }
  program_.steps.insert(program_.steps.end(), std::make_move_iterator(own.steps.begin()),
                        std::make_move_iterator(own.steps.end()));
}

void Parts::fail(const DataError& error) {
  if (!program_.error) program_.error = error;
}

void Parts::need(Word word, sdk::Dtype dtype) {
  const auto found = std::find_if(primitives_.table.begin(), primitives_.table.end(),
                                  [&](const Primitive& one) { return one.word == word && one.dtypes.has(dtype); });
  if (program_.refusal || (found != primitives_.table.end() && found->is_present)) return;
  program_.refusal = found == primitives_.table.end()
                         ? lacking_word(primitives_, std::string(name_of(word)) + " of " + sdk::name_of(dtype))
                         : lacking_function(primitives_, found->function);
}

void Parts::settle(Operand& operand) const {
  if (operand.place == Operand::Place::workspace) operand.byte_offset += kept_bytes_;
  if (operand.place != Operand::Place::kept) return;
  operand.place = Operand::Place::workspace;
  operand.byte_offset += places_[operand.index];
}

}  // namespace rlk::composed
