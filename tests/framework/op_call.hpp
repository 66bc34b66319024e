// A valid call of any operator, built from its declaration: every required argument, ordinary sizes, default
// parameters, memory that is aligned and zeroed. A test changes one thing and looks at what happens.
#pragma once

#include <rlk/abi.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/declaration/validate.hpp"

namespace rlk::test {

using core::ArgDecl;
using core::Dtype;
using core::OpDecl;

struct Argument {
  bool given = false;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  uint64_t byte_offset = 0;
  uint32_t alignment = 64;
  void* data = nullptr;  // into memory of the call, unless a test puts it elsewhere
  rlk_tensor tensor{};
};

inline std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

struct OpCall {
  const OpDecl* decl;
  int form = 0;
  std::vector<double> params;    // bytes of rlk_<op>_params (all members are 8 bytes long, the header too)
  std::vector<int64_t> symbols;  // by index; the sizes the shapes are made from
  std::vector<Dtype> dtypes;     // of each dtype variable
  std::vector<Argument> inputs, outputs;
  std::vector<std::unique_ptr<char, void (*)(void*)>> memory;
  std::vector<const rlk_tensor*> input_pointers, output_pointers;
  std::vector<std::byte> storage;

  explicit OpCall(const OpDecl& declaration, int wanted_form = 0) : decl(&declaration), form(wanted_form) {
    params.resize(decl->params_size / sizeof(double));
    std::memcpy(params.data(), decl->defaults, decl->params_size);
    if (decl->form_param >= 0) set_i64(decl->form_param, form);
    for (size_t i = 0; i < decl->dtypes.size(); ++i) dtypes.push_back(first_choice(i));
    for (size_t i = 0; i < decl->symbols.size(); ++i) {
      const bool here = decl->symbols[i].form < 0 || decl->symbols[i].form == form;
      symbols.push_back(0);
      symbols[i] = here ? decl->symbols[i].sizes[0].eval(values()) : -1;
    }
    inputs.resize(decl->inputs.size());
    outputs.resize(decl->outputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].given = required(decl->inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].given = required(decl->outputs[i]);
    rebuild();
  }

  bool of_form(const ArgDecl& arg) const {
    return (arg.form < 0 || arg.form == form) &&
           arg.shapes[static_cast<size_t>(form)].kind != core::ShapeDecl::Kind::none;
  }
  bool required(const ArgDecl& arg) const { return of_form(arg) && !arg.optional; }
  uint64_t present() const {
    uint64_t bits = 0;
    for (size_t i = 0; i < inputs.size(); ++i) bits |= uint64_t{inputs[i].given} << i;
    for (size_t i = 0; i < outputs.size(); ++i) bits |= uint64_t{outputs[i].given} << (32 + i);
    return bits;
  }
  core::Values values() const { return {symbols.data(), params.data(), present()}; }

  void set_i64(int param, int64_t value) {
    std::memcpy(reinterpret_cast<char*>(params.data()) + decl->params[static_cast<size_t>(param)].offset, &value, 8);
  }
  void set_f64(int param, double value) {
    std::memcpy(reinterpret_cast<char*>(params.data()) + decl->params[static_cast<size_t>(param)].offset, &value, 8);
  }
  void set_param(int param, double value) {
    if (decl->params[static_cast<size_t>(param)].type == core::ParamType::f64)
      set_f64(param, value);
    else
      set_i64(param, static_cast<int64_t>(value));
  }

