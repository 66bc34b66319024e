// Filling inputs, domain by domain. Elements that must never be read hold numbers that would show if they were.
#include "core/conformance/data.hpp"

#include <rlk/sdk/immortal.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/conformance/blocks.hpp"
#include "core/conformance/data_errors.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/nan.hpp"
#include "core/conformance/quality.hpp"
#include "core/conformance/random_calls.hpp"
#include "core/declaration/extremes.hpp"

namespace rlk::core::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kWide = 25;             // times the declared scale, where the declaration does not say how wide
constexpr double kCertain = 16;          // how far one score is above all others: nearly all the probability
constexpr double kMinusInfShare = 0.25;  // of the elements
constexpr double kMaskedShare = 0.3;     // of the rows
constexpr int64_t kIgnoredEvery = 5;     // every fifth row has the ignored id

// The i-th number of the stream that a key names.
class Random {
public:
  Random(uint64_t seed, uint64_t stream) : key_(mix(seed + 0x9e3779b97f4a7c15u * (stream + 1))) {}
  uint64_t bits(uint64_t i) const { return mix(key_ ^ mix(i)); }
  double uniform(uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }  // [0, 1)
  int64_t below(uint64_t i, int64_t n) const { return static_cast<int64_t>(bits(i) % static_cast<uint64_t>(n)); }
  // Near enough to normal, and far cheaper than a logarithm and a cosine per number: one of many normal numbers, moved
  // a little so that equal numbers are rare.
  double normal(uint64_t i) const {
    static const sdk::Immortal<std::vector<double>> kNormals(normals());
    const uint64_t number = bits(i);
    const double step = static_cast<double>(number & 0xffffffffu) * 0x1p-32 - 0.5;
    return (*kNormals)[number >> (64 - kNormalBits)] + 0x1p-10 * step;
  }

private:
  static constexpr int kNormalBits = 14;
  static std::vector<double> normals() {
    const Random random(0, 0);
    std::vector<double> list;
    for (uint64_t i = 0; i < uint64_t{1} << kNormalBits; ++i) {
      const double radius = std::sqrt(-2 * std::log(1 - random.uniform(2 * i)));
      list.push_back(radius * std::cos(2 * 3.14159265358979323846 * random.uniform(2 * i + 1)));
    }
    return list;
  }
  static uint64_t mix(uint64_t z) {  // the finalizer of splitmix64
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t key_;
};

// Scores as exp does not like them, by row: far apart; close together, but far from 0 on either side; and one that has
// nearly all the probability.
double wide_score(const DomainDecl& domain, double normal, int64_t row, bool is_certain) {
  if (row % 4 == 0) return domain.wide * normal;
  if (row % 4 == 1) return domain.wide * 1.5 + domain.scale * normal;
  if (row % 4 == 2) return domain.wide * -1.5 + domain.scale * normal;
  return domain.scale * normal + (is_certain ? domain.scale * 4 + kCertain : 0);
}

// One score at a magnitude, the others about 0; or all about a magnitude, above or below 0, where most of them are the
// same number. The magnitudes: ordinary for trained models, then where fp32 has no digits after the point, and half of
// the largest number.
double extreme_score(const DomainDecl& domain, Dtype dtype, double normal, int64_t row, bool is_certain) {
  const double largest = largest_of(dtype) / 2;
  const double magnitudes[] = {60, 6e4, 1e10, largest};
  const double magnitude = std::min(largest, magnitudes[row % 4]);
  if (row / 4 % 3 == 1) return magnitude + domain.scale * normal;
  if (row / 4 % 3 == 2) return -magnitude + domain.scale * normal;
  return is_certain ? magnitude : domain.scale * normal;
}
// A row with one number, at the row's own column. Fused kernels of 16-bit tensors err by eps times the score: up to
// here by less than their dtype does.
double extreme_single(Dtype dtype, int64_t row, int64_t columns, int64_t column) {
  constexpr double kMagnitudes[] = {0x1p6, 0x1p16, 0x1p33, 0x1p120};
  const bool is_16_bit = dtype == Dtype::f16 || dtype == Dtype::bf16;
  return column != row % columns ? 0.0 : is_16_bit ? std::min(0x1p14, kMagnitudes[row % 4]) : kMagnitudes[row % 4];
}
// The column of a row of scores that stands out, in wide and extreme contents: from the front, then from the back.
int64_t certain_column(int64_t row, int64_t columns) {
  const int64_t place = (row * 7 + 3) % columns;
  return row % 2 == 0 ? place : columns - 1 - place;
}

// Times numbers of the declared scales: many are subnormal and none is 0 for want of digits alone.
double tiny(Dtype dtype) {
  return dtype == Dtype::f16 ? 0x1p-18 : dtype == Dtype::bf16 ? 0x1p-129 : dtype == Dtype::f32 ? 0x1p-140 : 0x1p-1060;
}

// A row without a finite score: one in the middle and, where others are left, the first and the last.
bool is_hopeless(int64_t row, int64_t rows) {
  return row == rows / 2 || (rows > 4 && (row == 0 || row == rows - 1));
}

void fill_real(const DomainDecl& domain, Extreme extreme, Content content, const Random& random, Argument& argument) {
  const int64_t count = argument.count();
  const int64_t columns = argument.shape.empty() ? 1 : argument.shape.back();
  const int64_t rows = columns > 0 ? count / columns : 0;
  const bool is_wide = content == Content::wide;
  const double scale = domain.scale * (is_wide ? kWide : 1);
  for (int64_t i = 0, row = 0, column = -1; i < count; ++i) {
    if (++column == columns) ++row, column = 0;
    const double normal = random.normal(static_cast<uint64_t>(i));
    double value = scale * normal;
    if (is_wide && domain.wide > 0) value = wide_score(domain, normal, row, column == certain_column(row, columns));
    if (content == Content::extreme && extreme == Extreme::scores) {
      value = extreme_score(domain, argument.dtype, normal, row, column == certain_column(row, columns));
    }
    if (content == Content::extreme && extreme == Extreme::single) {
      value = extreme_single(argument.dtype, row, columns, column);
    }
    if (content == Content::extreme && extreme == Extreme::certain) {
      value = row == certain_column(column, rows) ? 1.0 : std::min(value, 0.5);
    }
    if (domain.step > 0) value = domain.step * std::round(value / domain.step);
    if (content == Content::tiny) value = tiny(argument.dtype) * normal;
    if (content == Content::positive) value = std::fabs(value);
    if (content == Content::sparse && argument.shape.size() > 1 && row % columns != column) value = 0;
    if (content == Content::minus_inf && domain.minus_inf) {
      // Every row keeps one number; the first keeps no other.
      const bool kept = column == certain_column(row, columns);
      const bool hit = random.uniform(static_cast<uint64_t>(i) + (uint64_t{1} << 40)) < kMinusInfShare;
      if (!kept && (hit || row == 0)) value = -kInfinity;
    }
    if (content == Content::all_minus_inf && domain.minus_inf && is_hopeless(row, rows)) value = -kInfinity;
    if (content == Content::nan && domain.nan_rows) {
      // A NaN's sign says nothing; that of an invalid operation is negative on x86.
      if (row == rows / 2 || (row == 0 && column == columns - 1)) value = column % 2 == 0 ? kNan : -kNan;
    }
    set(argument, i, value);
  }
}

// A gradient is exactly 1 where a sum is differentiated, and 0 where nothing is asked.
void set_plain_gradients(Argument& argument) {
  for (int64_t i = 0, count = argument.count(); i < count; ++i) {
    if (i % 7 == 2) set(argument, i, 1);
    if (i % 7 == 5) set(argument, i, 0);
  }
}

// The ends of the range, then numbers between them.
void fill_uniform(const DomainDecl& domain, const Random& random, Argument& argument) {
  for (int64_t i = 0, count = argument.count(); i < count; ++i) {
    const double share = i % 7 == 5 ? 1.0 : i % 7 == 2 ? 0.0 : random.uniform(static_cast<uint64_t>(i));
    set(argument, i, domain.min + share * (domain.max - domain.min));
  }
}

void fill_integers(const ConcreteCall& call, const DomainDecl& domain, const Random& random, Argument& argument) {
  const int64_t low = domain.low.eval(call.values()), high = domain.high.eval(call.values());
  for (int64_t n = 0; n < argument.count(); ++n) {
    const int64_t inside = low + random.below(static_cast<uint64_t>(n), std::max<int64_t>(high - low, 1));
    set_int(argument, n, n % 5 == 1 ? low : n % 5 == 3 ? high - 1 : inside);
  }
  // Flags of columns: one is set in each row, also in a row of one. A row of which nothing may be drawn is an error.
  if (argument.dtype != Dtype::u8 || argument.shape.size() < 2) return;
  const int64_t columns = argument.shape.back(), rows = columns > 0 ? argument.count() / columns : 0;
  for (int64_t row = 0; row < rows; ++row) {
    set_int(argument, row * columns + certain_column(row, columns), high - 1);
  }
}

// Ids at the edges of their range and of every integer parameter (the edges of a vocabulary shard), the rest random.
void fill_ids(const ConcreteCall& call, const DomainDecl& domain, const Random& random, Argument& argument) {
  const int64_t low = domain.low.eval(call.values()), high = domain.high.eval(call.values());
  std::vector<int64_t> edges = {low, high - 1};
  for (const ParamDecl& param : call.decl->params) {
    if (param.type != ParamType::i64) continue;
    const int64_t start = call.values().i64(param.offset);
    if (start <= low || start >= high) continue;
    for (size_t s = 0; s < call.decl->symbols.size(); ++s) {
      for (const int64_t edge : {start - 1, start, start + call.symbols[s] - 1, start + call.symbols[s]}) {
        if (edge >= low && edge < high) edges.push_back(edge);
      }
    }
  }
  for (int64_t n = 0; n < argument.count(); ++n) {
    const auto i = static_cast<uint64_t>(n);
    int64_t id = low + random.below(i, high - low);
    if (n % 2 == 0) id = edges[static_cast<size_t>(random.below(i, static_cast<int64_t>(edges.size())))];
    if (domain.ignore_param >= 0 && n % kIgnoredEvery == 3 && holds_int(argument.dtype, call.i64(domain.ignore_param)))
      id = call.i64(domain.ignore_param);
    set_int(argument, n, id);
  }
}

// The certain tokens are chosen in most rows: their log-probability is 0, or just below. In all of a batch of
// sequences: what a loss makes of a token that cannot be is beyond its dtype.
void choose_certain(Content content, ConcreteCall& call) {
  Argument* ids = find_domain(call, Domain::id);
  const DomainDecl* of_ids = find_domain_declaration(call, Domain::id);
  if (ids == nullptr || ids->layout == Layout::expanded) return;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Argument& scores = call.inputs[i];
    const Extreme extreme =
        content == Content::extreme ? extreme_of(call.decl->name, call.decl->inputs[i].name) : Extreme::none;
    const bool is_factor = extreme == Extreme::certain;
    if (!is_factor && extreme != Extreme::scores && call.decl->inputs[i].domain.wide <= 0) continue;
    if (scores.shape.size() != ids->shape.size() + 1) continue;
    const int64_t columns = is_factor ? scores.shape.front() : scores.shape.back();
    const Argument* rows = find_domain(call, Domain::row_index);
    if (columns <= 0 || of_ids->high.eval(call.values()) != columns) return;  // a shard: not all columns are here
    for (int64_t n = 0; n < ids->count(); ++n) {
      if ((n % 8 >= 6 && ids->shape.size() == 1) || is_ignored(call, n)) continue;
      const int64_t row = is_factor ? n % scores.shape.back() : rows != nullptr ? get_int(*rows, n) : n;
      set_int(*ids, n, certain_column(row, columns));
    }
    return;
  }
}

