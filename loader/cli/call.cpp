// Words to parameters and tensors, all from the declaration: no operator is known by name here.
#include "loader/cli/call.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "core/declaration/numerics.hpp"
#include "loader/cli/array.hpp"
#include "loader/discover/environment.hpp"

namespace rlk::cli {
namespace {

using core::ArgDecl;
using core::Dtype;
using core::DtypeExpr;
using core::OpDecl;
using core::ParamDecl;
using core::ParamType;
using core::ShapeDecl;

template <class Number>
bool parse_number(const std::string& text, Number* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

int64_t parse_size(const std::string& name, const std::string& text) {
  int64_t size = 0;
  if (!parse_number(text, &size) || size < 0)
    throw UsageError(fmt::format("--shape {}={}: expected a whole number from 0 to 2^63 - 1", name, text));
  return size;
}

template <class Decls>
int find_named(const Decls& decls, const std::string& name) {
  for (size_t i = 0; i < decls.size(); ++i)
    if (name == decls[i].name) return static_cast<int>(i);
  return -1;
}

template <class Decls>
std::vector<std::string> names_of(const Decls& decls) {
  std::vector<std::string> names;
  for (const auto& decl : decls) names.emplace_back(decl.name);
  return names;
}

void set_param(const OpDecl& decl, std::vector<std::byte>* params, const Assignment& word) {
  const int index = find_named(decl.params, word.name);
  if (index < 0) {
    throw UsageError(
        fmt::format("{} has no parameter '{}'{}", decl.name, word.name, suggestion(word.name, names_of(decl.params))));
  }
  const ParamDecl& param = decl.params[static_cast<size_t>(index)];
  const auto bad = [&](const std::string& expected) -> UsageError {
    return UsageError(fmt::format("--param {}={}: expected {}", word.name, word.value, expected));
  };
  if (param.type == ParamType::f64) {
    double value = 0;
    if (!parse_number(word.value, &value)) throw bad("a number");
    std::memcpy(params->data() + param.offset, &value, sizeof(value));
    return;
  }
  int64_t value = 0;
  if (param.type == ParamType::i64) {
    if (!parse_number(word.value, &value)) throw bad("an integer");
    std::memcpy(params->data() + param.offset, &value, sizeof(value));
    return;
  }
  std::string known;
  for (size_t i = 0; i < param.values.size(); ++i) {
    known += (i == 0 ? "" : " or ") + std::string(param.values[i]);
    if (word.value != param.values[i]) continue;
    const auto ordinal = static_cast<int64_t>(i);
    std::memcpy(params->data() + param.offset, &ordinal, sizeof(ordinal));
    return;
  }
  throw bad(known);
}

// The dtype of each variable: the first choice unless a word says otherwise. "bf16" is the first variable's.
std::vector<Dtype> choose_dtypes(const OpDecl& decl, const std::vector<std::string>& words) {
  std::map<std::string, std::string> asked;
  for (const std::string& word : words) {
    for (const std::string& piece : loader::split(word, ',')) {
      const size_t equals = piece.find('=');
      if (decl.dtypes.empty()) throw UsageError(std::string(decl.name) + " has no dtype variable; leave the dtype out");
      const std::string variable = equals == std::string::npos ? decl.dtypes[0].name : piece.substr(0, equals);
      if (find_named(decl.dtypes, variable) < 0) {
        throw UsageError(fmt::format("{} has no dtype variable '{}'{}", decl.name, variable,
                                     suggestion(variable, names_of(decl.dtypes))));
      }
      if (!asked.emplace(variable, equals == std::string::npos ? piece : piece.substr(equals + 1)).second)
        throw UsageError(fmt::format("--dtype {}: the dtype of {} was given twice", piece, variable));
    }
  }
  std::vector<Dtype> chosen;
  for (const core::DtypeVariable& variable : decl.dtypes) {
    const auto resolve = [&](const DtypeExpr& expr) {
      if (expr.kind == DtypeExpr::Kind::fixed) return expr.dtype;
      const Dtype other = chosen[static_cast<size_t>(expr.variable)];
      if (expr.kind == DtypeExpr::Kind::variable) return other;
      return other == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    };
    Dtype dtype = resolve(variable.choices[0]);
    if (const auto word = asked.find(variable.name); word != asked.end()) {
      bool offered = false;
      std::string known;
      for (const DtypeExpr& choice : variable.choices) {
        const Dtype candidate = resolve(choice);
        known += std::string(" ") + core::name_of(candidate);
        if (word->second != core::name_of(candidate)) continue;
        dtype = candidate;
        offered = true;
      }
      if (!offered) {
        throw UsageError(fmt::format("{}: dtype {} is not offered for {}; expected one of{}", decl.name, word->second,
                                     variable.name, known));
      }
    }
    chosen.push_back(dtype);
  }
  return chosen;
}

Dtype dtype_of(const ArgDecl& arg, const std::vector<Dtype>& variables) {
  if (arg.dtype.kind == DtypeExpr::Kind::fixed) return arg.dtype.dtype;
  const Dtype dtype = variables[static_cast<size_t>(arg.dtype.variable)];
  if (arg.dtype.kind == DtypeExpr::Kind::variable) return dtype;
  return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

// "N=5,V=7,a=2x3" to pairs; the callers check the names.
std::map<std::string, std::string> shape_words(const std::vector<std::string>& words) {
  std::map<std::string, std::string> out;
  for (const std::string& word : words) {
    for (const std::string& piece : loader::split(word, ',')) {
      const Assignment assignment = split_assignment(piece, "--shape");
      if (!out.emplace(assignment.name, assignment.value).second)
        throw UsageError(fmt::format("--shape {}: {} was given twice", piece, assignment.name));
    }
  }
  return out;
}

std::vector<int64_t> parse_shape(const std::string& name, const std::string& text) {
  std::vector<int64_t> shape;
  if (text.empty()) return shape;  // a number
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find('x', begin), text.size());
    int64_t size = 0;
    if (!parse_number(text.substr(begin, end - begin), &size) || size < 0)
      throw UsageError(
          fmt::format("--shape {}={}: expected sizes that are not negative, with an x between two of them,"
                      " as {}=8x128",
                      name, text, name));
    shape.push_back(size);
    if (end == text.size()) return shape;
    begin = end + 1;
  }
}

// The input whose free shape ("*A") an input has: its own number, or that of the one that it is like; -1: none.
int giver_of_shape(const OpDecl& decl, size_t input) {
  const ShapeDecl& shape = decl.inputs[input].shapes[0];
  if (shape.kind == ShapeDecl::Kind::any) return static_cast<int>(input);
  return shape.kind == ShapeDecl::Kind::same ? shape.of : -1;
}

// Shapes of the inputs that have any shape, by input. Named by the argument, or by one that has the same.
std::map<int, std::vector<int64_t>> free_shapes(const OpDecl& decl, std::map<std::string, std::string>* words) {
  std::map<int, std::vector<int64_t>> shapes;
  std::map<int, std::string> named;  // the words behind them
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    const int giver = giver_of_shape(decl, i);
    const auto word = words->find(decl.inputs[i].name);
    if (giver < 0 || word == words->end()) continue;
    const std::string text = word->first + "=" + word->second;
    const std::vector<int64_t> shape = parse_shape(word->first, word->second);
    if (!shapes.emplace(giver, shape).second && shapes[giver] != shape)
      throw UsageError(fmt::format("--shape {},{}: {} has the shape of {}; give one of them, or both alike",
                                   named[giver], text, word->first, decl.inputs[static_cast<size_t>(giver)].name));
    named.emplace(giver, text);
    words->erase(word);
  }
  std::vector<int> open;
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if (decl.inputs[i].shapes[0].kind == ShapeDecl::Kind::any && shapes.count(static_cast<int>(i)) == 0)
      open.push_back(static_cast<int>(i));
  }
  // What was left open has the shape of what was given, or that of the declaration's first case.
  const bool given = !shapes.empty();
  const std::vector<int64_t> like = given ? shapes.begin()->second : std::vector<int64_t>();
  for (int i : open) {
    std::vector<int64_t> shape = like;
    if (!given && !decl.shape_cases.empty()) {
      const auto& declared = decl.shape_cases[0].shapes[shapes.size()];
      shape.assign(declared.begin(), declared.end());
    }
    shapes[i] = shape;
  }
  return shapes;
}

