// Parts of calls: rows gathered from inputs, packed sequences cut and put together again, outputs gathered likewise.
#include "core/conformance/classes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

#include "core/conformance/elements.hpp"
#include "core/conformance/ties.hpp"

namespace rlk::core::conformance {
namespace {

using Indices = std::vector<int64_t>;

Indices range(int64_t begin, int64_t end) {
  Indices list(static_cast<size_t>(std::max<int64_t>(end - begin, 0)));
  std::iota(list.begin(), list.end(), begin);
  return list;
}

// Keeps the given indices of one dimension.
std::vector<std::byte> gather(const std::vector<std::byte>& bytes, const std::vector<int64_t>& shape, size_t axis,
                              const Indices& kept, int64_t element) {
  int64_t outer = 1, inner = element;
  for (size_t i = 0; i < axis; ++i) outer *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  std::vector<std::byte> result;
  result.reserve(static_cast<size_t>(outer * inner) * kept.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t i : kept) {
      const auto* from = bytes.data() + (o * shape[axis] + i) * inner;
      result.insert(result.end(), from, from + inner);
    }
  }
  return result;
}

// Which indices of which symbols a part keeps. Symbols without an entry are whole.
struct Selection {
  std::array<std::optional<Indices>, kMaxSymbols> symbols;
};

// Cuts every dimension of the argument that is a selected symbol. True when there was one.
bool cut(const ShapeDecl& shape, const Selection& selection, Argument& argument, std::vector<std::byte>& bytes) {
  bool any = false;
  if (shape.kind != ShapeDecl::Kind::dims) return any;
  for (size_t axis = 0; axis < shape.dims.size(); ++axis) {
    const Dim& dim = shape.dims[axis];
    if (dim.symbol < 0 || dim.offset != 0 || !selection.symbols[static_cast<size_t>(dim.symbol)]) continue;
    const Indices& kept = *selection.symbols[static_cast<size_t>(dim.symbol)];
    if (!bytes.empty()) bytes = gather(bytes, argument.shape, axis, kept, size_of(argument.dtype));
    argument.shape[axis] = static_cast<int64_t>(kept.size());
    any = true;
  }
  return any;
}

// Whether a computed size depends on a symbol of which only a part is kept: it is not a matter of gathering then.
bool is_computed_from(const ConcreteCall& whole, const Selection& selection) {
  const auto form = static_cast<size_t>(whole.form);
  const auto depends = [&](const ArgDecl& arg) {
    for (const Dim& dim : arg.shapes[form].dims) {
      for (size_t s = 0; s < selection.symbols.size(); ++s) {
        if ((dim.uses >> s & 1) != 0 && selection.symbols[s]) return true;
      }
    }
    return false;
  };
  return std::any_of(whole.decl->inputs.begin(), whole.decl->inputs.end(), depends) ||
         std::any_of(whole.decl->outputs.begin(), whole.decl->outputs.end(), depends);
}

Part make_part(const ConcreteCall& whole, const std::vector<std::vector<std::byte>>& outputs,
               const Selection& selection, std::string name) {
  Part part;
  part.name = std::move(name);
  part.call = whole;
  for (size_t s = 0; s < selection.symbols.size(); ++s) {
    if (selection.symbols[s]) part.call.symbols[s] = static_cast<int64_t>(selection.symbols[s]->size());
  }
  const auto form = static_cast<size_t>(whole.form);
  for (size_t i = 0; i < whole.inputs.size(); ++i) {
    Argument& input = part.call.inputs[i];
    if (input.present) cut(whole.decl->inputs[i].shapes[form], selection, input, input.bytes);
  }
  part.expected.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Argument& output = part.call.outputs[i];
    if (!output.present) continue;
    part.expected[i].bytes = outputs[i];
    part.expected[i].compared = cut(whole.decl->outputs[i].shapes[form], selection, output, part.expected[i].bytes);
  }
  return part;
}

