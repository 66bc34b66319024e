// Axes that sample_of has cut get other indices; columns of products are calls of their own, as their rows are.
#include "core/conformance/narrower.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "core/conformance/elementwise.hpp"

namespace rlk::core::conformance {
namespace {

using IndexList = std::vector<int64_t>;

constexpr size_t kBoundaryRows = 4;
constexpr SampleLimits kWithoutLimits{std::numeric_limits<uint64_t>::max(), std::numeric_limits<double>::infinity()};

struct Narrower {
  size_t rows;
  size_t columns;  // 0: all of them
};
constexpr Narrower kSteps[kNarrowerSteps] = {{2, 0}, {1, 0}, {4, 64}, {1, 16}};

// The symbol of the output's columns where each of them follows from the column of the same number of one operand.
const char* columns_of(std::string_view op) {
  if (op == "matmul" || op == "gemm") return "N";
  if (op == "linear") return "M";
  return nullptr;
}

// The rows that the part keeps of symbol 0, and every symbol that is cut to them; nothing for another part.
struct RowsKept {
  IndexList rows;
  std::vector<bool> symbols;
};
std::optional<RowsKept> rows_kept(const Sample& part) {
  const OpDecl& decl = *part.call.decl;
  const auto form = static_cast<size_t>(part.call.form);
  RowsKept found;
  found.symbols.resize(kMaxSymbols);
  bool is_of_rows = true;
  const auto visit = [&](std::span<const ArgDecl> declared, const std::vector<Kept>& kept, auto&& use) {
    for (size_t i = 0; i < kept.size(); ++i) {
      for (size_t axis = 0; axis < kept[i].size(); ++axis) {
        if (kept[i][axis]) use(declared[i].shapes[form].dims[axis].symbol, *kept[i][axis]);
      }
    }
  };
  const auto both = [&](auto&& use) {
    visit(decl.inputs, part.inputs, use);
    visit(decl.outputs, part.outputs, use);
  };
  if (decl.symbols.empty()) return std::nullopt;
  both([&](int symbol, const IndexList& list) {
    if (symbol == 0) found.rows = list;
  });
  both([&](int symbol, const IndexList& list) {
    is_of_rows &= list == found.rows;
    found.symbols[static_cast<size_t>(symbol)] = true;
  });
  return is_of_rows && !found.rows.empty() ? std::optional(found) : std::nullopt;
}

// Whether every dimension that depends on the symbol is that symbol itself.
bool can_keep(const ConcreteCall& call, size_t symbol) {
  const auto form = static_cast<size_t>(call.form);
  const auto fits = [&](const ArgDecl& arg) {
    const std::span<const Dim> dims = arg.shapes[form].dims;
    return std::all_of(dims.begin(), dims.end(), [&](const Dim& dim) {
      const bool is_own = dim.symbol == static_cast<int>(symbol) && dim.offset == 0 && !dim.is_computed();
      const bool depends = dim.symbol == static_cast<int>(symbol) || dim.multiple_of == static_cast<int>(symbol) ||
                           (dim.uses >> symbol & 1) != 0;
      return is_own || !depends;
    });
  };
  return std::all_of(call.decl->inputs.begin(), call.decl->inputs.end(), fits) &&
         std::all_of(call.decl->outputs.begin(), call.decl->outputs.end(), fits);
}

// Keeps these indices of the symbol, in every tensor of the part that has it.
void keep(Sample& part, size_t symbol, const IndexList& list) {
  const auto form = static_cast<size_t>(part.call.form);
  part.call.symbols[symbol] = static_cast<int64_t>(list.size());
  const auto cut_all = [&](std::span<const ArgDecl> declared, std::vector<Argument>& arguments,
                           std::vector<Kept>& kept) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::span<const Dim> dims = declared[i].shapes[form].dims;
      for (size_t axis = 0; axis < kept[i].size() && axis < dims.size(); ++axis) {
        if (dims[axis].symbol != static_cast<int>(symbol)) continue;
        kept[i][axis] = list;
        arguments[i].shape[axis] = static_cast<int64_t>(list.size());
      }
    }
  };
  cut_all(part.call.decl->inputs, part.call.inputs, part.inputs);
  cut_all(part.call.decl->outputs, part.call.outputs, part.outputs);
}

void keep_rows(Sample& part, const RowsKept& kept, const IndexList& rows) {
  for (size_t s = 0; s < kept.symbols.size(); ++s) {
    if (kept.symbols[s]) keep(part, s, rows);
  }
}