void choose_symbols(OpCall* call, int form, std::map<std::string, std::string>* words) {
  for (const core::SymbolDecl& symbol : call->decl->symbols) {
    const auto word = words->find(symbol.name);
    if (symbol.form >= 0 && symbol.form != form) {
      if (word != words->end()) {
        const ParamDecl& param = call->decl->params[static_cast<size_t>(call->decl->form_param)];
        throw UsageError(fmt::format("symbol {} belongs to the form {}; add --param {}={}", symbol.name,
                                     call->decl->forms[static_cast<size_t>(symbol.form)], param.name,
                                     call->decl->forms[static_cast<size_t>(symbol.form)]));
      }
      call->symbols.push_back(-1);
      continue;
    }
    call->symbols.push_back(word == words->end() ? symbol.sizes[0].eval(call->values())
                                                 : parse_size(symbol.name, word->second));
    if (word != words->end()) words->erase(word);
  }
}

}  // namespace

const OpDecl& find_op(const std::string& name) {
  if (const OpDecl* decl = core::find_declaration(name)) return *decl;
  throw UsageError(fmt::format("no operator is called '{}'{}", name,
                               suggestion(name, names_of(core::declarations()), "rlk-plugins ops")));
}

int find_input(const OpDecl& decl, const std::string& name) {
  return find_named(decl.inputs, name);
}
int find_output(const OpDecl& decl, const std::string& name) {
  return find_named(decl.outputs, name);
}

