// Every value that an output needs becomes a step, with copies, expansions and fills where a primitive asks for them.
#include "program.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

#include "memory.hpp"
#include "operands.hpp"

namespace rlk::composed {
namespace {

using sdk::Dtype;
using Place = Operand::Place;

class Composer {
public:
  Composer(const Recorder& recorder, const Primitives& primitives, const std::vector<Alias>& aliases)
      : nodes_(recorder.nodes()), outputs_(recorder.outputs()), primitives_(primitives), aliases_(aliases) {}

  Program compose() {
    find_needed();
    made_.resize(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (is_step(i) && last_use_[i] != kNever) make(i);
    }
    for (const Output& output : outputs_) store(output);
    refuse();
    place_buffers();
    for (const Step& step : program_.steps) program_.cost_us += cost_of(step);
    return std::move(program_);
  }

private:
  static constexpr size_t kNever = 0, kStores = ~size_t{0};  // no value's own use comes first

  const Node& node(int value) const { return nodes_[static_cast<size_t>(value)]; }
  bool is_step(size_t i) const { return nodes_[i].word != Word::input && nodes_[i].word != Word::number; }

  // The last value, or the stores, that reads each value.
  void find_needed() {
    last_use_.assign(nodes_.size(), kNever);
    for (const Output& output : outputs_) last_use_[static_cast<size_t>(output.value)] = kStores;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].word == Word::report) last_use_[i] = kStores;
    }
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (last_use_[i] == kNever) continue;
      for (const int value : nodes_[i].from) {
        if (value < 0) continue;
        size_t& last = last_use_[static_cast<size_t>(value)];
        const Word word = nodes_[i].word;
        const bool is_view =
            word == Word::part || word == Word::reshape || word == Word::transpose || word == Word::bits;
        last = std::max(last, is_view ? last_use_[i] : i);
      }
    }
  }

  // --- the table -----------------------------------------------------------------------------------------------------
  // A row for the word, or the largest number there is; then something is lacking.
  size_t find(Word word, bool has_number, Dtype dtype, Dtype to) {
    const Primitive* absent = nullptr;
    for (size_t i = 0; i < primitives_.table.size(); ++i) {
      const Primitive& one = primitives_.table[i];
      if (one.word != word || one.has_number != has_number || !one.dtypes.has(dtype)) continue;
      if (word == Word::cast && !one.to.has(to)) continue;
      if (one.is_present) return i;
      absent = &one;
    }
    if (absent != nullptr && std::find(missing_.begin(), missing_.end(), absent->function) == missing_.end())
      missing_.push_back(absent->function);
    if (absent == nullptr && unknown_.empty()) {
      unknown_ = std::string(name_of(word)) + (word == Word::cast ? " from " : " of ") + sdk::name_of(dtype) +
                 (word == Word::cast ? std::string(" to ") + sdk::name_of(to) : "");
    }
    return kLacking;
  }
  bool has(Word word, bool has_number, Dtype dtype) const {
    return std::any_of(primitives_.table.begin(), primitives_.table.end(), [&](const Primitive& one) {
      return one.word == word && one.has_number == has_number && one.dtypes.has(dtype) && one.is_present;
    });
  }

  void refuse() {
    if (!unknown_.empty()) {
      program_.refusal = lacking_word(primitives_, unknown_);
    } else if (!missing_.empty()) {
      std::string names;
      for (const std::string& name : missing_) names += (names.empty() ? "" : ", ") + name;
      program_.refusal = lacking_function(primitives_, names);
    }
    if (program_.refusal) program_.steps.clear();
  }

  // --- steps ---------------------------------------------------------------------------------------------------------
  Operand buffer(Dtype dtype, const Dims& dims) {
    Operand operand;
    operand.index = static_cast<uint32_t>(buffer_bytes_.size());
    operand.dtype = dtype;
    operand.dims = dims;
    buffer_bytes_.push_back(bytes_of(operand));
    operand.strides = dense_strides(dims);
    return with_rank(operand, dims.size());
  }

  void add(size_t primitive, std::vector<Operand> in, double number, const Operand& out) {
    if (primitive == kLacking || element_count(out.dims) == 0) return;
    const Word word = primitives_.table[primitive].word;
    if (is_reduction(word) && element_count(in[0].dims) == 0) {  // of nothing
      const double nothing = word == Word::largest ? -std::numeric_limits<double>::infinity() : 0;
      return add(find(Word::fill, false, out.dtype, out.dtype), {}, nothing, out);
    }
    Step step;
    step.primitive = primitive;
    for (Operand& operand : in) step.in.push_back(with_rank(std::move(operand), out.dims.size()));
    step.number = number;
    step.whole = whole_;
    step.out = out;
    program_.steps.push_back(std::move(step));
  }

  void make(size_t i) {
    const Node& own = nodes_[i];
    std::vector<int> from;
    for (const int value : own.from) {
      if (value >= 0) from.push_back(value);
    }
    const Dtype dtype = from.empty() ? own.dtype : node(from[own.word == Word::select ? 1 : 0]).dtype;
    double number = own.word == Word::sum_rows ? static_cast<double>(own.by) : 0;
    int64_t whole = 0;
    const bool has_number = from.size() == 2 && node(from[1]).word == Word::number && has(own.word, true, dtype);
    if (has_number) {
      number = node(from[1]).number;
      whole = node(from[1]).by;
      from.pop_back();
    }
    // What repeats stands second, where more primitives take it.
    const bool commutes = own.word == Word::add || own.word == Word::multiply;
    if (commutes && from.size() == 2 && node(from[0]).dims != own.dims && node(from[1]).dims == own.dims)
      std::swap(from[0], from[1]);
    if (own.word == Word::shift) return shift(i);
    if (own.word == Word::part || own.word == Word::transpose) return part(i);
    if (own.word == Word::reshape) return reshape(i);
    if (own.word == Word::bits) return bits(i);
    if (own.word == Word::rows) return rows(i);
    if (own.word == Word::join) return join(i);
    const size_t row = find(own.word, has_number, dtype, own.dtype);
    if (own.word == Word::positions && element_count(own.dims) > kMostPositions && unknown_.empty())
      unknown_ = "a range of more than 2^24 numbers in fp32";
    if (own.word == Word::report && element_count(own.dims) > kMostPositions && unknown_.empty())
      unknown_ = "a data error among more than 2^24 rows";
    std::vector<Operand> in;
    for (size_t k = 0; k < from.size(); ++k) {
      const bool keeps_size = is_reduction(own.word) || is_lookup(own.word) ||
                              (row != kLacking && (primitives_.table[row].repeats >> k & 1) != 0);
      bool takes_strides = row != kLacking && primitives_.table[row].takes_strides;
      if (own.word == Word::product) takes_strides = takes_strides || is_transposed(from[k]);
      // An index is a vector.
      if (k == 1 && own.word >= Word::take_rows && own.word <= Word::put_rows) takes_strides = false;
      in.push_back(fitted(from[k], own.dims, keeps_size, takes_strides));
    }
    if (own.word == Word::report) return add(row, std::move(in), own.number, record_of(own.dims));
    Operand out = buffer(own.dtype, own.dims);
    const bool is_placed = own.word == Word::put_rows && node(from[0]).word != Word::input;
    if (const Output* target = target_of(i, last_put(i), row, !is_placed)) {
      out = with_rank(operand_of(target->view), own.dims.size());
      if (target->value == static_cast<int>(i)) stored_.push_back(target);
    }
    made_[i] = out;
    if (is_placed) {
      begin_table(from[0], in[0], out);
      if (element_count(in[2].dims) == 0) return;
      in[0] = out;
    }
    whole_ = whole;
    add(row, std::move(in), number, out);
    whole_ = 0;
  }

  // Where rows are put in one table several times, the last of it; else the value itself.
  size_t last_put(size_t i) const {
    for (size_t k = i + 1; nodes_[i].word == Word::put_rows && k < nodes_.size(); ++k) {
      const bool goes_on = nodes_[k].word == Word::put_rows && nodes_[k].from[0] == static_cast<int>(i);
      if (goes_on && last_use_[k] != kNever) return last_put(k);
    }
    return i;
  }
  // What a table holds before rows are put in it.
  void begin_table(int value, const Operand& from, const Operand& out) {
    const Node& own = node(value);
    const bool goes_on = from.place == out.place && from.index == out.index && from.byte_offset == out.byte_offset;
    if (own.word == Word::put_rows && goes_on) return;
    if (own.word == Word::number) return add(find(Word::fill, false, own.dtype, own.dtype), {}, own.number, out);
    const Word word = padded(own.dims, out.dims.size()) == out.dims ? Word::copy : Word::expand;
    add(find(word, false, own.dtype, own.dtype), {from}, 0, out);
  }

  Operand made(int value) const {
    const Node& own = node(value);
    return own.word == Word::input ? operand_of(own.view) : made_[static_cast<size_t>(value)];
  }
  // Matrices that are dense once their dimensions are exchanged, which every product takes.
  bool is_transposed(int value) const {
    const Operand other = transposed(made(value));
    return is_dense(other.dims, other.strides);
  }

  // Another view of the same memory.
  void part(size_t i) {
    const Node& own = nodes_[i];
    Operand operand = made(own.from[0]);
    if (own.word == Word::transpose) {
      made_[i] = exchanged(std::move(operand), own.axis);
      return;
    }
    operand.byte_offset += own.by * operand.strides[own.axis] * sdk::bytes_of(own.dtype);
    // Seen for every head.
    if (own.dims.size() > operand.dims.size()) operand.strides.insert(operand.strides.end() - 1, 1);
    operand.dims = own.dims;
    made_[i] = operand;
  }

  void reshape(size_t i) {
    const Node& own = nodes_[i];
    Operand operand = fitted(own.from[0], node(own.from[0]).dims, true, false);
    operand.dims = own.dims;
    operand.strides = dense_strides(own.dims);
    made_[i] = with_rank(operand, own.dims.size());
  }

  void bits(size_t i) {
    const Node& own = nodes_[i];
    Operand operand = made(own.from[0]);
    const int64_t bytes = sdk::bytes_of(own.dtype), pieces = sdk::bytes_of(operand.dtype) / bytes;
    operand.byte_offset += own.by * bytes;
    operand.dtype = own.dtype;
    for (int64_t& stride : operand.strides) stride *= pieces;
    made_[i] = with_rank(operand, own.dims.size());
  }

  // By copies, as no strides have the rows of all sequences.
  void rows(size_t i) {
    const Node& own = nodes_[i];
    const Operand out = buffer(own.dtype, own.dims);
    made_[i] = out;
    each_piece(operand_of(node(own.from[0]).view), own.by, out, [&](const Operand& piece, const Operand& to) {
      add(find(Word::copy, false, own.dtype, own.dtype), {piece}, 0, to);
    });
  }
  // By copies, into one buffer.
  void join(size_t i) {
    const Node& own = nodes_[i];
    made_[i] = own.from[0] < 0 ? buffer(own.dtype, own.dims) : made(own.from[0]);
    const Operand part = fitted(own.from[1], node(own.from[1]).dims, false, true);
    Operand to = made_[i];
    to.byte_offset += own.by * sdk::bytes_of(own.dtype);
    to.dims.back() = part.dims.back();
    add(find(Word::copy, false, own.dtype, own.dtype), {part}, 0, to);
  }
  // What is not written over stays zero.
  void shift(size_t i) {
    const Node& own = nodes_[i];
    Operand from = fitted(own.from[0], own.dims, true, true);
    const Operand out = buffer(own.dtype, own.dims);
    made_[i] = out;
    add(find(Word::fill, false, own.dtype, own.dtype), {}, 0, out);
    const int64_t left = own.dims.back() - std::abs(own.by);
    if (left <= 0) return;
    Operand to = out;
    from.dims.back() = to.dims.back() = left;
    Operand& later = own.by > 0 ? from : to;
    later.byte_offset += std::abs(own.by) * later.strides.back() * sdk::bytes_of(own.dtype);
    add(find(Word::copy, false, own.dtype, own.dtype), {from}, 0, to);
  }

  // A value as an operand of a step whose output has these sizes.
  Operand fitted(int value, const Dims& dims, bool keeps_size, bool takes_strides) {
    const Node& own = node(value);
    if (own.word == Word::number) {
      if (keeps_size) return number_operand(own);
      return once(
          {value, dims},
          [&](const Operand& out) { add(find(Word::fill, false, own.dtype, own.dtype), {}, own.number, out); },
          own.dtype, dims);
    }
    Operand operand = made(value);
    const bool expands = !keeps_size && padded(own.dims, dims.size()) != dims;
    if ((!takes_strides || expands) && !is_dense(operand.dims, operand.strides)) {
      operand = once(
          {value, own.dims}, [&](const Operand& out) { copy(operand, out); }, own.dtype, own.dims);
    }
    if (!expands) return operand;
    return once(
        {value, dims},
        [&](const Operand& out) { add(find(Word::expand, false, own.dtype, own.dtype), {operand}, 0, out); }, own.dtype,
        dims);
  }

  // To a dense buffer. No vendor says whether it copies what repeats by strides of 0: that is expanded.
  void copy(Operand from, const Operand& out) {
    if (!has_repeats(from) || element_count(out.dims) == 0)
      return add(find(Word::copy, false, from.dtype, from.dtype), {from}, 0, out);
    for (size_t i = 0; i < from.dims.size(); ++i) {
      if (from.strides[i] == 0) from.dims[i] = from.strides[i] = 1;
    }
    if (!is_dense(from.dims, from.strides)) {
      const Operand dense = buffer(from.dtype, from.dims);
      add(find(Word::copy, false, from.dtype, from.dtype), {from}, 0, dense);
      from = dense;
    }
    add(find(Word::expand, false, from.dtype, from.dtype), {from}, 0, out);
  }

  // What a value became for the sake of a primitive, for all that ask for the same.
  template <class Make>
  Operand once(std::pair<int, Dims> key, Make make_it, Dtype dtype, const Dims& dims) {
    const auto found = fitted_.find(key);
    if (found != fitted_.end()) return found->second;
    const Operand out = buffer(dtype, dims);
    make_it(out);
    return fitted_.emplace(std::move(key), out).first->second;
  }

  // --- outputs -------------------------------------------------------------------------------------------------------
  // The output that a step may write itself, where value `kept` is to be: nothing reads the memory afterwards as an
  // input.
  const Output* target_of(size_t i, size_t kept, size_t row, bool may_be_in_place) const {
    if (row == kLacking) return nullptr;
    const Primitive& primitive = primitives_.table[row];
    for (const Output& output : outputs_) {
      if (output.value != static_cast<int>(kept) || output.view.dims != nodes_[i].dims) continue;
      if (!primitive.takes_strides && !is_dense(output.view.dims, output.view.strides)) continue;
      const bool is_kept = output.view.place == View::Place::kept;
      if (is_kept || is_free(output.view.index, primitive.in_place && may_be_in_place ? i : i - 1)) return &output;
    }
    return nullptr;
  }
  // Whether no value after `last` reads an input in this output's memory.
  bool is_free(uint32_t output, size_t last) const {
    return std::all_of(aliases_.begin(), aliases_.end(), [&](const Alias& alias) {
      if (alias.output != output) return true;
      for (size_t k = 0; k < nodes_.size(); ++k) {
        const Node& one = nodes_[k];
        const bool reads = one.word == Word::input && one.view.place == View::Place::input &&
                           one.view.index == alias.input && last_use_[k] != kNever;
        if (reads && last_use_[k] > last) return false;
      }
      return true;
    });
  }

  void store(const Output& output) {
    if (std::find(stored_.begin(), stored_.end(), &output) != stored_.end()) return;
    const Node& own = node(output.value);
    if (output.first_row >= 0) return store_rows(output);
    const Operand out = with_rank(operand_of(output.view), output.view.dims.size());
    if (own.word == Word::number) {
      return write(Word::fill, out, [&](size_t row, const Operand& to) { add(row, {}, own.number, to); });
    }
    Operand from = made(output.value);
    const bool expands = padded(own.dims, output.view.dims.size()) != output.view.dims;
    if (!expands && is_same_memory(from, out)) return;
    if (!expands && has_repeats(from)) from = fitted(output.value, own.dims, false, false);
    if (!expands) return add(find(Word::copy, false, own.dtype, own.dtype), {from}, 0, out);
    if (!is_dense(from.dims, from.strides)) from = fitted(output.value, own.dims, false, false);
    write(Word::expand, out, [&](size_t row, const Operand& to) { add(row, {from}, 0, to); });
  }
  void store_rows(const Output& output) {
    const Node& own = node(output.value);
    const Dims dims = {own.dims[0], output.view.dims[2]};
    const Operand from = fitted(output.value, dims, false, false);
    each_piece(operand_of(output.view), output.first_row, from, [&](const Operand& piece, const Operand& part) {
      add(find(Word::copy, false, own.dtype, own.dtype), {part}, 0, piece);
    });
  }
  // By way of a dense buffer where the primitive leaves no gaps.
  template <class Make>
  void write(Word word, const Operand& out, Make make_it) {
    const size_t row = find(word, false, out.dtype, out.dtype);
    if (row == kLacking || primitives_.table[row].takes_strides || is_dense(out.dims, out.strides))
      return make_it(row, out);
    const Operand dense = buffer(out.dtype, out.dims);
    make_it(row, dense);
    add(find(Word::copy, false, out.dtype, out.dtype), {dense}, 0, out);
  }
  bool is_same_memory(const Operand& from, const Operand& out) const {
    return from.place == Place::input && out.place == Place::output && from.byte_offset == out.byte_offset &&
           std::any_of(aliases_.begin(), aliases_.end(),
                       [&](const Alias& alias) { return alias.output == out.index && alias.input == from.index; });
  }

  // --- memory --------------------------------------------------------------------------------------------------------
  void place_buffers() {
    std::vector<int> interval_of(buffer_bytes_.size(), -1);
    std::vector<Interval> intervals;
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      const Step& step = program_.steps[s];
      for (const Operand& operand : step.in) {
        if (operand.place == Place::workspace) interval_at(intervals, interval_of, operand).last = s;
      }
      if (step.out.place != Place::workspace) continue;
      if (interval_of[step.out.index] >= 0) {  // written in parts
        interval_at(intervals, interval_of, step.out).last = s;
        continue;
      }
      interval_of[step.out.index] = static_cast<int>(intervals.size());
      Interval own;
      own.bytes = buffer_bytes_[step.out.index];
      own.first = own.last = s;
      intervals.push_back(own);
    }
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      const Step& step = program_.steps[s];
      if (step.out.place != Place::workspace || !primitives_.table[step.primitive].in_place) continue;
      if (interval_at(intervals, interval_of, step.out).first != s) continue;
      for (const Operand& operand : step.in) {
        if (operand.place != Place::workspace || operand.dims != step.out.dims) continue;
        if (is_seen_in_parts(step, operand)) continue;
        const Interval& other = interval_at(intervals, interval_of, operand);
        if (other.last != s || other.bytes != buffer_bytes_[step.out.index]) continue;
        interval_at(intervals, interval_of, step.out).reuses = interval_of[operand.index];
        break;
      }
    }
    program_.workspace_bytes = place(intervals, primitives_.alignment);
    const auto settle = [&](Operand& operand) {
      if (operand.place == Place::workspace) operand.byte_offset += interval_at(intervals, interval_of, operand).offset;
    };
    for (Step& step : program_.steps) {
      for (Operand& operand : step.in) settle(operand);
      settle(step.out);
    }
  }
  // Whether a step has other elements of an operand's memory at the same place.
  static bool is_seen_in_parts(const Step& step, const Operand& operand) {
    return std::any_of(step.in.begin(), step.in.end(), [&](const Operand& other) {
      const bool is_same = other.byte_offset == operand.byte_offset && other.dims == operand.dims;
      return other.place == Place::workspace && other.index == operand.index && !is_same;
    });
  }
  static Interval& interval_at(std::vector<Interval>& intervals, const std::vector<int>& of, const Operand& operand) {
    return intervals[static_cast<size_t>(of[operand.index])];
  }
  static uint64_t bytes_of(const Operand& operand) {
    return static_cast<uint64_t>(element_count(operand.dims) * sdk::bytes_of(operand.dtype));
  }

  double cost_of(const Step& step) const {
    const Speed& speed = primitives_.speed;
    uint64_t bytes = bytes_of(step.out);
    for (const Operand& operand : step.in) bytes += bytes_of(operand);
    double us = static_cast<double>(bytes) / speed.bytes_per_us;
    if (primitives_.table[step.primitive].word == Word::product) {
      const double terms =
          static_cast<double>(element_count(step.out.dims)) * static_cast<double>(step.in[0].dims.back());
      const double wide = step.out.dtype == Dtype::f32 ? 1 : 4;  // as many times as fast is the other
      us = std::max(us, 2 * terms / (wide * speed.operations_per_us));
    }
    return speed.step_us + us;
  }

  static constexpr size_t kLacking = ~size_t{0};
  static constexpr int64_t kMostPositions = 1 << 24;  // fp32 has all of them

  const std::vector<Node>& nodes_;
  const std::vector<Output>& outputs_;
  const Primitives& primitives_;
  const std::vector<Alias>& aliases_;
  std::vector<size_t> last_use_;
  std::vector<Operand> made_;  // by value
  std::map<std::pair<int, Dims>, Operand> fitted_;
  std::vector<const Output*> stored_;
  std::vector<uint64_t> buffer_bytes_;  // of each, of which its first step may write a part
  int64_t whole_ = 0;                   // of the step that is added
  std::vector<std::string> missing_;
  std::string unknown_;
  Program program_;
};

}  // namespace

sdk::Support lacking_word(const Primitives& primitives, const std::string& word) {
  return sdk::Support::no("PRIMITIVE", std::string(primitives.runtime) + " has no documented primitive for " + word +
                                           "; use another dtype or another device");
}
sdk::Support lacking_function(const Primitives& primitives, const std::string& names) {
  return sdk::Support::no("RUNTIME_SYMBOL_MISSING",
                          std::string(primitives.runtime) + " has no " + names + "; install a newer one");
}

Program program_of(const Recorder& recorder, const Primitives& primitives, const std::vector<Alias>& aliases) {
  return Composer(recorder, primitives, aliases).compose();
}

}  // namespace rlk::composed