// Log-probabilities [shard, row]: of every row one shard has a number and the others -inf. Among the rows there are
// ignored ones (0 everywhere), ones that no shard owns and ones that two shards do.
void fill_owners(const DomainDecl& domain, const Random& random, Argument& argument) {
  const int64_t shards = argument.shape[0], rows = shards > 0 ? argument.count() / shards : 0;
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t owner = random.below(static_cast<uint64_t>(n), shards);
    for (int64_t s = 0; s < shards; ++s) {
      const int64_t i = s * rows + n;
      const double number = -domain.scale * std::fabs(random.normal(static_cast<uint64_t>(i)));
      const bool owns = n % 11 != 6 && (s == owner || (n % 7 == 4 && s == (owner + 1) % shards));
      set(argument, i, n % kIgnoredEvery == 3 ? 0.0 : owns ? number : -kInfinity);
    }
  }
}

// One element is always kept and, from two on, one is always masked.
void fill_mask(const Random& random, Argument& argument) {
  const int64_t count = argument.count();
  for (int64_t n = 0; n < count; ++n) {
    const auto i = static_cast<uint64_t>(n);
    int64_t value = random.uniform(i) < kMaskedShare ? 0 : (random.bits(i) & 1) != 0 ? 1 : 255;
    if (n == count - 1) value = 0;
    if (n == 0 || n == count / 2) value = 255;
    set_int(argument, n, value);
  }
  // Among three sequences and more, the second has no token that counts.
  if (argument.shape.size() != 2 || argument.shape[0] < 3) return;
  for (int64_t t = 0; t < argument.shape[1]; ++t) set_int(argument, argument.shape[1] + t, 0);
}

