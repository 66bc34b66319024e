// What a call expects of its inputs, by the sizes and dtypes of those that come first.
#include "loader/cli/fit.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "loader/cli/table.hpp"

namespace rlk::cli {
namespace {

using core::ArgDecl;
using core::Dim;
using core::Dtype;
using core::DtypeExpr;
using core::ShapeDecl;
using Shape = std::vector<int64_t>;

// The dimensions of an input in the call's form; nothing where any shape will do.
std::span<const Dim> dims_of(const OpCall& call, const ArgDecl& input) {
  const ShapeDecl& shape = input.shapes[static_cast<size_t>(form_of(*call.decl, call.params))];
  return shape.kind == ShapeDecl::Kind::dims ? shape.dims : std::span<const Dim>();
}

// Each symbol as the first input that has it says; -1 where none does.
Shape symbols_of(const OpCall& call) {
  Shape symbols(call.decl->symbols.size(), -1);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const std::span<const Dim> dims = dims_of(call, call.decl->inputs[i]);
    if (!call.inputs[i] || call.inputs[i]->shape.size() != dims.size()) continue;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      const Dim& dim = dims[axis];
      const int of = dim.is_computed() ? dim.multiple_of : dim.symbol;
      if (of < 0) continue;
      const int64_t size = call.inputs[i]->shape[axis];
      int64_t& symbol = symbols[static_cast<size_t>(of)];
      if (symbol < 0) symbol = dim.is_computed() ? size / dim.factor : size - dim.offset;
    }
  }
  return symbols;
}

Shape expected_shape(const OpCall& call, std::span<const Dim> dims, const Shape& symbols) {
  core::Values values{symbols.data(), call.params.data(), 0};
  for (size_t i = 0; i < call.inputs.size(); ++i) values.present |= call.inputs[i] ? uint64_t{1} << i : 0;
  Shape shape;
  for (const Dim& dim : dims) shape.push_back(dim.evaluate(values));
  return shape;
}

bool is_known(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
}

// Whether given[axis] is expected[axis], or 1 behind the first axis.
bool repeats_to(const Shape& given, const Shape& expected) {
  if (given.size() != expected.size()) return false;
  for (size_t axis = 0; axis < given.size(); ++axis) {
    if (given[axis] != expected[axis] && (axis == 0 || given[axis] != 1)) return false;
  }
  return true;
}

// Without sizes of 1 behind those that are expected, and with one where there is none.
Shape same_rank(Shape given, size_t rank) {
  if (given.empty() && rank == 1) return {1};
  while (given.size() > rank && given.back() == 1) given.pop_back();
  return given;
}

// The dtype that the variable has: that of the first input with it, but f64 only where all have it. NumPy makes f64 of
// numbers without a dtype.
Dtype variable_dtype(const OpCall& call, int variable) {
  std::optional<Dtype> first;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const DtypeExpr& expr = call.decl->inputs[i].dtype;
    if (!call.inputs[i] || expr.kind != DtypeExpr::Kind::variable || expr.variable != variable) continue;
    if (!first || *first == Dtype::f64) first = call.inputs[i]->dtype;
  }
  return first.value_or(Dtype::f32);
}

Dtype expected_dtype(const OpCall& call, const DtypeExpr& expr) {
  if (expr.kind == DtypeExpr::Kind::fixed) return expr.dtype;
  const Dtype dtype = variable_dtype(call, expr.variable);
  if (expr.kind == DtypeExpr::Kind::variable) return dtype;
  return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

}  // namespace

std::vector<std::string> fit_shapes(OpCall* call, Arrays* inputs) {
  std::vector<std::string> notes;
  const Shape symbols = symbols_of(*call);
  for (size_t i = 0; i < call->inputs.size(); ++i) {
    const std::span<const Dim> dims = dims_of(*call, call->decl->inputs[i]);
    if (!call->inputs[i] || dims.empty()) continue;
    Array& array = *(*inputs)[i];
    const Shape expected = expected_shape(*call, dims, symbols);
    const Shape given = same_rank(array.shape(), dims.size());
    if (array.shape() == expected || !is_known(expected) || !repeats_to(given, expected)) continue;
    const Shape read = array.shape();
    array = repeated(reshaped(std::move(array), given), expected);
    call->inputs[i] = TensorSpec(array.dtype(), array.shape());
    if (given != expected) {
      notes.push_back(
          fmt::format("{} {} was repeated to {}", call->decl->inputs[i].name, shape_text(read), shape_text(expected)));
    }
  }
  return notes;
}

std::string hints(const OpCall& call, const std::vector<std::string>& files) {
  std::string text;
  const Shape symbols = symbols_of(call);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const ArgDecl& input = call.decl->inputs[i];
    if (!call.inputs[i]) continue;
    const Dtype expected = expected_dtype(call, input.dtype);
    if (call.inputs[i]->dtype != expected) {
      text += fmt::format("; --input {} casts",
                          shell_word(fmt::format("{}={}:{}", input.name, files[i], core::name_of(expected))));
    }
    // Numbers of sequences where tokens are expected: which axis is missing is not guessed.
    Shape columns = call.inputs[i]->shape;
    columns.push_back(1);
    const Shape shape = expected_shape(call, dims_of(call, input), symbols);
    if (is_known(shape) && repeats_to(columns, shape)) {
      text +=
          fmt::format("; save {} as {} to have it repeated to {}", input.name, shape_text(columns), shape_text(shape));
    }
  }
  return text;
}

}  // namespace rlk::cli