// Whether the call's tensors have every index. Two symbols that differ may be cut as one.
bool is_inside(const ConcreteCall& whole, const Sample& part) {
  const auto fits = [](const std::vector<Argument>& arguments, const std::vector<Kept>& kept) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      for (size_t axis = 0; axis < kept[i].size(); ++axis) {
        const std::optional<IndexList>& list = kept[i][axis];
        if (list && !list->empty() && list->back() >= arguments[i].shape[axis]) return false;
      }
    }
    return true;
  };
  return fits(whole.inputs, part.inputs) && fits(whole.outputs, part.outputs);
}

uint64_t part_bytes(const ConcreteCall& call) {
  uint64_t bytes = 0;
  for (const std::vector<Argument>* arguments : {&call.inputs, &call.outputs}) {
    for (const Argument& argument : *arguments) {
      if (argument.present) bytes += static_cast<uint64_t>(argument.byte_count());
    }
  }
  return bytes;
}

// What tied symbols repeat is counted twice, which errs on the side of less work.
double work_bound(const ConcreteCall& call) {
  double work = 1;
  for (size_t s = 0; s < call.decl->symbols.size(); ++s) {
    work *= static_cast<double>(std::max<int64_t>(call.symbols[s], 1));
  }
  return work;
}

// Of the longest row of any tensor.
int64_t elements_of_row(const ConcreteCall& whole, const Sample& part, int64_t rows) {
  int64_t elements = 1;
  const auto see = [&](const std::vector<Argument>& arguments, const std::vector<Kept>& kept) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool is_cut =
          std::any_of(kept[i].begin(), kept[i].end(), [](const auto& axis) { return axis.has_value(); });
      if (is_cut) elements = std::max(elements, arguments[i].count() / std::max<int64_t>(rows, 1));
    }
  };
  see(whole.inputs, part.inputs);
  see(whole.outputs, part.outputs);
  return elements;
}

// At most `most` of `size` indices: the last, the first, those about boundaries of a tensor with so many elements for
// each index, and a few evenly spread.
IndexList some_of(int64_t size, int64_t elements, size_t most) {
  IndexList list = {size - 1, 0};
  for (const int64_t boundary : boundaries(size * elements)) list.push_back(boundary / elements);
  for (int64_t i = 1; i < 16; ++i) list.push_back(size / 16 * i);
  IndexList kept;
  for (const int64_t index : list) {
    if (kept.size() < most && std::find(kept.begin(), kept.end(), index) == kept.end()) kept.push_back(index);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

}  // namespace

Sample with_boundary_rows(const ConcreteCall& whole, Sample part, const SampleLimits& limits) {
  const std::optional<RowsKept> kept = rows_kept(part);
  if (!kept) return part;
  const int64_t rows = whole.symbols[0], elements = elements_of_row(whole, part, rows);
  IndexList more = kept->rows;
  for (const int64_t boundary : boundaries(rows * elements)) {
    const int64_t row = boundary / elements;
    if (more.size() >= kept->rows.size() + kBoundaryRows) break;
    if (std::find(more.begin(), more.end(), row) == more.end()) more.push_back(row);
  }
  if (more.size() == kept->rows.size()) return part;
  std::sort(more.begin(), more.end());
  Sample larger = part;
  keep_rows(larger, *kept, more);
  const bool is_small = part_bytes(larger.call) <= limits.bytes && work_bound(larger.call) <= limits.work;
  return is_small && is_inside(whole, larger) ? larger : part;
}

std::optional<Sample> narrower_part(const ConcreteCall& whole, uint64_t seed, int step, const SampleLimits& limits) {
  const auto& [most_rows, most_columns] = kSteps[step];
  const char* const name = columns_of(whole.decl->name);
  if (most_columns > 0 && name == nullptr) return std::nullopt;
  std::string ignored;
  std::optional<Sample> part = sample_of(whole, seed, kWithoutLimits, &ignored);
  if (!part) return std::nullopt;
  const std::optional<RowsKept> kept = rows_kept(*part);
  if (!kept && most_columns == 0) return std::nullopt;
  if (kept && kept->rows.size() > most_rows) {
    // The last ones: an index that has run out is there.
    keep_rows(*part, *kept, {kept->rows.end() - static_cast<std::ptrdiff_t>(most_rows), kept->rows.end()});
  }
  if (most_columns > 0) {
    const auto columns = static_cast<size_t>(symbol_index(*whole.decl, name));
    if (!can_keep(whole, columns)) return std::nullopt;
    keep(*part, columns, some_of(whole.symbols[columns], std::max<int64_t>(whole.symbols[0], 1), most_columns));
  }
  if (part_bytes(part->call) > limits.bytes || work_bound(part->call) > limits.work) return std::nullopt;
  return is_inside(whole, *part) ? part : std::nullopt;
}

}  // namespace rlk::core::conformance