// Every row keeps the score that stands out, and that of row 0, which may be the only one of a bias. In contents with a
// row of -inf that row keeps nothing.
void fill_keep_mask(Content content, const Random& random, Argument& argument) {
  const int64_t columns = argument.shape.back(), rows = columns > 0 ? argument.count() / columns : 0;
  for (int64_t i = 0; i < argument.count(); ++i) {
    const int64_t row = i / columns, column = i % columns;
    const auto at = static_cast<uint64_t>(i);
    const bool is_kept = column == certain_column(row, columns) || column == certain_column(0, columns) ||
                         random.uniform(at) >= kMaskedShare;
    const bool keeps_none = content == Content::all_minus_inf && is_hopeless(row, rows);
    set_int(argument, i, !is_kept || keeps_none ? 0 : (random.bits(at) & 1) != 0 ? 1 : 255);
  }
}

void leave_out_every_row(ConcreteCall& call) {
  Argument* const mask = find_row_mask(call);
  Argument* const ids = find_ignorable_ids(call);
  for (int64_t n = 0; mask != nullptr && n < mask->count(); ++n) set_int(*mask, n, 0);
  if (mask != nullptr || ids == nullptr) return;
  const int64_t ignored = call.i64(find_domain_declaration(call, Domain::id)->ignore_param);
  for (int64_t n = 0; n < ids->count(); ++n) set_int(*ids, n, ignored);
}