std::vector<std::string> argument_names(const OpDecl& decl, bool inputs, bool outputs) {
  std::vector<std::string> names = inputs ? names_of(decl.inputs) : std::vector<std::string>();
  if (outputs) {
    for (const std::string& name : names_of(decl.outputs)) names.push_back(name);
  }
  return names;
}

Assignment split_assignment(const std::string& word, const char* what) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(fmt::format("{} {}: expected NAME=VALUE", what, word));
  return {word.substr(0, equals), word.substr(equals + 1)};
}

std::vector<std::byte> parse_params(const OpDecl& decl, const std::vector<std::string>& words) {
  const auto* defaults = static_cast<const std::byte*>(decl.defaults);
  std::vector<std::byte> params(defaults, defaults + decl.params_size);
  std::set<std::string> seen;
  for (const std::string& word : words) {
    const Assignment assignment = split_assignment(word, "--param");
    if (!seen.insert(assignment.name).second)
      throw UsageError(fmt::format("--param {}: {} was given twice", word, assignment.name));
    set_param(decl, &params, assignment);
  }
  return params;
}

int form_of(const OpDecl& decl, const std::vector<std::byte>& params) {
  if (decl.form_param < 0) return 0;
  int64_t ordinal = 0;
  std::memcpy(&ordinal, params.data() + decl.params[static_cast<size_t>(decl.form_param)].offset, sizeof(ordinal));
  return static_cast<int>(ordinal);
}

uint32_t parse_numerics(const std::string& words) {
  uint32_t bits = 0;
  for (const std::string& word : loader::split(words, ',')) {
    const uint32_t bit = core::numerics_of_name(word);
    if (bit == 0)
      throw UsageError(
          fmt::format("no numerics class is called '{}'{}", word, suggestion(word, core::names_of_numerics(~0u))));
    bits |= bit;
  }
  return bits;
}

TensorSpec::TensorSpec(Dtype type, std::vector<int64_t> sizes, void* memory)
    : dtype(type), shape(std::move(sizes)), strides(contiguous_strides(shape)), data(memory) {}

uint64_t TensorSpec::bytes() const {
  return static_cast<uint64_t>(element_count(shape).value_or(0)) * static_cast<uint64_t>(core::size_of(dtype));
}