// A permutation that moves every row, for two rows and more.
Indices another_order(int64_t rows) {
  Indices order = range(0, rows);
  std::reverse(order.begin(), order.end());
  if (rows > 2) std::rotate(order.begin(), order.begin() + 1, order.end());
  return order;
}

struct Choice {
  std::string name;
  Indices rows;
};
std::vector<Choice> choices(int64_t rows, const std::string& what) {
  const int64_t cut = (rows + 2) / 3;
  std::vector<Choice> list = {{fmt::format("the first {} {} alone", cut, what), range(0, cut)},
                              {"the other " + what + " alone", range(cut, rows)},
                              {what + " in another order", another_order(rows)}};
  if (rows > 3) list.push_back({"the last of the " + what + " alone", range(rows - 1, rows)});
  return list;
}

// ---- packed sequences -------------------------------------------------------------------------------------------

std::vector<Part> packed_parts(const ConcreteCall& whole, const std::vector<std::vector<std::byte>>& outputs,
                               int symbol) {
  std::vector<Part> parts;
  const int64_t sequences = whole.symbols[static_cast<size_t>(symbol)];
  for (const Choice& choice : choices(sequences, "sequences")) {
    Selection selection;
    selection.symbols[static_cast<size_t>(symbol)] = choice.rows;  // what has one entry per sequence
    std::vector<std::pair<size_t, Indices>> lengths;               // input, new cu_seqlens
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      const DomainDecl& domain = whole.decl->inputs[i].domain;
      if (domain.kind != Domain::cu_seqlens || !whole.inputs[i].present) continue;
      Indices tokens, cu_seqlens = {0};
      for (const int64_t b : choice.rows) {
        const Indices own = range(get_int(whole.inputs[i], b), get_int(whole.inputs[i], b + 1));
        tokens.insert(tokens.end(), own.begin(), own.end());
        cu_seqlens.push_back(static_cast<int64_t>(tokens.size()));
      }
      const int total = symbol_index(*whole.decl, domain.high.text);
      if (total < 0) return {};
      selection.symbols[static_cast<size_t>(total)] = tokens;
      lengths.emplace_back(i, cu_seqlens);
    }
    if (is_computed_from(whole, selection)) return {};
    Part part = make_part(whole, outputs, selection, choice.name);
    for (const auto& [input, cu_seqlens] : lengths) {
      Argument& argument = part.call.inputs[input];
      argument.shape = {static_cast<int64_t>(cu_seqlens.size())};
      argument.bytes.assign(static_cast<size_t>(argument.byte_count()), std::byte{0});
      for (size_t b = 0; b < cu_seqlens.size(); ++b) set_int(argument, static_cast<int64_t>(b), cu_seqlens[b]);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// ---- rows ---------------------------------------------------------------------------------------------------------

// With row indices the logits stay whole, and an output over logits rows (a gradient) says something only about the
// rows that the part names.
void skip_unnamed_rows(const ConcreteCall& whole, const Indices& rows, int logits_symbol, Part& part) {
  const Argument& indices = *find_domain(whole, Domain::row_index);
  const auto form = static_cast<size_t>(whole.form);
  for (size_t i = 0; i < part.expected.size(); ++i) {
    const ShapeDecl& shape = whole.decl->outputs[i].shapes[form];
    const bool over_logits = shape.kind == ShapeDecl::Kind::dims && !shape.dims.empty() &&
                             shape.dims[0].symbol == logits_symbol && whole.outputs[i].present;
    if (!over_logits) continue;
    const Argument& output = part.call.outputs[i];
    const int64_t per_row = output.shape[0] > 0 ? output.count() / output.shape[0] : 0;
    part.expected[i].compared = true;
    part.expected[i].skip.assign(static_cast<size_t>(output.count()), true);
    for (const int64_t n : rows) {
      const int64_t row = get_int(indices, n);
      if (row < 0 || row >= output.shape[0]) continue;
      const auto begin = part.expected[i].skip.begin() + row * per_row;
      std::fill(begin, begin + per_row, false);
    }
  }
}

std::vector<Part> row_parts(const ConcreteCall& whole, const std::vector<std::vector<std::byte>>& outputs, int symbol,
                            const std::vector<Choice>& wanted) {
  const OpDecl& decl = *whole.decl;
  const DomainDecl* row_index = find_domain_declaration(whole, Domain::row_index);
  const int logits_symbol = row_index != nullptr ? symbol_index(decl, row_index->high.text) : -1;
  std::vector<Part> parts;
  for (const Choice& choice : wanted) {
    const bool in_order = std::is_sorted(choice.rows.begin(), choice.rows.end());
    if (row_index != nullptr && row_index->increasing && !in_order) continue;
    Selection selection;
    selection.symbols[static_cast<size_t>(symbol)] = choice.rows;
    for (size_t s = 0; s < decl.symbols.size() && row_index == nullptr; ++s) {
      if (are_tied(whole, static_cast<size_t>(symbol), s)) selection.symbols[s] = choice.rows;
    }
    if (is_computed_from(whole, selection)) return {};
    Part part = make_part(whole, outputs, selection, choice.name);
    if (!keeps_rules(part.call)) continue;
    if (row_index != nullptr) skip_unnamed_rows(whole, choice.rows, logits_symbol, part);
    parts.push_back(std::move(part));
  }
  return parts;
}

// ---- queries ------------------------------------------------------------------------------------------------------

// Whether every output has a row of its own for each of the symbol's indices.
bool has_rows_of(const ConcreteCall& whole, int symbol) {
  const auto form = static_cast<size_t>(whole.form);
  return std::all_of(whole.decl->outputs.begin(), whole.decl->outputs.end(), [&](const ArgDecl& output) {
    const std::span<const Dim> dims = output.shapes[form].dims;
    return std::any_of(dims.begin(), dims.end(), [&](const Dim& dim) { return dim.symbol == symbol; });
  });
}

// Which queries of a sequence see the same keys without the others: the last ones, unless the first query stands at
// the first key.
bool keeps_first_queries(const ConcreteCall& whole) {
  const int alignment = param_index(*whole.decl, "causal_alignment");
  return alignment >= 0 && whole.i64(alignment) != 0;
}
// Of so many queries half, as in chunked prefill, or one, as in a step of decoding.
Indices kept_queries(int64_t count, bool one, bool first) {
  const int64_t kept = one ? std::min<int64_t>(count, 1) : count - count / 2;
  return first ? range(0, kept) : range(count - kept, count);
}
std::string name_of_queries(bool one, bool first) {
  if (!one) return fmt::format("the {} half of the queries of each sequence alone", first ? "first" : "last");
  return fmt::format("the {} query of each sequence as a decoding step", first ? "first" : "last");
}

// Attention: a query's bits do not depend on the other queries either, in chunks of a prefill and in decoding.
std::vector<Part> dense_query_parts(const ConcreteCall& whole, const std::vector<std::vector<std::byte>>& outputs) {
  const int queries = symbol_index(*whole.decl, "Sq");
  if (queries < 0 || !has_rows_of(whole, queries)) return {};
  const int64_t length = whole.symbols[static_cast<size_t>(queries)];
  if (length < 2) return {};
  const bool first = keeps_first_queries(whole);
  std::vector<Choice> wanted;
  for (const bool one : {false, true}) {
    if (one && length <= 2) continue;  // half of them is one
    wanted.push_back({name_of_queries(one, first), kept_queries(length, one, first)});
  }
  return row_parts(whole, outputs, queries, wanted);
}

// The same of packed sequences, whose keys have lengths of their own, and over a paged cache. There a step of decoding
// is a call without lengths of queries.
std::vector<Part> packed_query_parts(const ConcreteCall& whole, const std::vector<std::vector<std::byte>>& outputs) {
  const Argument* given = find_domain(whole, Domain::cu_seqlens);
  if (given == nullptr) return {};
  const bool paged = find_domain(whole, Domain::block_table) != nullptr;
  const auto is_length = [](const ArgDecl& input) { return input.domain.kind == Domain::cu_seqlens; };
  const std::span<const ArgDecl> inputs = whole.decl->inputs;
  if (!paged && std::count_if(inputs.begin(), inputs.end(), is_length) < 2) return {};
  const auto lengths = static_cast<size_t>(given - whole.inputs.data());
  const int total = symbol_index(*whole.decl, inputs[lengths].domain.high.text);
  if (total < 0 || !has_rows_of(whole, total)) return {};
  const bool first = keeps_first_queries(whole);
  std::vector<Part> parts;
  for (const bool one : {true, false}) {
    Indices sequences, tokens, cu_seqlens = {0};
    for (int64_t b = 0; b < whole.symbols[0]; ++b) {
      const int64_t begin = get_int(*given, b), end = get_int(*given, b + 1);
      if (paged && one && begin == end) continue;
      for (const int64_t query : kept_queries(end - begin, one, first)) tokens.push_back(begin + query);
      sequences.push_back(b);
      cu_seqlens.push_back(static_cast<int64_t>(tokens.size()));
    }
    if (tokens.empty()) continue;
    Selection selection;
    if (paged) selection.symbols[0] = sequences;
    selection.symbols[static_cast<size_t>(total)] = tokens;
    if (is_computed_from(whole, selection)) return {};
    Part part = make_part(whole, outputs, selection, name_of_queries(one, first));
    Argument& argument = part.call.inputs[lengths];
    if (paged && one) {
      argument = Argument{};
      part.call.present &= ~(uint64_t{1} << lengths);
    } else {
      for (size_t b = 0; b < cu_seqlens.size(); ++b) set_int(argument, static_cast<int64_t>(b), cu_seqlens[b]);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// ---- broadcasts ---------------------------------------------------------------------------------------------------

std::vector<Part> broadcast_parts(const ConcreteCall& whole, const std::vector<std::vector<std::byte>>& outputs) {
  const std::vector<int64_t>& shape = whole.outputs[0].shape;
  if (shape.empty() || shape[0] < 2) return {};
  std::vector<Part> parts;
  for (const Choice& choice : choices(shape[0], "rows")) {
    Part part;
    part.name = choice.name;
    part.call = whole;
    const auto kept = static_cast<int64_t>(choice.rows.size());
    for (Argument& input : part.call.inputs) {
      if (!input.present || input.shape.size() < shape.size() || input.shape[0] == 1) continue;
      input.bytes = gather(input.bytes, input.shape, 0, choice.rows, size_of(input.dtype));
      input.shape[0] = kept;
    }
    part.expected.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Argument& output = whole.outputs[i];
      if (!output.present || output.shape.size() < shape.size() || output.shape[0] == 1) continue;
      part.call.outputs[i].shape[0] = kept;
      part.expected[i].compared = true;
      part.expected[i].bytes = gather(outputs[i], output.shape, 0, choice.rows, size_of(output.dtype));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

std::vector<Part> parts_of(const ConcreteCall& whole, const std::vector<std::vector<std::byte>>& outputs) {
  const OpDecl& decl = *whole.decl;
  if (decl.symbols.empty()) return broadcast_parts(whole, outputs);
  const int64_t rows = whole.symbols[0];
  std::vector<Part> parts;
  if (rows >= 2) {
    parts = find_domain(whole, Domain::cu_seqlens) != nullptr ? packed_parts(whole, outputs, 0)
                                                              : row_parts(whole, outputs, 0, choices(rows, "rows"));
  }
  for (auto* const queries : {dense_query_parts, packed_query_parts}) {
    for (Part& part : queries(whole, outputs)) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace rlk::core::conformance