void fill_row_indices(const ConcreteCall& call, const DomainDecl& domain, const Random& random, Argument& argument) {
  const int64_t high = domain.high.eval(call.values());
  const int64_t count = argument.count();
  if (!domain.increasing) {
    for (int64_t n = 0; n < count; ++n) {
      set_int(argument, n, n == 0 ? high - 1 : n == 1 ? 0 : random.below(static_cast<uint64_t>(n), high));
    }
    return;
  }
  int64_t n = 0;
  for (int64_t row = 0; row < high && n < count; ++row) {
    // Each choice of `count` rows is equally likely.
    const double odds = static_cast<double>(count - n) / static_cast<double>(high - row);
    if (random.uniform(static_cast<uint64_t>(row)) < odds) set_int(argument, n++, row);
  }
}

// Random lengths; from three sequences on, one of them is empty.
void fill_cu_seqlens(const ConcreteCall& call, const DomainDecl& domain, const Random& random, Argument& argument) {
  const int64_t total = domain.high.eval(call.values());
  const int64_t sequences = argument.count() - 1;
  std::vector<int64_t> ends;
  for (int64_t b = 1; b < sequences; ++b) ends.push_back(random.below(static_cast<uint64_t>(b), total + 1));
  std::sort(ends.begin(), ends.end());
  ends.insert(ends.begin(), 0);
  if (sequences > 0) ends.push_back(total);
  if (sequences >= 3) {
    const auto empty = static_cast<size_t>(random.below(0, sequences));
    if (empty == 0) ends[1] = 0;
    if (empty > 0) ends[empty] = ends[empty + 1];
  }
  for (size_t b = 0; b < ends.size(); ++b) set_int(argument, static_cast<int64_t>(b), ends[b]);
}

