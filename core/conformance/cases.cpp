// A case made concrete, and put in words.
#include "core/conformance/cases.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace rlk::core::conformance {
namespace {

Dtype dtype_of(const DtypeExpr& dtype, const ConcreteCall& call) {
  if (dtype.kind == DtypeExpr::Kind::fixed) return dtype.dtype;
  const Dtype variable = call.dtypes[static_cast<size_t>(dtype.variable)];
  if (dtype.kind == DtypeExpr::Kind::variable) return variable;
  return variable == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}

bool resolve_dtypes(const Case& c, ConcreteCall& call) {
  for (size_t i = 0; i < c.decl->dtypes.size(); ++i) {
    const auto& choices = c.decl->dtypes[i].choices;
    int chosen = c.dtype_choice[i];
    for (const Variation& v : c.variations) {
      if (v.dtype_variable == static_cast<int>(i)) chosen = v.dtype_choice;
    }
    call.dtypes[i] = dtype_of(choices[static_cast<size_t>(chosen)], call);
    // A choice that comes to the same dtype as the first one is not another case.
    if (i > 0 && chosen > 0 && call.dtypes[i] == dtype_of(choices[0], call)) return false;
  }
  return true;
}

bool resolve_symbols(const Case& c, ConcreteCall& call) {
  for (size_t i = 0; i < c.decl->symbols.size(); ++i) {
    const SymbolDecl& symbol = c.decl->symbols[i];
    call.symbols[i] = -1;
    if (symbol.form >= 0 && symbol.form != c.form) continue;
    size_t chosen = static_cast<size_t>(c.size_choice[i]);
    for (const Variation& v : c.variations) {
      if (v.symbol == static_cast<int>(i)) chosen = symbol.sizes.size() - 1;
    }
    call.symbols[i] = c.size_given[i] ? *c.size_given[i] : symbol.sizes[chosen].eval(call.values());
    if (call.symbols[i] < symbol.min) return false;
  }
  return true;
}

void set_param(ConcreteCall& call, int index, double number) {
  const ParamDecl& param = call.decl->params[static_cast<size_t>(index)];
  std::byte* at = call.params.data() + param.offset;
  const auto integer = static_cast<int64_t>(number);
  if (param.type == ParamType::f64) {
    std::memcpy(at, &number, sizeof(number));
  } else {
    std::memcpy(at, &integer, sizeof(integer));
  }
}

void resolve_params(const Case& c, ConcreteCall& call) {
  if (c.decl->form_param >= 0) set_param(call, c.decl->form_param, c.form);
  for (const Variation& v : c.variations) {
    if (v.try_param >= 0) set_param(call, v.try_param, v.try_value);
    for (const FeatureSetting& setting : v.params) {
      set_param(call, setting.param, setting.evaluate(call.values()));
    }
  }
}

// The given first and last dimension, where the shape has them and does not repeat them.
void resize_free_shape(const Case& c, std::vector<int64_t>& shape) {
  size_t longest = 0;
  for (const auto& other : c.decl->shape_cases[static_cast<size_t>(c.shape_case)].shapes) {
    longest = std::max(longest, other.size());
  }
  if (shape.empty()) return;
  if (c.first_given && shape.size() == longest && shape[0] != 1) shape[0] = *c.first_given;
  if (c.last_given && shape.back() != 1) shape.back() = *c.last_given;
}

// Shapes of everything but broadcast results. False: the case wants an argument that the form does not have.
bool resolve_arguments(const Case& c, std::span<const ArgDecl> declared, int first_bit, uint64_t wanted,
                       ConcreteCall& call, std::vector<Argument>& arguments) {
  arguments.assign(declared.size(), {});
  size_t free_shape = 0;
  for (size_t i = 0; i < declared.size(); ++i) {
    const ArgDecl& arg = declared[i];
    const uint64_t bit = uint64_t{1} << (first_bit + static_cast<int>(i));
    const bool in_form =
        (arg.form < 0 || arg.form == c.form) && arg.shapes[static_cast<size_t>(c.form)].kind != ShapeDecl::Kind::none;
    if (!in_form && (wanted & bit) != 0) return false;
    if (!in_form || (arg.optional && (wanted & bit) == 0)) continue;
    call.present |= bit;
    Argument& argument = arguments[i];
    argument.present = true;
    argument.dtype = dtype_of(arg.dtype, call);
    const ShapeDecl& shape = arg.shapes[static_cast<size_t>(c.form)];
    if (shape.kind == ShapeDecl::Kind::dims) {
      for (const Dim& dim : shape.dims) {
        argument.shape.push_back(dim.evaluate(call.values()));
        if (argument.shape.back() < 0) return false;
      }
    } else if (shape.kind == ShapeDecl::Kind::any) {
      const auto& declared_shape = c.decl->shape_cases[static_cast<size_t>(c.shape_case)].shapes[free_shape];
      argument.shape.assign(declared_shape.begin(), declared_shape.end());
      resize_free_shape(c, argument.shape);
      if (c.shapes_given) argument.shape = (*c.shapes_given)[free_shape];
      ++free_shape;
    } else if (shape.kind == ShapeDecl::Kind::same) {
      argument.shape = call.inputs[static_cast<size_t>(shape.of)].shape;
    }
  }
  return true;
}

// A symbol that no given tensor has stays unknown, as it does to validation.
void forget_unused_symbols(ConcreteCall& call) {
  uint64_t used = 0;
  const auto note = [&](std::span<const ArgDecl> declared, const std::vector<Argument>& arguments) {
    for (size_t i = 0; i < declared.size(); ++i) {
      if (!arguments[i].present) continue;
      for (const Dim& dim : declared[i].shapes[static_cast<size_t>(call.form)].dims) {
        if (dim.symbol >= 0) used |= uint64_t{1} << dim.symbol;
        if (dim.multiple_of >= 0) used |= uint64_t{1} << dim.multiple_of;
      }
    }
  };
  note(call.decl->inputs, call.inputs);
  note(call.decl->outputs, call.outputs);
  for (size_t i = 0; i < call.decl->symbols.size(); ++i) {
    if ((used >> i & 1) == 0) call.symbols[i] = -1;
  }
}

void resolve_broadcasts(const Case& c, ConcreteCall& call) {
  std::vector<int64_t> common;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (c.decl->inputs[i].shapes[static_cast<size_t>(c.form)].kind != ShapeDecl::Kind::any) continue;
    const std::vector<int64_t>& shape = call.inputs[i].shape;
    if (shape.size() > common.size()) common.insert(common.begin(), shape.size() - common.size(), 1);
    for (size_t back = 1; back <= shape.size(); ++back) {
      int64_t& size = common[common.size() - back];
      if (size == 1) size = shape[shape.size() - back];
    }
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (c.decl->outputs[i].shapes[static_cast<size_t>(c.form)].kind == ShapeDecl::Kind::broadcast) {
      call.outputs[i].shape = common;
    }
  }
}

