// The one form of every word: numbers stand last, differences from a number are sums, and what has only numbers is one.
#include "recorder.hpp"

#include <cmath>
#include <cstring>

namespace rlk::composed {
namespace {

using sdk::Dtype;

Node node_of(Word word, Dtype dtype, const From& from, Dims dims) {
  Node node;
  node.word = word;
  node.dtype = dtype;
  node.from = from;
  node.dims = std::move(dims);
  return node;
}

double as_kept(double value, Dtype dtype) {
  return dtype == Dtype::f32 ? static_cast<double>(static_cast<float>(value)) : value;
}

// Of numbers, in their dtype: a sum, product, quotient or root of two fp32 in fp64 rounds to fp32 as if made there.
double computed(Word word, double a, double b) {
  switch (word) {
    case Word::add:
      return a + b;
    case Word::subtract:
      return a - b;
    case Word::multiply:
      return a * b;
    case Word::divide:
      return a / b;
    case Word::absolute:
      return std::fabs(a);
    case Word::root:
      return std::sqrt(a);
    case Word::exp:
      return std::exp(a);
    case Word::log:
      return std::log(a);
    case Word::tanh:
      return std::tanh(a);
    case Word::floor:
      return std::floor(a);
    case Word::less:
      return a < b ? 1 : 0;
    case Word::less_equal:
      return a <= b ? 1 : 0;
    case Word::equal:
      return a == b ? 1 : 0;
    case Word::not_equal:
      return a != b ? 1 : 0;
    case Word::both:
      return a != 0 && b != 0 ? 1 : 0;
    case Word::either:
      return a != 0 || b != 0 ? 1 : 0;
    default:
      throw sdk::Error(RLK_INTERNAL, sdk::format("no number is %s", name_of(word)));
  }
}

// Of integers, to the last bit.
int64_t computed_whole(Word word, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (word) {
    case Word::add:
      return static_cast<int64_t>(x + y);
    case Word::subtract:
      return static_cast<int64_t>(x - y);
    case Word::multiply:
      return static_cast<int64_t>(x * y);
    case Word::bit_and:
      return a & b;
    case Word::bit_xor:
      return a ^ b;
    default:
      throw sdk::Error(RLK_INTERNAL, sdk::format("no integer is %s", name_of(word)));
  }
}

Dims broadcast(const Dims& a, const Dims& b) {
  Dims dims = a.size() >= b.size() ? a : b;
  const Dims& other = a.size() >= b.size() ? b : a;
  for (size_t i = 0; i < other.size(); ++i) {
    int64_t& dim = dims[dims.size() - 1 - i];
    if (dim == 1) dim = other[other.size() - 1 - i];
  }
  return dims;
}

}  // namespace

uint64_t bits_of(double number) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

int Recorder::add(Node node) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& made = nodes_[i];
    if (made.word == node.word && made.dtype == node.dtype && made.from == node.from &&
        bits_of(made.number) == bits_of(node.number) && made.by == node.by && made.axis == node.axis &&
        made.view.place == node.view.place && made.view.index == node.view.index &&
        made.view.byte_offset == node.view.byte_offset && made.dims == node.dims &&
        made.view.strides == node.view.strides) {
      return static_cast<int>(i);
    }
  }
  nodes_.push_back(std::move(node));
  return static_cast<int>(nodes_.size()) - 1;
}

View Recorder::seen(const View& view) const {
  if (pass_ == Pass::ahead || pass_ == Pass::last || !is_of_rows(view)) return view;
  View part = view;
  part.dims[0] = window_.count;
  part.byte_offset += window_.first * view.strides[0] * sdk::bytes_of(view.dtype);
  return part;
}

int Recorder::input(const View& view, Dtype number_dtype) {
  if (!view.is_present()) return number(view.value, number_dtype);
  Node node;
  node.view = seen(view);
  node.dtype = view.dtype;
  node.dims = node.view.dims;
  return add(std::move(node));
}

int Recorder::token_rows(const View& view) {
  if (!view.is_present()) return input(view);
  if (has_token_rows(view)) return input(token_rows_of(view));
  Node node = node_of(Word::rows, view.dtype, {table(view), -1, -1}, token_rows_of(view).dims);
  if (pass_ == Pass::chunk) {
    node.dims[0] = window_.count;
    node.by = window_.first;
  }
  return add(std::move(node));
}

int Recorder::table(const View& view) {
  Node node;
  node.view = view;
  node.dtype = view.dtype;
  node.dims = view.dims;
  return add(std::move(node));
}