// The longest and none at all among lengths between them.
void fill_lengths(const ConcreteCall& call, const DomainDecl& domain, const Random& random, Argument& argument) {
  const int64_t high = domain.high.eval(call.values());
  for (int64_t n = 0; n < argument.count(); ++n) {
    const int64_t between = random.below(static_cast<uint64_t>(n), high + 1);
    set_int(argument, n, n % 4 == 1 ? high : n % 4 == 2 ? 0 : between);
  }
}

// The first and the last block among others; a block may have several places.
void fill_blocks(const ConcreteCall& call, const DomainDecl& domain, const Random& random, Argument& argument) {
  const int64_t high = domain.high.eval(call.values());
  for (int64_t n = 0; n < argument.count() && high > 0; ++n) {
    set_int(argument, n, n % 5 == 1 ? high - 1 : n % 5 == 3 ? 0 : random.below(static_cast<uint64_t>(n), high));
  }
}

// Block numbers behind a row's length are never looked up: they name no block.
void spoil_block_tables(ConcreteCall& call) {
  static constexpr int64_t kNowhere[] = {-1, int64_t{1} << 40, std::numeric_limits<int64_t>::min(), 1 << 20};
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    Argument& table = call.inputs[i];
    if (!table.present || call.decl->inputs[i].domain.kind != Domain::block_table) continue;
    if (table.layout == Layout::expanded) continue;
    const BlockTable blocks(call, i);
    for (int64_t row = 0; row < blocks.rows(); ++row) {
      for (int64_t column = blocks.used(row); column < blocks.columns(); ++column) {
        set_int(table, row * blocks.columns() + column, kNowhere[(row + column) % 4]);
      }
    }
  }
}

// Ids of masked rows and row indices of ignored rows are never dereferenced: they point nowhere.
void spoil_ignored(ConcreteCall& call) {
  Argument* ids = find_domain(call, Domain::id);
  Argument* rows = find_domain(call, Domain::row_index);
  if (ids == nullptr) return;
  static constexpr int64_t kNowhere[] = {int64_t{1} << 40, -7, std::numeric_limits<int64_t>::max(),
                                         std::numeric_limits<int64_t>::min()};
  for (int64_t n = 0; n < ids->count(); ++n) {
    if (!is_ignored(call, n)) continue;
    const int64_t nowhere = kNowhere[n % 4];
    if (rows != nullptr && rows->layout != Layout::expanded) set_int(*rows, n, nowhere);
    if (is_masked(call, n) && ids->layout != Layout::expanded) set_int(*ids, n, nowhere);
  }
}

void repeat_first_slice(Argument& argument) {
  if (argument.layout != Layout::expanded || argument.shape.empty() || argument.count() == 0) return;
  const size_t slice = argument.bytes.size() / static_cast<size_t>(argument.shape[0]);
  for (size_t at = slice; at + slice <= argument.bytes.size(); at += slice) {
    std::memcpy(argument.bytes.data() + at, argument.bytes.data(), slice);
  }
}

// Inputs that are compared get the numbers of the other one, moved by little and, in some rows, not at all. Where their
// last dimensions differ (hidden states of two models) both are 0 in the columns that only one has.
void bring_close(uint64_t seed, ConcreteCall& call) {
  constexpr double kMoves[] = {1e-4, 0, 1e-6, 3e-4};
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const int at = input_index(*call.decl, close_to(call.decl->name, call.decl->inputs[i].name));
    if (at < 0 || !call.inputs[i].present || !call.inputs[static_cast<size_t>(at)].present) continue;
    Argument &moved = call.inputs[i], &other = call.inputs[static_cast<size_t>(at)];
    const int64_t columns = moved.shape.back(), of_other = other.shape.back();
    const Random random(seed ^ 0xc105e, i);
    for (int64_t k = 0; k < other.count(); ++k) {
      if (k % of_other >= columns) set(other, k, 0);
    }
    for (int64_t k = 0; k < moved.count(); ++k) {
      const int64_t row = k / columns, from = row * of_other + k % columns;
      const bool is_shared = k % columns < of_other && from < other.count();
      const double move = kMoves[(moved.shape.size() == 1 ? k : row) % 4] * random.normal(static_cast<uint64_t>(k));
      set(moved, k, is_shared ? get(other, from) + move : 0);
    }
    repeat_first_slice(moved);
  }
}

