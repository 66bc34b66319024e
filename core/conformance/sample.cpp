// Rows as in classes.cpp, which proves that they are calls of their own; here the values of the whole call are unknown.
#include "core/conformance/sample.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>

#include "core/conformance/elements.hpp"
#include "core/conformance/ties.hpp"

namespace rlk::core::conformance {
namespace {

using Indices = std::vector<int64_t>;
constexpr int64_t kQueries = 4;

Indices range(int64_t begin, int64_t end) {
  Indices list(static_cast<size_t>(std::max<int64_t>(end - begin, 0)));
  std::iota(list.begin(), list.end(), begin);
  return list;
}

uint64_t mix(uint64_t z) {  // the finalizer of splitmix64
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The first, the last and two others.
Indices some_rows(int64_t rows, uint64_t seed) {
  std::set<int64_t> chosen = {0, rows - 1};
  for (uint64_t i = 0; i < 2; ++i) chosen.insert(static_cast<int64_t>(mix(seed + i) % static_cast<uint64_t>(rows)));
  return {chosen.begin(), chosen.end()};
}

// Which indices of which symbols the part keeps. Symbols without an entry are whole.
struct Selection {
  std::array<std::optional<Indices>, kMaxSymbols> symbols;
  bool any() const {
    return std::any_of(symbols.begin(), symbols.end(), [](const auto& s) { return s.has_value(); });
  }
};

// Attention: one sequence, one key head with its query heads, and the queries whose place among the keys stays when
// they come alone: the last ones, with top-left alignment the first ones.
void select_attention(const ConcreteCall& whole, uint64_t seed, Selection& selection) {
  const OpDecl& decl = *whole.decl;
  const auto symbol = [&](const char* name) { return static_cast<size_t>(symbol_index(decl, name)); };
  const auto size = [&](const char* name) { return whole.symbols[symbol(name)]; };
  const auto below = [&](uint64_t which, int64_t n) {
    return static_cast<int64_t>(mix(seed + which) % static_cast<uint64_t>(std::max<int64_t>(n, 1)));
  };
  const int64_t sequence = below(3, size("B")), head = below(4, size("Hkv")), group = size("Hq") / size("Hkv");
  selection.symbols[symbol("B")] = range(sequence, sequence + 1);
  selection.symbols[symbol("Hkv")] = range(head, head + 1);
  selection.symbols[symbol("Hq")] = range(head * group, (head + 1) * group);
  const bool first = whole.i64(param_index(decl, "causal_alignment")) != 0;
  const int64_t queries = size("Sq"), kept = std::min(kQueries, queries);
  selection.symbols[symbol("Sq")] = first ? range(0, kept) : range(queries - kept, queries);
}

// Whether every dimension that a selected symbol has a part in is that symbol itself.
bool can_cut(const ConcreteCall& whole, const Selection& selection) {
  const auto form = static_cast<size_t>(whole.form);
  const auto fits = [&](const ArgDecl& arg) {
    const ShapeDecl& shape = arg.shapes[form];
    if (shape.kind != ShapeDecl::Kind::dims) return true;
    return std::all_of(shape.dims.begin(), shape.dims.end(), [&](const Dim& dim) {
      if (dim.symbol >= 0 && dim.offset != 0 && selection.symbols[static_cast<size_t>(dim.symbol)]) return false;
      for (size_t s = 0; s < selection.symbols.size(); ++s) {
        if ((dim.uses >> s & 1) != 0 && selection.symbols[s]) return false;
      }
      return true;
    });
  };
  return std::all_of(whole.decl->inputs.begin(), whole.decl->inputs.end(), fits) &&
         std::all_of(whole.decl->outputs.begin(), whole.decl->outputs.end(), fits);
}

Selection select(const ConcreteCall& whole, uint64_t seed) {
  const OpDecl& decl = *whole.decl;
  Selection selection;
  const bool rows_are_calls = !combines_rows(decl, whole.values()) && !decl.symbols.empty() && whole.symbols[0] > 1 &&
                              find_domain(whole, Domain::cu_seqlens) == nullptr &&
                              find_domain(whole, Domain::row_index) == nullptr;
  if (std::string_view(decl.name) == "attention") {
    const bool dense = find_domain(whole, Domain::cu_seqlens) == nullptr;
    if (dense && whole.symbols[0] > 0) select_attention(whole, seed, selection);
    return selection;
  }
  if (!rows_are_calls) return selection;
  selection.symbols[0] = some_rows(whole.symbols[0], seed);
  for (size_t s = 1; s < decl.symbols.size(); ++s) {
    if (are_tied(whole, 0, s)) selection.symbols[s] = selection.symbols[0];
  }
  return can_cut(whole, selection) ? selection : Selection();
}

// True when a selected symbol cut the argument.
bool cut(const ShapeDecl& shape, const Selection& selection, Argument& argument, Kept& kept) {
  bool any = false;
  for (size_t axis = 0; axis < argument.shape.size(); ++axis) {
    kept.emplace_back();
    if (shape.kind != ShapeDecl::Kind::dims || axis >= shape.dims.size()) continue;
    const Dim& dim = shape.dims[axis];
    if (dim.symbol < 0 || dim.offset != 0 || !selection.symbols[static_cast<size_t>(dim.symbol)]) continue;
    kept.back() = *selection.symbols[static_cast<size_t>(dim.symbol)];
    argument.shape[axis] = static_cast<int64_t>(kept.back()->size());
    any = true;
  }
  argument.layout = Layout::contiguous;
  return any;
}

uint64_t tensor_bytes(const ConcreteCall& call) {
  uint64_t bytes = 0;
  for (const std::vector<Argument>* arguments : {&call.inputs, &call.outputs}) {
    for (const Argument& argument : *arguments) {
      if (argument.present) bytes += static_cast<uint64_t>(argument.byte_count());
    }
  }
  return bytes;
}

// A product of all sizes bounds what any of the formulas visits. What is another count of the same by its declaration
// ("N") makes it no larger: rows of logits that rows of tokens name, or the batch size of the other matrices.
double work_of(const ConcreteCall& call) {
  const OpDecl& decl = *call.decl;
  std::array<int64_t, kMaxSymbols> sizes{};
  for (size_t s = 0; s < decl.symbols.size(); ++s) {
    const char* text = decl.symbols[s].sizes.empty() ? nullptr : decl.symbols[s].sizes[0].text;
    const int counted = text != nullptr ? symbol_index(decl, text) : -1;
    int64_t& size = sizes[counted >= 0 ? static_cast<size_t>(counted) : s];
    size = std::max(size, call.symbols[s]);
  }
  double work = 1;
  for (const int64_t size : sizes) work *= static_cast<double>(std::max<int64_t>(size, 1));
  return work;
}

bool is_within(const ConcreteCall& call, const SampleLimits& limits) {
  return tensor_bytes(call) <= limits.bytes && work_of(call) <= limits.work;
}

Sample part_of(const ConcreteCall& whole, const Selection& selection) {
  Sample sample;
  sample.call = whole;
  for (size_t s = 0; s < selection.symbols.size(); ++s) {
    if (selection.symbols[s]) sample.call.symbols[s] = static_cast<int64_t>(selection.symbols[s]->size());
  }
  const auto form = static_cast<size_t>(whole.form);
  const auto take = [&](const ArgDecl& declared, Argument& argument, std::vector<Kept>& list) {
    list.emplace_back();
    return argument.present && cut(declared.shapes[form], selection, argument, list.back());
  };
  for (size_t i = 0; i < whole.inputs.size(); ++i) take(whole.decl->inputs[i], sample.call.inputs[i], sample.inputs);
  const bool is_part = selection.any();
  for (size_t i = 0; i < whole.outputs.size(); ++i) {
    const bool was_cut = take(whole.decl->outputs[i], sample.call.outputs[i], sample.outputs);
    sample.judged.push_back(whole.outputs[i].present && (was_cut || !is_part));
  }
  return sample;
}

bool judges_everything(const Sample& sample) {
  for (size_t i = 0; i < sample.judged.size(); ++i) {
    if (sample.call.outputs[i].present && !sample.judged[i]) return false;
  }
  return true;
}

}  // namespace

bool lies_within(const Kept& kept, std::span<const int64_t> shape) {
  if (kept.size() != shape.size()) return false;
  for (size_t axis = 0; axis < kept.size(); ++axis) {
    const std::optional<std::vector<int64_t>>& indices = kept[axis];
    if (indices && !indices->empty() && (indices->front() < 0 || indices->back() >= shape[axis])) return false;
  }
  return true;
}

std::optional<Sample> sample_of(const ConcreteCall& whole, uint64_t seed, const SampleLimits& limits,
                                std::string* why_not) {
  Sample sample = part_of(whole, select(whole, seed));
  // A part says nothing of what all rows make together, nor of rows that are not those of the part: the whole call
  // does, where that is no more than a part may be.
  const bool is_legal = keeps_rules(sample.call);
  if ((!is_legal || !judges_everything(sample)) && is_within(whole, limits)) sample = part_of(whole, {});
  const bool judges_something = std::find(sample.judged.begin(), sample.judged.end(), true) != sample.judged.end();
  if (!keeps_rules(sample.call) || !judges_something) {
    *why_not = fmt::format("no part of it can be judged alone, and the whole is {} bytes; the limit is {}",
                           tensor_bytes(whole), limits.bytes);
    return std::nullopt;
  }
  if (const uint64_t bytes = tensor_bytes(sample.call); bytes > limits.bytes) {
    *why_not =
        fmt::format("its smallest part that can be judged alone is {} bytes; the limit is {}", bytes, limits.bytes);
    return std::nullopt;
  }
  if (const double work = work_of(sample.call); work > limits.work) {
    *why_not = fmt::format("the golden reference would visit some {} elements", static_cast<int64_t>(work));
    return std::nullopt;
  }
  return sample;
}

uint32_t size_class(const ConcreteCall& call, uint32_t alignment_bytes, const std::vector<std::string>& features) {
  uint64_t hash = 0;
  const auto add = [&](uint64_t word) { hash = mix(hash ^ word); };
  const auto add_size = [&](int64_t size) {
    const auto value = static_cast<uint64_t>(std::max<int64_t>(size, 0));
    // Up to 128 elements: beyond that no vector or tile asks for more.
    add(static_cast<uint64_t>(std::bit_width(value)) << 8 |
        static_cast<uint64_t>(std::min(std::countr_zero(value), 7)));
  };
  for (size_t s = 0; s < call.decl->symbols.size(); ++s) add_size(call.symbols[s]);
  if (call.decl->symbols.empty()) {
    for (const Argument& output : call.outputs) {
      if (!output.present) continue;
      add_size(output.count());
      add_size(output.shape.empty() ? 1 : output.shape.back());
    }
  }
  add(std::min<uint32_t>(alignment_bytes, 16));
  for (const std::string& feature : features) {
    uint64_t word = 14695981039346656037u;  // FNV-1a: the same in every process
    for (const char c : feature) word = (word ^ static_cast<uint8_t>(c)) * 1099511628211u;
    add(word);
  }
  return static_cast<uint32_t>(hash >> 32);
}

}  // namespace rlk::core::conformance