int Recorder::number(double value, Dtype dtype) {
  Node node;
  node.word = Word::number;
  node.dtype = dtype;
  node.number = as_kept(value, dtype);
  if (dtype == Dtype::i64 && std::fabs(value) < 0x1p63) node.by = static_cast<int64_t>(value);
  has_lost_number_ = has_lost_number_ || (std::isfinite(value) && !std::isfinite(node.number));
  return add(std::move(node));
}

int Recorder::id_number(int64_t value) {
  Node node;
  node.word = Word::number;
  node.dtype = Dtype::i64;
  node.number = static_cast<double>(value);
  node.by = value;
  return add(std::move(node));
}

int Recorder::positions(const Dims& dims, Dtype dtype) {
  return add(node_of(Word::positions, dtype, {-1, -1, -1}, dims));
}

int Recorder::cast(int value, Dtype dtype, int64_t use) {
  if (at(value).dtype == dtype) return value;
  if (is_number(value)) return number(at(value).number, dtype);
  Node node = node_of(Word::cast, dtype, {value, -1, -1}, at(value).dims);
  node.by = use;
  return add(std::move(node));
}

int Recorder::rounded(int value, Dtype dtype) {
  if (at(value).dtype == Dtype::f64 && sdk::bits_of(dtype) == 16) value = cast(value, Dtype::f32);
  return cast(value, dtype);
}

int Recorder::step(Word word, const From& from) {
  Node node;
  node.word = word;
  node.from = from;
  const bool makes_mask = is_comparison(word) || word == Word::both || word == Word::either;
  node.dtype = makes_mask ? Dtype::boolean : at(word == Word::select ? from[1] : from[0]).dtype;
  bool all_numbers = word != Word::select;
  for (const int value : from) {
    if (value < 0) continue;
    all_numbers = all_numbers && is_number(value);
    node.dims = broadcast(node.dims, at(value).dims);
  }
  if (all_numbers && !is_reduction(word)) {
    if (node.dtype == Dtype::i64) return id_number(computed_whole(word, at(from[0]).by, at(from[1]).by));
    return number(computed(word, at(from[0]).number, from[1] < 0 ? 0 : at(from[1]).number), node.dtype);
  }
  if (is_reduction(word)) {
    if (node.dims.empty()) return from[0];  // a number, or one element
    (word == Word::sum_rows ? node.dims.front() : node.dims.back()) = 1;
    if (word == Word::largest_at) node.dtype = Dtype::i32;
  }
  return add(std::move(node));
}

int Recorder::compare(Word word, int a, int b) {
  const bool swaps = word == Word::greater || word == Word::greater_equal;
  if (is_number(b) && !is_number(a)) return step(word, {a, b, -1});
  if (swaps) return compare(word == Word::greater ? Word::less : Word::less_equal, b, a);
  if (is_number(a) && !is_number(b)) {
    const Word mirrored = word == Word::less ? Word::greater : word == Word::less_equal ? Word::greater_equal : word;
    return step(mirrored, {b, a, -1});
  }
  return step(word, {a, b, -1});
}

int Recorder::make(Word word, int a, int b) {
  if (is_comparison(word)) return compare(word, a, b);
  if (is_number(a) && is_number(b)) return step(word, {a, b, -1});
  switch (word) {
    case Word::subtract:
      if (is_number(b)) return make(Word::add, a, number(-at(b).number, at(b).dtype));
      if (is_number(a)) return make(Word::add, make(Word::multiply, b, number(-1, at(b).dtype)), a);
      break;
    case Word::add:
    case Word::multiply:
    case Word::bit_and:
    case Word::bit_xor:
    case Word::both:
    case Word::either:
      if (is_number(a)) std::swap(a, b);
      if (word == Word::multiply && is_number(b, 1)) return a;
      if (word == Word::both && is_number(b)) return at(b).number != 0 ? a : b;
      if (word == Word::either && is_number(b)) return at(b).number != 0 ? b : a;
      break;
    case Word::divide:
      if (is_number(b, 1)) return a;
      break;
    default:
      break;
  }
  return step(word, {a, b, -1});
}

int Recorder::inverse(int mask) {
  if (is_number(mask)) return number(at(mask).number != 0 ? 0 : 1, Dtype::boolean);
  const Node& node = at(mask);
  if (node.word == Word::not_equal) return step(Word::equal, node.from);
  if (node.word == Word::equal) {
    if (at(node.from[0]).dtype == Dtype::boolean && is_number(node.from[1], 0)) return node.from[0];
    return step(Word::not_equal, node.from);
  }
  return step(Word::equal, {mask, number(0, Dtype::boolean), -1});
}