  // The arguments and parameters of a feature, which go together; rebuild() makes them.
  void set(const core::FeatureDecl& feature) {
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].given |= (feature.present >> i & 1) != 0;
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].given |= (feature.present >> (32 + i) & 1) != 0;
    for (const core::FeatureSetting& setting : feature.settings) {
      set_param(setting.param, setting.evaluate(values()));
    }
  }

  Dtype first_choice(size_t variable) const { return resolve(decl->dtypes[variable].choices[0]); }
  Dtype resolve(const core::DtypeExpr& dtype) const {
    if (dtype.kind == core::DtypeExpr::Kind::fixed) return dtype.dtype;
    const Dtype base = dtypes[static_cast<size_t>(dtype.variable)];
    if (dtype.kind == core::DtypeExpr::Kind::variable) return base;
    return base == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  }

  // Shapes, dtypes and memory anew, from symbols, dtypes and presence.
  void rebuild() {
    memory.clear();
    for (size_t i = 0; i < inputs.size(); ++i) fill(decl->inputs[i], inputs[i], i);
    for (size_t i = 0; i < outputs.size(); ++i) fill(decl->outputs[i], outputs[i], i);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int over = decl->outputs[i].must_alias;
      if (over >= 0) outputs[i] = inputs[static_cast<size_t>(over)];
    }
    refresh();
  }
  // The descriptors anew, after a test has changed fields of arguments.
  void refresh() {
    input_pointers.clear();
    output_pointers.clear();
    for (Argument& a : inputs) input_pointers.push_back(describe(a));
    for (Argument& a : outputs) output_pointers.push_back(describe(a));
  }

  rlk_status validate(rlk_error& error, core::BoundCall& bound, bool check_memory = true) {
    error = {};
    error.struct_size = sizeof(error);
    storage.assign(decl->params_size, std::byte{0});
    return core::validate(*decl, params.data(), input_pointers, output_pointers, check_memory, storage, bound, &error);
  }
  rlk_status validate(rlk_error& error) {
    core::BoundCall bound;
    return validate(error, bound);
  }

  void* allocate(uint64_t bytes) {
    const uint64_t whole = (bytes + 4096 + 63) / 64 * 64;
    memory.emplace_back(static_cast<char*>(std::aligned_alloc(64, whole)), &std::free);
    std::memset(memory.back().get(), 0, whole);
    return memory.back().get();
  }

private:
  // Whether every symbol that the size is computed from is at least its minimum: the formula may divide by it.
  bool has_divisors(const core::Dim& dim) const {
    for (size_t i = 0; dim.multiple_of < 0 && i < symbols.size(); ++i) {
      if ((dim.uses >> i & 1) != 0 && symbols[i] >= 0 && symbols[i] < decl->symbols[i].min) return false;
    }
    return true;
  }
  std::vector<int64_t> shape_of(const ArgDecl& arg, size_t index) {
    const core::ShapeDecl& shape = arg.shapes[static_cast<size_t>(form)];
    std::vector<int64_t> sizes;
    if (shape.kind == core::ShapeDecl::Kind::dims) {
      for (const core::Dim& dim : shape.dims) {
        const bool plain = !dim.is_computed() && dim.symbol >= 0;  // of any symbol, one below its minimum too
        sizes.push_back(plain               ? symbols[static_cast<size_t>(dim.symbol)] + dim.offset
                        : has_divisors(dim) ? dim.evaluate(values())
                                            : 1);
      }
    } else if (shape.kind == core::ShapeDecl::Kind::any) {
      const auto& list = decl->shape_cases[0].shapes;
      sizes.assign(list[index].begin(), list[index].end());
    } else if (shape.kind == core::ShapeDecl::Kind::same) {
      sizes = inputs[static_cast<size_t>(shape.of)].shape;
    } else if (shape.kind == core::ShapeDecl::Kind::broadcast) {
      for (const Argument& input : inputs) {
        if (!input.given) continue;
        if (sizes.size() < input.shape.size()) sizes.insert(sizes.begin(), input.shape.size() - sizes.size(), 1);
        for (size_t i = 0; i < input.shape.size(); ++i) {
          int64_t& size = sizes[sizes.size() - input.shape.size() + i];
          if (size == 1) size = input.shape[i];
        }
      }
    }
    return sizes;
  }
  void fill(const ArgDecl& arg, Argument& argument, size_t index) {
    if (!argument.given) return;
    argument.dtype = resolve(arg.dtype);
    argument.shape = shape_of(arg, index);
    argument.strides = contiguous_strides(argument.shape);
    int64_t count = 1;
    for (int64_t size : argument.shape) count *= size;
    argument.data = allocate(static_cast<uint64_t>(std::max<int64_t>(count, 0) * core::size_of(argument.dtype)));
  }
  static const rlk_tensor* describe(Argument& a) {
    if (!a.given) return nullptr;
    a.tensor = {sizeof(rlk_tensor),
                a.alignment,
                a.data,
                a.byte_offset,
                a.shape.data(),
                a.strides.data(),
                static_cast<int32_t>(a.shape.size()),
                core::abi_of(a.dtype)};
    return &a.tensor;
  }
};

}  // namespace rlk::test
