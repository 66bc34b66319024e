// Does the smoke test notice an implementation that is wrong at some sizes only? For every size of every declared
// operator there are some: the CPU's, but wrong from a threshold on, in a range, at multiples, at a residue, or at an
// alignment. All of them must be caught, and the table of what was tried is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "conformance/liars.hpp"
#include "conformance/spoiler.hpp"
#include "core/declaration/validate.hpp"

namespace rlk::core {
namespace {

using liars::address;
using liars::elements;

class Liars {
public:
  Liars(const OpDecl& decl, const rlk_implementation& honest) : decl_(decl), honest_(honest) {
    for (size_t i = 0; i < decl.symbols.size(); ++i) {
      if (!decl.symbols[i].production.empty()) add_sizes(i);
    }
    for (const ShapeCase& shape_case : decl.shape_cases) {
      if (!shape_case.production.empty()) add_elements(shape_case);
    }
    add_alignments();
    add_gaps(decl.inputs, false);
    add_gaps(decl.outputs, true);
  }
  const std::deque<liars::Spoiler>& list() const { return list_; }

private:
  using Lies = std::function<bool(const rlk_run& run)>;

  void add(std::string kind, const std::string& name, Lies lies, bool row_64 = false) {
    liars::Spoiler& liar = list_.emplace_back(honest_, std::move(kind), name);
    liar.lies = [told = std::move(lies)](liars::PlanMemory&, const liars::Execution& e) { return told(e.run); };
    liar.first_wrong_row_is_64 = row_64;
  }

  static bool is_aligned(const rlk_run& run, uint64_t bytes) {
    for (uint32_t i = 0; i < run.n_inputs; ++i) {
      if (run.inputs[i] != nullptr && address(*run.inputs[i]) % bytes != 0) return false;
    }
    return true;
  }

  void add_about(const std::string& what, int64_t largest, const std::function<int64_t(const rlk_run&)>& size) {
    const auto when = [&](const std::string& kind, const std::string& name, auto&& condition) {
      add(kind, what + name, [size, condition](const rlk_run& run) { return condition(run, size(run)); });
    };
    for (const int64_t from :
         {int64_t{40}, int64_t{600}, int64_t{2048}, int64_t{12000}, int64_t{32768}, int64_t{100000}, largest}) {
      if (from > largest) continue;
      const std::string text = std::to_string(from);
      when("threshold", " >= " + text, [from](const rlk_run&, int64_t n) { return n >= from; });
      // A range is as long as the ladder's steps: four, and sixteen for each of aligned and misaligned.
      if (4 * from > largest) continue;
      when("range", " in [" + text + ", " + text + " * 4)",
           [from](const rlk_run&, int64_t n) { return n >= from && n < 4 * from; });
      if (16 * from > largest) continue;
      when("range", " in [" + text + ", " + text + " * 16), aligned",
           [from](const rlk_run& run, int64_t n) { return n >= from && n < 16 * from && is_aligned(run, 64); });
      when("range", " in [" + text + ", " + text + " * 16), misaligned",
           [from](const rlk_run& run, int64_t n) { return n >= from && n < 16 * from && !is_aligned(run, 16); });
    }
    for (const int64_t from : {int64_t{600}, int64_t{12000}, largest}) {
      if (from <= largest) add_digits(what, from, size);
    }
    for (const int64_t of : {int64_t{8}, int64_t{16}, int64_t{32}, int64_t{64}, int64_t{128}}) {
      if (of > largest) continue;
      const std::string text = std::to_string(of);
      when("multiple", " % " + text + " == 0", [of](const rlk_run&, int64_t n) { return n > 0 && n % of == 0; });
      when("multiple", " % " + text + " == 0, aligned",
           [of](const rlk_run& run, int64_t n) { return n > 0 && n % of == 0 && is_aligned(run, 64); });
      if (largest < 128) continue;
      when("multiple", " % " + text + " == 1", [of](const rlk_run&, int64_t n) { return n > of && n % of == 1; });
      when("multiple", " % " + text + " == -1",
           [of](const rlk_run&, int64_t n) { return n >= of - 1 && n % of == of - 1; });
    }
    for (int64_t r = 0; r < 16 && largest >= 128; ++r) {
      when("residue", " % 16 == " + std::to_string(r),
           [r](const rlk_run&, int64_t n) { return n >= 16 && n % 16 == r; });
    }
  }

  void add_sizes(size_t symbol) {
    const SymbolDecl& decl = decl_.symbols[symbol];
    const int64_t largest = *std::max_element(decl.production.begin(), decl.production.end());
    add_about(decl.name, largest, [symbol](const rlk_run& run) { return run.symbols[symbol]; });
    if (symbol > 0 || largest <= 64) return;
    add(
        "rows", "row 64 of many", [](const rlk_run& run) { return run.symbols[0] > 64; }, true);
  }

  void add_elements(const ShapeCase& shape_case) {
    const int64_t largest = *std::max_element(shape_case.production.begin(), shape_case.production.end());
    add_about("elements", largest, [](const rlk_run& run) { return elements(*run.outputs[0]); });
    add_about("columns", largest, [](const rlk_run& run) {
      const rlk_tensor& output = *run.outputs[0];
      return output.ndim > 0 ? output.shape[output.ndim - 1] : 1;
    });
  }