// Values that follow from others, or whose order matters, cannot all be the same.
bool may_repeat(const DomainDecl& domain) {
  return domain.kind != Domain::forward && domain.kind != Domain::cu_seqlens && !domain.increasing;
}

// Where several elements share a byte they follow each other in the last dimension.
bool can_lie(const Argument& argument, Layout layout) {
  if (argument.group() == 1) return true;
  if (layout == Layout::stepped || layout == Layout::transposed) return false;
  if (layout == Layout::mirrored || layout == Layout::turned) return false;
  return argument.shape.size() > 1 || layout == Layout::padded;
}

void resolve_layouts(const Case& c, ConcreteCall& call) {
  for (const Variation& v : c.variations) {
    if (v.layout == Layout::contiguous) continue;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const bool repeats = v.layout != Layout::expanded || may_repeat(c.decl->inputs[i].domain);
      if ((v.layout_of >> i & 1) != 0 && repeats && can_lie(call.inputs[i], v.layout)) call.inputs[i].layout = v.layout;
    }
    for (size_t i = 0; i < call.outputs.size() && v.layout != Layout::expanded; ++i) {
      if ((v.layout_of >> (32 + i) & 1) != 0 && can_lie(call.outputs[i], v.layout)) call.outputs[i].layout = v.layout;
    }
  }
}

