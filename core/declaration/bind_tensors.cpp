// Dtypes and shapes: what the tensors of a call bind the dtype variables and symbols of the declaration to.
#include <fmt/core.h>

#include <algorithm>

#include "core/declaration/bind.hpp"

namespace rlk::core {

std::string text_of_shape(const int64_t* shape, int32_t ndim) {
  std::string text = "[";
  for (int32_t i = 0; i < ndim; ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Dtype resolve(const DtypeExpr& dtype, const BoundCall& call) {
  switch (dtype.kind) {
    case DtypeExpr::Kind::fixed:
      return dtype.dtype;
    case DtypeExpr::Kind::variable:
      return call.dtypes[static_cast<size_t>(dtype.variable)];
    case DtypeExpr::Kind::accumulate:
      return call.dtypes[static_cast<size_t>(dtype.variable)] == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  }
  return dtype.dtype;
}

template <class Visit>
rlk_status Binder::for_each_given(Visit&& visit) {
  for (size_t i = 0; i < decl_.inputs.size(); ++i) {
    if (const rlk_tensor* t = tensor(false, i)) {
      if (const rlk_status status = visit(decl_.inputs[i], *t, false); status != RLK_OK) return status;
    }
  }
  for (size_t i = 0; i < decl_.outputs.size() && !infer_; ++i) {
    if (const rlk_tensor* t = tensor(true, i)) {
      if (const rlk_status status = visit(decl_.outputs[i], *t, true); status != RLK_OK) return status;
    }
  }
  return RLK_OK;
}

// ---- dtypes

std::string Binder::expected_dtypes(const ArgDecl& arg) const {
  const auto text = [&](const DtypeExpr& dtype) -> std::string {
    if (dtype.kind == DtypeExpr::Kind::fixed) return name_of(dtype.dtype);
    const std::string variable = decl_.dtypes[static_cast<size_t>(dtype.variable)].name;
    return dtype.kind == DtypeExpr::Kind::variable ? variable : "acc(" + variable + ")";
  };
  if (arg.dtype.kind != DtypeExpr::Kind::variable) return text(arg.dtype);
  const DtypeVariable& variable = decl_.dtypes[static_cast<size_t>(arg.dtype.variable)];
  std::string names;
  for (size_t i = 0; i < variable.choices.size(); ++i) {
    names += (i == 0 ? "" : i + 1 == variable.choices.size() ? " or " : ", ") + text(variable.choices[i]);
  }
  return names;
}

rlk_status Binder::bind_dtypes() {
  rlk_status status = for_each_given(
      [&](const ArgDecl& arg, const rlk_tensor& t, bool output) { return check_well_formed(arg, t, output); });
  if (status != RLK_OK) return status;
  // Variables first, wherever they are named, so that acc(T) may stand before the argument that fixes T.
  status = for_each_given(
      [&](const ArgDecl& arg, const rlk_tensor& t, bool output) { return bind_variable(arg, t, output); });
  if (status != RLK_OK) return status;
  status = check_choices();
  if (status != RLK_OK) return status;
  return for_each_given(
      [&](const ArgDecl& arg, const rlk_tensor& t, bool output) { return check_dtype(arg, t, output); });
}

// A descriptor that can be read at all: of this version, with a rank, sizes and strides whose bytes can be counted.
rlk_status Binder::check_well_formed(const ArgDecl& arg, const rlk_tensor& t, bool output) const {
  const auto bad = [&](const std::string& text) { return refuse(name_of_argument(arg, output) + " " + text); };
  if (t.struct_size < sizeof(rlk_tensor)) {
    return bad(fmt::format("has struct_size {}; expected at least {} (sizeof(rlk_tensor))", t.struct_size,
                           sizeof(rlk_tensor)));
  }
  if (t.ndim < 0 || t.ndim > RLK_MAX_NDIM) {
    return bad(fmt::format("has {} dimensions; expected 0 to {}", t.ndim, RLK_MAX_NDIM));
  }
  if (t.ndim > 0 && (t.shape == nullptr || t.strides == nullptr)) {
    return bad(std::string("has ") + (t.shape == nullptr ? "shape" : "strides") +
               " NULL; expected an array of ndim values. Contiguous tensors need their strides too");
  }
  if (t.alignment == 0 || (t.alignment & (t.alignment - 1)) != 0) {
    return bad(
        fmt::format("has alignment {}; expected a power of two in bytes, at least the element size", t.alignment));
  }
  // Any sum of index * stride * element size of at most 8 bytes must fit in 64 bits, with room for the address.
  constexpr int64_t kMaxElements = int64_t{1} << 58;
  if (t.dtype.bits % 8 != 0) {
    for (int32_t i = 0; i < t.ndim; ++i) {
      const bool is_last = i + 1 == t.ndim;
      if (t.shape[i] <= 1 || (is_last ? t.strides[i] == 1 : t.strides[i] % 8 * (t.dtype.bits % 8) % 8 == 0)) continue;
      return bad(
          fmt::format("has {}-bit elements and strides {}; expected stride 1 in the last dimension, "
                      "and whole bytes in every other",
                      t.dtype.bits, text_of_shape(t.strides, t.ndim)));
    }
  }
  for (int32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] < 0) return bad("has shape " + text_of_shape(t.shape, t.ndim) + "; expected no negative size");
  }
  // Tensors of nothing too: their sizes are those of workspaces and other tensors. Their strides may be anything.
  const bool is_empty = std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim;
  int64_t count = 1, extent = 0;
  for (int32_t i = 0; i < t.ndim; ++i) {
    int64_t reach = 0;
    bool overflow = __builtin_mul_overflow(count, std::max<int64_t>(t.shape[i], 1), &count);
    if (!is_empty) {
      overflow = overflow || t.strides[i] == INT64_MIN ||
                 __builtin_mul_overflow(t.shape[i] - 1, t.strides[i] < 0 ? -t.strides[i] : t.strides[i], &reach) ||
                 __builtin_add_overflow(extent, reach, &extent);
    }
    if (overflow || count > kMaxElements || extent > kMaxElements) {
      return bad(fmt::format("has shape {} and strides {}, which no memory holds; expected at most 2^58 elements{}",
                             text_of_shape(t.shape, t.ndim), text_of_shape(t.strides, t.ndim),
                             is_empty ? ", of an empty tensor in its other dimensions" : ""));
    }
  }
  return RLK_OK;
}

rlk_status Binder::bind_variable(const ArgDecl& arg, const rlk_tensor& t, bool output) {
  if (arg.dtype.kind != DtypeExpr::Kind::variable) return RLK_OK;
  const auto variable = static_cast<size_t>(arg.dtype.variable);
  // What the variable can never be is this argument's fault, before it is compared with the variable's other users.
  Dtype seen;
  bool possible = false;
  if (dtype_from(t.dtype, seen)) {
    for (const DtypeExpr& choice : decl_.dtypes[variable].choices) {
      possible = possible || choice.kind != DtypeExpr::Kind::fixed || choice.dtype == seen;
    }
  }
  if (!possible) {
    return refuse(fmt::format("{} has dtype {}; expected {}", name_of_argument(arg, output), text_of_dtype(t.dtype),
                              expected_dtypes(arg)));
  }
  if ((bound_variables_ >> variable & 1) == 0) {
    bound_variables_ |= 1u << variable;
    call_.dtypes[variable] = seen;
    variable_from_[variable] = &arg;
  }
  return RLK_OK;  // whether the others agree is looked at when the first is known to be right
}

// In the order of declaration: a choice may name earlier variables. A variable that nothing fixes takes its first.
rlk_status Binder::check_choices() {
  for (size_t i = 0; i < decl_.dtypes.size(); ++i) {
    const DtypeVariable& variable = decl_.dtypes[i];
    if ((bound_variables_ >> i & 1) == 0) {
      call_.dtypes[i] = resolve(variable.choices[0], call_);
      continue;
    }
    bool found = false;
    std::string expected;
    for (const DtypeExpr& choice : variable.choices) found = found || resolve(choice, call_) == call_.dtypes[i];
    if (found) continue;
    for (const DtypeExpr& choice : variable.choices) {
      const std::string name = name_of(resolve(choice, call_));
      if (expected.find(name) == std::string::npos) expected += (expected.empty() ? "" : " or ") + name;
    }
    bool output = false;
    for (const ArgDecl& arg : decl_.outputs) output = output || &arg == variable_from_[i];
    return refuse(fmt::format("{} has dtype {}; expected {} ({})", name_of_argument(*variable_from_[i], output),
                              name_of(call_.dtypes[i]), expected, variable.name));
  }
  return RLK_OK;
}

rlk_status Binder::check_dtype(const ArgDecl& arg, const rlk_tensor& t, bool output) const {
  const Dtype expected = resolve(arg.dtype, call_);
  Dtype seen;
  if (dtype_from(t.dtype, seen) && seen == expected) return RLK_OK;
  std::string text = fmt::format("{} has dtype {}; expected {}", name_of_argument(arg, output), text_of_dtype(t.dtype),
                                 name_of(expected));
  if (arg.dtype.kind == DtypeExpr::Kind::variable) {
    const auto variable = static_cast<size_t>(arg.dtype.variable);
    text += fmt::format(", the dtype {} of '{}'", decl_.dtypes[variable].name, variable_from_[variable]->name);
  } else if (arg.dtype.kind == DtypeExpr::Kind::accumulate) {
    const auto variable = static_cast<size_t>(arg.dtype.variable);
    text += fmt::format(", the accumulation dtype of {} = {}", decl_.dtypes[variable].name,
                        name_of(call_.dtypes[variable]));
  }
  return refuse(text);
}

// ---- shapes

rlk_status Binder::bind_shapes() {
  for (size_t i = 0; i < decl_.symbols.size(); ++i) call_.symbols[i] = -1;
  rlk_status status = for_each_given([&](const ArgDecl& arg, const rlk_tensor& t, bool output) {
    const ShapeDecl& shape = arg.shapes[static_cast<size_t>(call_.form)];
    return shape.kind == ShapeDecl::Kind::dims ? bind_dims(arg, shape, t, output) : RLK_OK;
  });
  if (status != RLK_OK) return status;
  status = check_symbols();
  if (status != RLK_OK) return status;
  if (!has_computed_dims_) return check_broadcast();
  status = for_each_given([&](const ArgDecl& arg, const rlk_tensor& t, bool output) {
    const ShapeDecl& shape = arg.shapes[static_cast<size_t>(call_.form)];
    return shape.kind == ShapeDecl::Kind::dims ? check_computed_dims(arg, shape, t, output) : RLK_OK;
  });
  return status == RLK_OK ? check_broadcast() : status;
}

rlk_status Binder::check_computed_dims(const ArgDecl& arg, const ShapeDecl& shape, const rlk_tensor& t,
                                       bool output) const {
  for (size_t i = 0; i < shape.dims.size(); ++i) {
    const Dim& dim = shape.dims[i];
    if (!dim.is_computed()) continue;
    const int64_t expected = dim.evaluate(call_.values());
    if (expected >= 0 && t.shape[i] == expected) continue;
    std::string text = fmt::format("{} has shape {}; expected {} with {}", name_of_argument(arg, output),
                                   text_of_shape(t.shape, t.ndim), shape.text, dim.size.text);
    text += expected < 0 ? ", which is no size, for " : fmt::format(" = {}, from ", expected);
    return refuse(text + seen_in(dim.size.text));
  }
  return RLK_OK;
}

// False where the symbol has another value from an earlier argument.
bool Binder::bind_symbol(int symbol, int64_t value, const ArgDecl& from) {
  const auto i = static_cast<size_t>(symbol);
  if ((bound_symbols_ >> i & 1) != 0) return call_.symbols[i] == value;
  bound_symbols_ |= 1u << i;
  call_.symbols[i] = value;
  symbol_from_[i] = &from;
  return true;
}

rlk_status Binder::bind_dims(const ArgDecl& arg, const ShapeDecl& shape, const rlk_tensor& t, bool output) {
  const auto seen = [&] {
    return fmt::format("{} has shape {}", name_of_argument(arg, output), text_of_shape(t.shape, t.ndim));
  };
  if (t.ndim != static_cast<int32_t>(shape.dims.size())) {
    std::string advice;
    if (t.ndim > static_cast<int32_t>(shape.dims.size()) && !shape.dims.empty()) {
      // Batches of sequences are passed as rows of one kind.
      advice = "; make one of its leading dimensions: reshape(-1";
      for (size_t i = 1; i < shape.dims.size(); ++i)
        advice += fmt::format(", {}", t.shape[static_cast<size_t>(t.ndim) - shape.dims.size() + i]);
      advice += ")";
    }
    return refuse(fmt::format("{} ({} dimensions); expected {} ({} dimensions){}", seen(), t.ndim, shape.text,
                              shape.dims.size(), advice));
  }
  for (size_t i = 0; i < shape.dims.size(); ++i) {
    const Dim& dim = shape.dims[i];
    if (dim.is_computed()) {  // checked when all symbols are known
      has_computed_dims_ = true;
      if (dim.multiple_of < 0) continue;
      if (t.shape[i] % dim.factor != 0) {
        return refuse(
            fmt::format("{}; expected {} with a multiple of {} in dimension {}", seen(), shape.text, dim.factor, i));
      }
      bind_symbol(dim.multiple_of, t.shape[i] / dim.factor, arg);
      continue;
    }
    if (dim.symbol < 0) {
      if (t.shape[i] == dim.offset) continue;
      return refuse(fmt::format("{}; expected {}", seen(), shape.text));
    }
    const auto symbol = static_cast<size_t>(dim.symbol);
    const int64_t value = t.shape[i] - dim.offset;
    if (!bind_symbol(dim.symbol, value, arg)) {
      return refuse(fmt::format("{}; expected {} with {} = {} as in '{}'", seen(), shape.text,
                                decl_.symbols[symbol].name, call_.symbols[symbol], symbol_from_[symbol]->name));
    }
  }
  return RLK_OK;
}

rlk_status Binder::check_symbols() const {
  for (size_t i = 0; i < decl_.symbols.size(); ++i) {
    const SymbolDecl& symbol = decl_.symbols[i];
    if ((bound_symbols_ >> i & 1) == 0 || call_.symbols[i] >= symbol.min) continue;
    bool output = false;
    for (const ArgDecl& arg : decl_.outputs) output = output || &arg == symbol_from_[i];
    return refuse(fmt::format("{} gives {} = {}; expected at least {} ({})", name_of_argument(*symbol_from_[i], output),
                              symbol.name, call_.symbols[i], symbol.min, symbol.doc));
  }
  return RLK_OK;
}

bool broadcast_shape(const OpDecl& decl, int form, Tensors inputs, int64_t* shape, int32_t* ndim) {
  *ndim = 0;
  bool fits = true;
  const auto each = [&](auto&& visit) {
    for (size_t i = 0; i < decl.inputs.size() && i < inputs.size(); ++i) {
      const bool any = decl.inputs[i].shapes[static_cast<size_t>(form)].kind == ShapeDecl::Kind::any;
      if (any && inputs[i] != nullptr) visit(*inputs[i]);
    }
  };
  each([&](const rlk_tensor& t) { *ndim = std::max(*ndim, t.ndim); });
  for (int32_t i = 0; i < *ndim; ++i) shape[i] = 1;
  each([&](const rlk_tensor& t) {
    for (int32_t i = 0; i < t.ndim; ++i) {
      int64_t& size = shape[*ndim - t.ndim + i];
      if (size == 1) size = t.shape[i];
      fits = fits && (t.shape[i] == 1 || t.shape[i] == size);
    }
  });
  return fits;
}

static bool has_shape(const rlk_tensor& t, const int64_t* shape, int32_t ndim) {
  return t.ndim == ndim && std::equal(shape, shape + ndim, t.shape);
}

rlk_status Binder::check_broadcast() {
  const auto form = static_cast<size_t>(call_.form);
  int64_t shape[RLK_MAX_NDIM];
  int32_t ndim = 0;
  if (!broadcast_shape(decl_, call_.form, inputs_, shape, &ndim)) {
    std::string seen;
    for (size_t i = 0; i < decl_.inputs.size(); ++i) {
      if (decl_.inputs[i].shapes[form].kind != ShapeDecl::Kind::any || tensor(false, i) == nullptr) continue;
      seen += (seen.empty() ? "" : " and ") + name_of_argument(decl_.inputs[i], false) + " " +
              text_of_shape(tensor(false, i)->shape, tensor(false, i)->ndim);
    }
    return refuse(seen + " do not broadcast; expected sizes that are equal or 1, aligned at the last dimension");
  }
  for (size_t i = 0; i < decl_.outputs.size() && !infer_; ++i) {
    const ShapeDecl& declared = decl_.outputs[i].shapes[form];
    const rlk_tensor* t = tensor(true, i);
    if (declared.kind != ShapeDecl::Kind::broadcast || t == nullptr || has_shape(*t, shape, ndim)) continue;
    return refuse(fmt::format("{} has shape {}; expected {}, that is {}", name_of_argument(decl_.outputs[i], true),
                              text_of_shape(t->shape, t->ndim), text_of_shape(shape, ndim), declared.text));
  }
  return check_same_shapes();
}

// Every argument of shape *A has that of the first.
rlk_status Binder::check_same_shapes() {
  return for_each_given([&](const ArgDecl& arg, const rlk_tensor& t, bool output) {
    const ShapeDecl& declared = arg.shapes[static_cast<size_t>(call_.form)];
    if (declared.kind != ShapeDecl::Kind::same) return RLK_OK;
    const auto first = static_cast<size_t>(declared.of);
    const rlk_tensor& expected = *tensor(false, first);
    if (has_shape(t, expected.shape, expected.ndim)) return RLK_OK;
    return refuse(fmt::format("{} has shape {}; expected {}, that of '{}'", name_of_argument(arg, output),
                              text_of_shape(t.shape, t.ndim), text_of_shape(expected.shape, expected.ndim),
                              decl_.inputs[first].name));
  });
}

}  // namespace rlk::core