TensorPointers::TensorPointers(const TensorSpecs& specs) : tensors_(specs.size()), pointers_(specs.size()) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i]) continue;
    const TensorSpec& spec = *specs[i];
    rlk_tensor& tensor = tensors_[i];
    tensor.struct_size = sizeof(tensor);
    tensor.alignment = 64;  // of every allocation here
    tensor.data = spec.data;
    tensor.shape = spec.shape.data();
    tensor.strides = spec.strides.data();
    tensor.ndim = static_cast<int32_t>(spec.shape.size());
    tensor.dtype = core::abi_of(spec.dtype);
    pointers_[i] = &tensor;
  }
}

void infer(OpCall* call, uint64_t wanted) {
  const TensorPointers inputs(call->inputs);
  std::vector<core::InferredTensor> inferred;
  rlk_error error{};
  error.struct_size = sizeof(error);
  if (core::infer_outputs(*call->decl, call->params.data(), inputs.span(), wanted, inferred, &error) != RLK_OK)
    throw UsageError(error.text);
  call->outputs.assign(call->decl->outputs.size(), std::nullopt);
  for (size_t i = 0; i < call->decl->outputs.size(); ++i) {
    if (call->decl->outputs[i].optional && (wanted >> i & 1) == 0) continue;
    call->outputs[i] = TensorSpec(inferred[i].dtype, inferred[i].shape);
    call->present |= uint64_t{1} << (32 + i);
  }
}

OpCall describe_call(const OpDecl& decl, const Arguments& arguments) {
  OpCall call;
  call.decl = &decl;
  call.params = parse_params(decl, arguments.values("param"));
  const int form = form_of(decl, call.params);
  const std::vector<Dtype> dtypes = choose_dtypes(decl, arguments.values("dtype"));

  uint64_t wanted = 0;
  for (const std::string& word : arguments.values("with")) {
    for (const std::string& name : loader::split(word, ',')) {
      const int input = find_input(decl, name);
      const int output = find_output(decl, name);
      if (input < 0 && output < 0) {
        throw UsageError(fmt::format("{} has no argument '{}'{}", decl.name, name,
                                     suggestion(name, argument_names(decl, true, true))));
      }
      if (input >= 0) call.present |= uint64_t{1} << input;
      if (output >= 0) wanted |= uint64_t{1} << output;
    }
  }
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    const ArgDecl& input = decl.inputs[i];
    if (!input.optional && (input.form < 0 || input.form == form)) call.present |= uint64_t{1} << i;
  }

  std::map<std::string, std::string> words = shape_words(arguments.values("shape"));
  const std::map<int, std::vector<int64_t>> free = free_shapes(decl, &words);
  choose_symbols(&call, form, &words);
  if (!words.empty()) {
    std::vector<std::string> known = names_of(decl.symbols);
    for (size_t i = 0; i < decl.inputs.size(); ++i)
      if (giver_of_shape(decl, i) >= 0) known.emplace_back(decl.inputs[i].name);
    throw UsageError(
        fmt::format("{} has no size '{}'{}", decl.name, words.begin()->first, suggestion(words.begin()->first, known)));
  }

  call.inputs.resize(decl.inputs.size());
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if ((call.present >> i & 1) == 0) continue;
    std::vector<int64_t> shape;
    if (const int giver = giver_of_shape(decl, i); giver >= 0) {
      shape = free.at(giver);
    } else {
      for (const core::Dim& dim : decl.inputs[i].shapes[static_cast<size_t>(form)].dims)
        shape.push_back(dim.evaluate(call.values()));
    }
    call.inputs[i] = TensorSpec(dtype_of(decl.inputs[i], dtypes), std::move(shape));
  }
  infer(&call, wanted);
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    if (call.outputs[i]) call.outputs[i]->dtype = dtype_of(decl.outputs[i], dtypes);
  }
  return call;
}

std::vector<Option> call_options() {
  return {
      {"dtype", "D", "dtype of the first dtype variable (bf16), or of a named one (I=i32); comma separated", true},
      {"shape", "NAME=N,...", "sizes of symbols (N=4096,V=32000); shapes of free inputs as a=8x128", true},
      {"param", "K=V", "a parameter; enumerations by name", true},
      {"with", "NAME,...", "optional inputs and outputs that take part", true},
  };
}

}  // namespace rlk::cli