void resolve_alignment(const Case& c, ConcreteCall& call) {
  if (c.misaligned_by == 0) return;
  uint64_t which = c.misaligned_of;
  for (size_t i = 0; i < call.outputs.size(); ++i) {  // what is written in place counts as an output
    const int over = c.decl->outputs[i].must_alias;
    if (over >= 0) which = (which & ~(uint64_t{1} << over)) | (which >> (32 + i) & 1) << over;
  }
  const auto shift = [&](std::vector<Argument>& arguments, int first_bit) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if ((which >> (first_bit + static_cast<int>(i)) & 1) == 0) continue;
      const int64_t group = arguments[i].group();  // elements of a whole byte
      const int64_t elements = c.misaligned_by * 8 / bits_of(arguments[i].dtype);
      arguments[i].shift = std::max<int64_t>(1, elements / group) * group;
    }
  };
  shift(call.inputs, 0);
  shift(call.outputs, 32);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const int over = c.decl->outputs[i].must_alias;
    if (over >= 0) call.outputs[i].shift = call.inputs[static_cast<size_t>(over)].shift;
  }
}

// An output in the memory of an input lies as the input does, or, where only the output is to have gaps, both do.
// Nothing is written to a tensor whose values repeat.
void resolve_places(const Case& c, ConcreteCall& call) {
  call.output_alias.fill(-1);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const int over = c.decl->outputs[i].must_alias;
    if (over < 0) continue;
    call.output_alias[i] = over;
    Argument& input = call.inputs[static_cast<size_t>(over)];
    Argument& output = call.outputs[i];
    if (input.layout == Layout::expanded) input.layout = Layout::contiguous;
    if (input.layout == Layout::contiguous) input.layout = output.layout;
    output.layout = input.layout;
  }
}

// Arguments of which one is not there without the other.
uint64_t with_places(const OpDecl& decl, uint64_t wanted) {
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    const int over = decl.outputs[i].must_alias;
    if (over < 0) continue;
    const uint64_t both = uint64_t{1} << (32 + i) | uint64_t{1} << over;
    if ((wanted & both) != 0) wanted |= both;
  }
  return wanted;
}

bool resolve_aliases(const Case& c, ConcreteCall& call) {
  for (const Variation& v : c.variations) {
    if (v.alias_output < 0) continue;
    const Argument& input = call.inputs[static_cast<size_t>(v.alias_input)];
    Argument& output = call.outputs[static_cast<size_t>(v.alias_output)];
    if (!input.present || !output.present || input.shape != output.shape || input.dtype != output.dtype) return false;
    if (input.layout == Layout::expanded) return false;
    output.layout = input.layout;
    output.shift = input.shift;
    call.output_alias[static_cast<size_t>(v.alias_output)] = v.alias_input;
  }
  return true;
}

// No lengths of no sequences add up to some tokens.
bool has_tokens_without_sequence(const ConcreteCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const DomainDecl& domain = call.decl->inputs[i].domain;
    if (domain.kind != Domain::cu_seqlens || !call.inputs[i].present) continue;
    if (call.inputs[i].count() == 1 && domain.high.eval(call.values()) > 0) return true;
  }
  return false;
}

// No more rows than there are can be named in increasing order.
bool has_too_many_increasing_indices(const ConcreteCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const DomainDecl& domain = call.decl->inputs[i].domain;
    if (domain.kind != Domain::row_index || !domain.increasing || !call.inputs[i].present) continue;
    if (call.inputs[i].count() > domain.high.eval(call.values())) return true;
  }
  return false;
}

// Of no rows, tokens or blocks none can be named.
bool has_names_of_nothing(const ConcreteCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const DomainDecl& domain = call.decl->inputs[i].domain;
    const bool names =
        domain.kind == Domain::id || domain.kind == Domain::row_index || domain.kind == Domain::block_table;
    if (!names || !call.inputs[i].present || call.inputs[i].count() == 0) continue;
    const int64_t low = domain.kind == Domain::id ? domain.low.eval(call.values()) : 0;
    if (domain.high.eval(call.values()) <= low) return true;
  }
  return false;
}