// The stream may report any of the rows that have no finite score, or keep none: whichever is met first. A bias
// of -inf leaves none in any row; where rows are named by an index, several may read the same scores.
void note_hopeless_rows(ConcreteCall& call) {
  const Argument* const index = find_domain(call, Domain::row_index);
  const Argument* const ids = find_domain(call, Domain::id);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Argument& scores = call.inputs[i];
    const int64_t columns = scores.shape.empty() ? 0 : scores.shape.back();
    const bool may_hide = call.decl->inputs[i].domain.minus_inf || is_keep_mask(call, i);
    if (!scores.present || !may_hide || columns == 0) continue;
    const int64_t rows = scores.count() / columns;
    const int64_t tokens = index != nullptr ? index->count() : rows == 1 && ids != nullptr ? ids->count() : rows;
    for (int64_t n = 0; n < tokens; ++n) {
      const bool is_one = rows == 1 || is_hopeless(index != nullptr ? get_int(*index, n) : n, rows);
      if (is_one && !is_ignored(call, n)) call.faults.push_back({RLK_DATA_NO_FINITE_LOGIT, n, 0});
    }
  }
}

}  // namespace

void fill_inputs(const Case& c, uint64_t seed, ConcreteCall& call, Answers* answers) {
  call.faults.clear();
  // What is drawn hides rows that no fault below names, and rows that are all the same are hidden all.
  const bool is_repeated = std::any_of(call.inputs.begin(), call.inputs.end(),
                                       [](const Argument& input) { return input.layout == Layout::expanded; });
  const bool hides = c.content == Content::all_minus_inf || c.content == Content::minus_inf;
  call.has_more_faults = c.drawn != 0 || (hides && is_repeated);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    Argument& argument = call.inputs[i];
    if (!argument.present) continue;
    argument.bytes.assign(static_cast<size_t>(argument.byte_count()), std::byte{0});
    const DomainDecl& domain = call.decl->inputs[i].domain;
    const Random random(seed, i);
    const Extreme extreme = extreme_of(call.decl->name, call.decl->inputs[i].name);
    const bool scores = c.content == Content::extreme && extreme == Extreme::scores;
    if (domain.kind == Domain::real || scores) fill_real(domain, extreme, c.content, random, argument);
    const bool is_gradient = std::string_view(call.decl->inputs[i].name).substr(0, 5) == "grad_";
    if (domain.kind == Domain::real && is_gradient && c.content == Content::ordinary) set_plain_gradients(argument);
    if (domain.kind == Domain::uniform && !scores) fill_uniform(domain, random, argument);
    if (domain.kind == Domain::integer) fill_integers(call, domain, random, argument);
    if (domain.kind == Domain::id) fill_ids(call, domain, random, argument);
    if (is_keep_mask(call, i)) fill_keep_mask(c.content, random, argument);
    if (domain.kind == Domain::mask && !is_keep_mask(call, i)) fill_mask(random, argument);
    if (domain.kind == Domain::owner) fill_owners(domain, random, argument);
    if (domain.kind == Domain::row_index) fill_row_indices(call, domain, random, argument);
    if (domain.kind == Domain::cu_seqlens) fill_cu_seqlens(call, domain, random, argument);
    if (domain.kind == Domain::length) fill_lengths(call, domain, random, argument);
    if (domain.kind == Domain::block_table) fill_blocks(call, domain, random, argument);
    repeat_first_slice(argument);
  }
  if (c.content == Content::close) bring_close(seed, call);
  if (c.content == Content::wide || c.content == Content::extreme) choose_certain(c.content, call);
  if (c.content == Content::none_counts) leave_out_every_row(call);
  spoil_ignored(call);
  spoil_block_tables(call);
  for (const auto& [input, values] : forward_inputs(call, answers)) {
    for (size_t k = 0; k < values.size(); ++k) set(call.inputs[input], static_cast<int64_t>(k), values[k]);
  }
  spoil_hidden(call);
  if (c.content == Content::one_nan) plant_nan(static_cast<size_t>(c.nan_input), call);
  if (c.drawn != 0) draw_contents(c.drawn, call);
  if (c.content == Content::all_minus_inf) note_hopeless_rows(call);
  if (c.content == Content::fault) plant_fault(c.fault, call);
}

}  // namespace rlk::core::conformance