int Recorder::bits(int value, Dtype dtype, int64_t piece) {
  if (is_number(value)) {
    if (at(value).dtype != Dtype::i64 || dtype != Dtype::i32)
      throw sdk::Error(RLK_INTERNAL, "of numbers only the words of integers are known");
    return number(static_cast<int32_t>(static_cast<uint64_t>(at(value).by) >> 32 * piece), dtype);
  }
  Node node = node_of(Word::bits, dtype, {value, -1, -1}, at(value).dims);
  node.by = piece;
  return add(std::move(node));
}

int Recorder::select(int mask, int chosen, int other) {
  if (is_number(mask)) return at(mask).number != 0 ? chosen : other;
  if (chosen == other) return chosen;
  const Node& node = at(mask);
  if (node.word == Word::equal && at(node.from[0]).dtype == Dtype::boolean && is_number(node.from[1], 0)) {
    return step(Word::select, {node.from[0], other, chosen});
  }
  return step(Word::select, {mask, chosen, other});
}

int Recorder::index(int id) {
  if (at(id).dtype == Dtype::i32) return id;
  return add(node_of(Word::index, Dtype::i32, {id, -1, -1}, at(id).dims));
}

int Recorder::whole(int value) {
  if (is_number(value)) return number(at(value).number, Dtype::i64);
  return add(node_of(Word::whole, Dtype::i64, {value, -1, -1}, at(value).dims));
}

int Recorder::gather(int rows, int index) {
  return add(node_of(Word::gather, at(rows).dtype, {rows, index, -1}, at(index).dims));
}

int Recorder::take_rows(int table, int index) {
  Node node = node_of(Word::take_rows, at(table).dtype, {table, index, -1}, at(table).dims);
  node.dims[0] = at(index).dims[0];
  return add(std::move(node));
}

int Recorder::take_columns(int rows, int index) {
  Node node = node_of(Word::take_columns, at(rows).dtype, {rows, index, -1}, at(rows).dims);
  node.dims.back() = at(index).dims.back();
  return add(std::move(node));
}

int Recorder::put_rows(int table, int index, int rows) {
  return add(node_of(Word::put_rows, at(table).dtype, {table, index, rows}, at(table).dims));
}

int Recorder::placed(const Dims& dims, int nothing, int index, int rows) {
  return add(node_of(Word::put_rows, at(rows).dtype, {nothing, index, rows}, dims));
}

int Recorder::product(int a, int b) {
  Dims x = at(a).dims, y = at(b).dims;
  const Dims matrix = {x[x.size() - 2], y.back()};
  if (x.back() == 0) return number(0, at(a).dtype);  // a sum of nothing
  x.resize(x.size() - 2), y.resize(y.size() - 2);
  Node node = node_of(Word::product, at(a).dtype, {a, b, -1}, broadcast(x, y));
  node.dims.insert(node.dims.end(), matrix.begin(), matrix.end());
  return add(std::move(node));
}

int Recorder::transpose(int value) {
  return exchange(value, at(value).dims.size() - 2);
}

int Recorder::exchange(int value, size_t axis) {
  Node node = node_of(Word::transpose, at(value).dtype, {value, -1, -1}, at(value).dims);
  std::swap(node.dims[axis], node.dims[axis + 1]);
  node.axis = axis;
  return add(std::move(node));
}

int Recorder::sum_along(int value, size_t axis) {
  if (is_number(value) || at(value).dims[axis] == 1) return value;
  Node node = node_of(Word::sum_rows, at(value).dtype, {value, -1, -1}, at(value).dims);
  node.dims[axis] = 1;
  node.by = static_cast<int64_t>(axis);
  return add(std::move(node));
}

int Recorder::order(int rows, int64_t count) {
  Node node = node_of(Word::order, Dtype::i32, {rows, -1, -1}, at(rows).dims);
  node.dims.back() = node.by = count;
  return add(std::move(node));
}

int Recorder::for_heads(int value, int64_t first, int64_t count) {
  if (is_number(value)) return value;
  Node node = node_of(Word::part, at(value).dtype, {value, -1, -1}, at(value).dims);
  node.dims.back() = count;
  node.dims.insert(node.dims.end() - 1, 1);
  node.axis = at(value).dims.size() - 1;
  node.by = first;
  return add(std::move(node));
}

int Recorder::columns(int value, int64_t first, int64_t count) {
  return is_number(value) ? value : part(value, at(value).dims.size() - 1, first, count);
}