// " by 16 bytes, outputs"; nothing for all tensors by an element.
std::string misalignment(const Case& c) {
  std::string text;
  if (c.misaligned_by > 1) text += fmt::format(" by {} bytes", c.misaligned_by);
  if ((c.misaligned_of & 0xffffffffu) == 0) text += " outputs";
  if (c.misaligned_of >> 32 == 0) text += " inputs";
  return text;
}

void append(std::string& text, const char* pattern, const char* name, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), pattern, name, value);
  text += buffer;
}

// What the name of a unit leaves open: the parameters and arguments that a declared feature stands for.
void append_members(std::string& text, const Case& c, const ConcreteCall& call) {
  uint64_t present = 0;
  std::vector<bool> told(c.decl->params.size());
  for (const Variation& v : c.variations) {
    if (v.try_param >= 0) told[static_cast<size_t>(v.try_param)] = true;
  }
  for (const FeatureDecl& feature : c.decl->features) {
    present |= feature.present & call.present;
    for (const FeatureSetting& setting : feature.settings) {
      const ParamDecl& param = c.decl->params[static_cast<size_t>(setting.param)];
      const bool real = param.type == ParamType::f64;
      const double value =
          real ? call.values().f64(param.offset) : static_cast<double>(call.values().i64(param.offset));
      const double ordinary = real ? param.default_f64 : static_cast<double>(param.default_i64);
      if (value == ordinary || told[static_cast<size_t>(setting.param)]) continue;
      told[static_cast<size_t>(setting.param)] = true;
      append(text, " %s=%g", param.name, value);
    }
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if ((present >> i & 1) != 0) text += std::string(" ") + c.decl->inputs[i].name;
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if ((present >> (32 + i) & 1) != 0) text += std::string(" ") + c.decl->outputs[i].name;
  }
}

}  // namespace

const char* name_of(Content content) {
  static constexpr const char* kNames[] = {
      "",      "with -inf", "with a row of -inf", "with NaN", "with one NaN in",          "wide",  "extreme",
      "close", "tiny",      "data error",         "positive", "with nothing that counts", "sparse"};
  return kNames[static_cast<size_t>(content)];
}

bool resolve(const Case& c, ConcreteCall& out) {
  out = {};
  out.decl = c.decl;
  out.form = c.form;
  const auto* defaults = static_cast<const std::byte*>(c.decl->defaults);
  out.params.assign(defaults, defaults + c.decl->params_size);
  uint64_t wanted = 0;
  for (const Variation& v : c.variations) wanted |= v.present;
  wanted = with_places(*c.decl, wanted);
  out.present = wanted;  // sizes may ask for it
  if (!resolve_dtypes(c, out) || !resolve_symbols(c, out)) return false;
  resolve_params(c, out);
  if (!resolve_arguments(c, c.decl->inputs, 0, wanted, out, out.inputs)) return false;
  if (!resolve_arguments(c, c.decl->outputs, 32, wanted, out, out.outputs)) return false;
  forget_unused_symbols(out);
  resolve_broadcasts(c, out);
  resolve_layouts(c, out);
  resolve_places(c, out);
  resolve_alignment(c, out);
  if (!resolve_aliases(c, out)) return false;
  if (has_tokens_without_sequence(out) || has_too_many_increasing_indices(out) || has_names_of_nothing(out))
    return false;
  return std::all_of(c.decl->rules.begin(), c.decl->rules.end(),
                     [&](const RuleDecl& rule) { return rule.holds.eval(out.values()) != 0; });
}