  // Of an element, with f32 for the first dtype variable.
  uint64_t bytes_of(const ArgDecl& arg) const {
    const DtypeExpr& dtype = arg.dtype;
    const bool is_other = dtype.kind == DtypeExpr::Kind::variable && dtype.variable > 0;
    const DtypeExpr& first = is_other ? decl_.dtypes[static_cast<size_t>(dtype.variable)].choices[0] : dtype;
    return first.kind == DtypeExpr::Kind::fixed ? static_cast<uint64_t>(size_of(first.dtype)) : 4;
  }

  void add_alignments() {
    for (const uint64_t bytes : {8, 16, 32, 64, 128}) {
      const auto off = [bytes](const rlk_tensor* tensor) {
        return tensor != nullptr && elements(*tensor) > 0 && address(*tensor) % bytes != 0;
      };
      const std::string text = " is not aligned to " + std::to_string(bytes);
      add("alignment", "an input" + text,
          [off](const rlk_run& run) { return std::any_of(run.inputs, run.inputs + run.n_inputs, off); });
      add("alignment", "the output" + text, [off](const rlk_run& run) { return off(run.outputs[0]); });
      if (bytes <= bytes_of(decl_.outputs[0])) continue;
      add("alignment", "only the output" + text,
          [off](const rlk_run& run) { return off(run.outputs[0]) && !off(run.inputs[0]); });
      if (bytes <= bytes_of(decl_.inputs[0])) continue;
      add("alignment", "only the input" + text,
          [off](const rlk_run& run) { return !off(run.outputs[0]) && off(run.inputs[0]); });
    }
    add("alignment", "all aligned to 256", [](const rlk_run& run) { return is_aligned(run, 256); });
    add("alignment", "off by 16, not by 8", [](const rlk_run& run) { return address(*run.inputs[0]) % 32 == 16; });
  }

  // As one is that takes a dimension's stride for the product of those behind it.
  void add_gaps(std::span<const ArgDecl> arguments, bool of_outputs) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      size_t ndim = 0;
      for (const ShapeDecl& shape : arguments[i].shapes) ndim = std::max(ndim, shape.dims.size());
      for (size_t axis = 0; axis + 1 < ndim; ++axis) {
        const std::string name =
            arguments[i].name + std::string(" has a gap behind dimension ") + std::to_string(axis + 1);
        add("gap", name, [=](const rlk_run& run) {
          const rlk_tensor* const tensor = of_outputs ? run.outputs[i] : run.inputs[i];
          if (tensor == nullptr || tensor->ndim != static_cast<int32_t>(ndim)) return false;
          return tensor->shape[axis] > 1 && tensor->strides[ndim - 1] == 1 &&
                 tensor->strides[axis] > tensor->shape[axis + 1] * tensor->strides[axis + 1];
        });
      }
    }
  }

  // The last digit of every second run of a large call, as one has that adds in whatever order threads come.
  void add_digits(const std::string& what, int64_t from, const std::function<int64_t(const rlk_run&)>& size) {
    const std::string name = "is another digit every second time, " + what + " >= " + std::to_string(from);
    liars::Spoiler& liar = list_.emplace_back(honest_, "run to run", name);
    liar.lies = [=](liars::PlanMemory&, const liars::Execution& e) { return e.call % 2 == 0 && size(e.run) >= from; };
    liar.spoils = [](const rlk_tensor& output) {
      std::vector<int64_t> index;
      for (int32_t i = 0; i < output.ndim; ++i) index.push_back(output.shape[i] - 1);
      *liars::element_at(output, index) ^= std::byte{1};
    };
  }

  const OpDecl& decl_;
  const rlk_implementation& honest_;
  std::deque<liars::Spoiler> list_;
};

using SizeLiars = liars::OfOperator;

TEST_P(SizeLiars, AreAllCaughtByTheSmokeTest) {
  const OpDecl& decl = *GetParam();
  const rlk_implementation& honest = liars::honest_implementation(decl);
  const Liars list(decl, honest);
  std::vector<const rlk_implementation*> rows;
  for (const liars::Spoiler& liar : list.list()) rows.push_back(&liar.row());
  const auto lies = [&](size_t i, const conformance::Work&, const rlk_call_desc& call) {
    if (elements(*call.outputs[0]) == 0) return false;
    rlk_run run{};
    run.struct_size = sizeof(run);
    run.inputs = call.inputs;
    run.n_inputs = call.n_inputs;
    run.outputs = call.outputs;
    run.n_outputs = call.n_outputs;
    run.symbols = call.symbols;
    run.n_symbols = call.n_symbols;
    liars::PlanMemory memory;
    return list.list()[i].lies(memory, {nullptr, run, 2, nullptr});
  };
  const liars::Refused refused = liars::caught_where_they_lie(decl, rows, lies, [](const char*) { return false; });
  std::map<std::string, std::pair<int, int>> table;  // tried, caught
  for (const liars::Spoiler& liar : list.list()) {
    auto& [tried, caught] = table[liar.kind];
    const auto found = refused.find(liar.name);
    ++tried;
    caught += found != refused.end() ? 1 : 0;
    EXPECT_NE(found, refused.end()) << decl.name << ": the smoke test misses a plugin that is wrong when " << liar.name;
  }
  std::printf("%-26s", decl.name);
  for (const auto& [kind, row] : table) std::printf(" %s %d/%d", kind.c_str(), row.second, row.first);
  std::printf("\n");
}

INSTANTIATE_TEST_SUITE_P(Operators, SizeLiars, ::testing::ValuesIn(liars::operators_against("SizeLiars")),
                         liars::name_of_operator);

}  // namespace
}  // namespace rlk::core