int Recorder::part(int value, size_t axis, int64_t first, int64_t count) {
  if (is_number(value) || at(value).dims[axis] == count) return value;
  Node node = node_of(Word::part, at(value).dtype, {value, -1, -1}, at(value).dims);
  node.dims[axis] = count;
  node.axis = axis;
  node.by = first;
  return add(std::move(node));
}

int Recorder::join(int whole, int part, int64_t first, const Dims& dims) {
  Node node = node_of(Word::join, at(part).dtype, {whole, part, -1}, dims);
  node.by = first;
  return add(std::move(node));
}

int Recorder::reshape(int value, const Dims& dims) {
  if (is_number(value) || at(value).dims == dims) return value;
  return add(node_of(Word::reshape, at(value).dtype, {value, -1, -1}, dims));
}

int Recorder::shift(int value, int64_t by) {
  if (is_number(value)) throw sdk::Error(RLK_INTERNAL, "a number has no row to be shifted in");
  Node node = node_of(Word::shift, at(value).dtype, {value, -1, -1}, at(value).dims);
  node.by = by;
  return add(std::move(node));
}

void Recorder::report(const Errors& errors, bool is_of_all) {
  ends_ = ends_ || is_of_all;
  if (pass_ == Pass::ahead || pass_ == (is_of_all ? Pass::chunk : Pass::last)) return;
  Node node = node_of(Word::report, Dtype::boolean,
                      {errors.empty, errors.unknown, errors.ids, errors.misplaced, errors.places}, {});
  for (const int mask : {errors.empty, errors.unknown, errors.misplaced}) {
    if (mask >= 0) node.dims = broadcast(node.dims, at(mask).dims);
  }
  // What no chunk divides is counted from its own start, in every chunk alike.
  const bool is_of_window = node.dims.size() == window_.rank && !node.dims.empty();
  node.number = is_of_window ? static_cast<double>(window_.first) : 0;
  add(std::move(node));
}

// A place for a value, with the sizes of the whole.
View Recorder::keep(int value, bool is_of_rows) {
  View view;
  view.place = View::Place::kept;
  view.index = static_cast<uint32_t>(kept_.size());
  view.dtype = at(value).dtype;
  view.dims = at(value).dims;
  if (pass_ == Pass::chunk && is_of_rows) view.dims[0] = window_.rows;
  view.strides = dense_strides(view.dims);
  kept_.push_back(view);
  return view;
}

int Recorder::ahead(int value, bool is_of_rows) {
  if (is_number(value)) return value;
  const View view = keep(value, is_of_rows);
  if (pass_ == Pass::whole) return value;
  if (pass_ != Pass::ahead) return is_of_rows ? input(view) : table(view);
  outputs_.push_back({view, value});
  return value;
}

int Recorder::collected(int value) {
  if (is_number(value)) return value;
  const View view = keep(value, true);
  if (!collects_) first_collected_ = view;
  collects_ = ends_ = true;
  if (pass_ == Pass::chunk) outputs_.push_back({seen(view), value});
  return pass_ == Pass::last ? table(view) : value;
}

int Recorder::summed(int of_chunk) {
  if (is_number(of_chunk)) throw sdk::Error(RLK_INTERNAL, "a number is no sum over rows");
  ends_ = true;
  const View view = keep(of_chunk, false);
  if (pass_ == Pass::ahead) outputs_.push_back({view, number(0, view.dtype)});
  if (pass_ == Pass::chunk) outputs_.push_back({view, make(Word::add, table(view), of_chunk)});
  return pass_ == Pass::whole ? of_chunk : table(view);
}

void Recorder::output(const View& view, int value) {
  if (!view.is_present() || pass_ == Pass::ahead) return;
  if (pass_ == Pass::chunk && !is_of_rows(view)) return;
  if (pass_ == Pass::last && is_of_rows(view)) return;
  outputs_.push_back({seen(view), cast(value, view.dtype)});
}

void Recorder::sum(const View& view, int value) {
  if (!view.is_present() || pass_ == Pass::ahead || pass_ == Pass::last) return;
  value = cast(value, view.dtype);
  if (window_.first > 0) value = make(Word::add, table(view), value);
  Output output{view, value};
  output.is_sum = true;
  outputs_.push_back(output);
}

void Recorder::output_token_rows(const View& view, int value) {
  if (!view.is_present()) return;
  if (has_token_rows(view)) return output(token_rows_of(view), value);
  if (is_number(value)) return output(view, value);
  if (pass_ == Pass::ahead || pass_ == Pass::last) return;
  outputs_.push_back({view, cast(value, view.dtype), pass_ == Pass::chunk ? window_.first : 0});
}

}  // namespace rlk::composed