std::string describe(const Case& c, const ConcreteCall& call) {
  std::string text = c.decl->dtypes.empty() ? "plain" : rlk::core::name_of(call.dtypes[0]);
  for (const std::string& word : features(call)) text += " " + word;
  for (const Variation& v : c.variations) {
    if (v.try_param >= 0) append(text, " %s=%g", c.decl->params[static_cast<size_t>(v.try_param)].name, v.try_value);
    if (v.layout == Layout::contiguous) continue;
    text += std::string(" ") + name_of(v.layout) + ":";
    bool first = true;
    const auto add = [&](bool on, const char* name) {
      if (on) text += std::exchange(first, false) ? name : std::string("+") + name;
    };
    for (size_t i = 0; i < call.inputs.size(); ++i) add(call.inputs[i].layout == v.layout, c.decl->inputs[i].name);
    for (size_t i = 0; i < call.outputs.size(); ++i) add(call.outputs[i].layout == v.layout, c.decl->outputs[i].name);
  }
  append_members(text, c, call);
  if (c.misaligned_by != 0) text += " misaligned" + misalignment(c);
  if (c.content != Content::ordinary) text += std::string(" ") + name_of(c.content);
  if (c.content == Content::fault) text += " " + std::to_string(c.fault + 1);
  if (c.content == Content::one_nan) text += std::string(" ") + c.decl->inputs[static_cast<size_t>(c.nan_input)].name;
  if (c.drawn != 0) text += " drawn";
  const char* separator = " ";
  for (size_t i = 0; i < c.decl->symbols.size(); ++i) {
    if (call.symbols[i] < 0) continue;
    text += fmt::format("{}{}={}", separator, c.decl->symbols[i].name, call.symbols[i]);
    separator = ",";
  }
  for (size_t i = 0; i < call.inputs.size() && !c.decl->shape_cases.empty(); ++i) {
    text += std::string(" ") + c.decl->inputs[i].name + "[";
    for (size_t axis = 0; axis < call.inputs[i].shape.size(); ++axis) {
      text += (axis > 0 ? "," : "") + std::to_string(call.inputs[i].shape[axis]);
    }
    text += "]";
  }
  return text;
}

Case with_other_sizes(const Case& c, uint64_t dynamic, const int64_t* symbol_min, const int64_t* symbol_max) {
  ConcreteCall before;
  if (!resolve(c, before)) return c;
  const auto legal = [&](const Case& other) {
    ConcreteCall call;
    if (!resolve(other, call)) return false;
    for (size_t i = 0; i < c.decl->symbols.size(); ++i) {
      if (call.symbols[i] == before.symbols[i]) continue;
      if ((dynamic >> i & 1) == 0 || !c.decl->symbols[i].dynamic) return false;
      if (symbol_min != nullptr && call.symbols[i] < symbol_min[i]) return false;
      if (symbol_max != nullptr && call.symbols[i] > symbol_max[i]) return false;
    }
    return true;
  };
  const bool ordinary = c.variations.empty() &&
                        std::all_of(c.size_choice.begin(), c.size_choice.end(), [](int choice) { return choice == 0; });
  Case best = c;
  for (size_t i = 0; i < c.decl->symbols.size(); ++i) {
    const SymbolDecl& symbol = c.decl->symbols[i];
    if (before.symbols[i] < 0 || !symbol.dynamic || (dynamic >> i & 1) == 0) continue;
    // Larger sizes first: more than the plan was made for is the harder half. Of the ordinary
    // call the largest, which crosses the algorithm's tiles; elsewhere the next, or these calls would take most of the
    // time.
    std::vector<std::pair<int64_t, int>> sizes;
    for (size_t k = 0; k < symbol.sizes.size(); ++k) {
      const int64_t size = symbol.sizes[k].eval(before.values());
      if (size > 0 && size != before.symbols[i]) sizes.emplace_back(size, static_cast<int>(k));
    }
    std::sort(sizes.begin(), sizes.end(), [&, now = before.symbols[i]](const auto& a, const auto& b) {
      const bool a_is_larger = a.first > now, b_is_larger = b.first > now;
      if (a_is_larger != b_is_larger) return a_is_larger;
      return a_is_larger && !ordinary ? a.first < b.first : a.first > b.first;
    });
    for (const auto& size : sizes) {
      Case other = best;
      other.size_choice[i] = size.second;
      other.size_given[i].reset();
      if (!legal(other)) continue;
      best = std::move(other);
      break;
    }
  }
  return best;
}

}  // namespace rlk::core::conformance
