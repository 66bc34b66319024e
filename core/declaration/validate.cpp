// Does a call obey its operator's declaration? The order of the steps is the order in which a text is most useful.
#include "core/declaration/validate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "core/declaration/bind.hpp"
#include "core/declaration/overlap.hpp"

namespace rlk::core {
namespace {

std::string text_of_address(uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

// Memory: present, aligned, and outputs that no other tensor of the call shares unless the declaration says so.
class MemoryCheck {
public:
  MemoryCheck(const OpDecl& decl, Tensors inputs, Tensors outputs, const Binder& binder, BoundCall& call)
      : decl_(decl), inputs_(inputs), outputs_(outputs), binder_(binder), call_(call) {}

  // Outputs that must lie in an input's memory: the layout, without looking at addresses.
  rlk_status check_places() {
    for (size_t i = 0; i < count(outputs_, decl_.outputs); ++i) {
      const ArgDecl& arg = decl_.outputs[i];
      if (arg.must_alias < 0 || outputs_[i] == nullptr) continue;
      const rlk_tensor& input = *inputs_[static_cast<size_t>(arg.must_alias)];  // both are given, or neither
      if (!has_same_layout(*outputs_[i], input)) return refuse_place(arg, *outputs_[i], input);
      call_.output_alias[i] = arg.must_alias;
    }
    return RLK_OK;
  }

  rlk_status run() {
    for (size_t i = 0; i < count(inputs_, decl_.inputs); ++i) {
      if (inputs_[i] == nullptr) continue;
      if (const rlk_status s = check_address(decl_.inputs[i], *inputs_[i], false); s != RLK_OK) return s;
    }
    for (size_t i = 0; i < count(outputs_, decl_.outputs); ++i) {
      if (outputs_[i] == nullptr) continue;
      if (const rlk_status s = check_output(i); s != RLK_OK) return s;
    }
    return RLK_OK;
  }

private:
  static size_t count(Tensors given, std::span<const ArgDecl> args) { return std::min(given.size(), args.size()); }

  rlk_status check_address(const ArgDecl& arg, const rlk_tensor& t, bool output) const {
    if (t.data == nullptr) {
      if (element_count(t) == 0) return RLK_OK;
      return binder_.refuse(
          fmt::format("{} has data NULL and shape {}; expected memory. Only empty tensors may have none",
                      Binder::name_of_argument(arg, output), text_of_shape(t.shape, t.ndim)));
    }
    const uintptr_t address = address_of(t);
    const unsigned element = std::max(t.dtype.bits / 8, 1);
    if (address % element != 0) {
      return binder_.refuse(fmt::format("{} is at address {}; expected a multiple of its element size, {} bytes",
                                        Binder::name_of_argument(arg, output), text_of_address(address), element));
    }
    if (address % t.alignment != 0) {
      return binder_.refuse(
          fmt::format("{} is at address {}, but claims alignment {}; "
                      "expected an alignment that divides the address of the first element",
                      Binder::name_of_argument(arg, output), text_of_address(address), t.alignment));
    }
    return RLK_OK;
  }

  rlk_status check_output(size_t index) {
    const ArgDecl& arg = decl_.outputs[index];
    const rlk_tensor& output = *outputs_[index];
    if (const rlk_status s = check_address(arg, output, true); s != RLK_OK) return s;
    if (element_count(output) == 0) return RLK_OK;
    if (arg.must_alias >= 0) {
      const rlk_tensor& input = *inputs_[static_cast<size_t>(arg.must_alias)];
      if (!is_same_memory(output, input)) return refuse_place(arg, output, input);
    }
    if (overlaps_itself(output)) {
      return binder_.refuse(
          fmt::format("{} has shape {} and strides {}, by which its own elements overlap or interleave; "
                      "expected every element to have memory of its own",
                      Binder::name_of_argument(arg, true), text_of_shape(output.shape, output.ndim),
                      text_of_shape(output.strides, output.ndim)));
    }
    for (size_t i = 0; i < count(inputs_, decl_.inputs); ++i) {
      if (inputs_[i] == nullptr || !may_overlap(output, *inputs_[i])) continue;
      if (static_cast<int>(i) == arg.must_alias) continue;
      bool allowed = false;
      for (const int input : arg.may_alias) allowed = allowed || input == static_cast<int>(i);
      if (allowed && is_same_memory(output, *inputs_[i])) {
        if (call_.output_alias[index] < 0) call_.output_alias[index] = static_cast<int32_t>(i);
        continue;
      }
      return refuse_overlap(arg, output, decl_.inputs[i], *inputs_[i], false, allowed);
    }
    for (size_t i = 0; i < index; ++i) {
      if (outputs_[i] == nullptr || !may_overlap(output, *outputs_[i])) continue;
      return refuse_overlap(arg, output, decl_.outputs[i], *outputs_[i], true, false);
    }
    return RLK_OK;
  }

  static std::string place_of(const rlk_tensor& t) {
    return fmt::format("{}, shape {}, strides {}", text_of_address(address_of(t)), text_of_shape(t.shape, t.ndim),
                       text_of_shape(t.strides, t.ndim));
  }

  rlk_status refuse_place(const ArgDecl& arg, const rlk_tensor& output, const rlk_tensor& input) const {
    const ArgDecl& over = decl_.inputs[static_cast<size_t>(arg.must_alias)];
    return binder_.refuse(fmt::format(
        "{} ({}) is not {} ({}); expected the same memory and layout: it is written in place. "
        "Pass one tensor in both places",
        Binder::name_of_argument(arg, true), place_of(output), Binder::name_of_argument(over, false), place_of(input)));
  }

  rlk_status refuse_overlap(const ArgDecl& arg, const rlk_tensor& output, const ArgDecl& other_arg,
                            const rlk_tensor& other, bool other_is_output, bool allowed) const {
    return binder_.refuse(fmt::format("{} ({}) overlaps {} ({}); expected {}", Binder::name_of_argument(arg, true),
                                      place_of(output), Binder::name_of_argument(other_arg, other_is_output),
                                      place_of(other),
                                      allowed ? "exactly the same memory, layout and dtype, or none in common"
                                              : "no memory in common. Give the output memory of its own"));
  }

  const OpDecl& decl_;
  Tensors inputs_;
  Tensors outputs_;
  const Binder& binder_;
  BoundCall& call_;
};

}  // namespace

rlk_status validate(const OpDecl& decl, const void* params, std::span<const rlk_tensor* const> inputs,
                    std::span<const rlk_tensor* const> outputs, bool check_memory, std::span<std::byte> storage,
                    BoundCall& out, rlk_error* error) {
  out.form = 0;
  out.present = 0;
  out.output_alias.fill(-1);
  Binder binder(decl, inputs, outputs, /*infer=*/false, out, error);
  if (const rlk_status s = binder.bind_params(params, storage); s != RLK_OK) return s;
  if (const rlk_status s = binder.bind_presence(0); s != RLK_OK) return s;
  if (const rlk_status s = binder.bind_dtypes(); s != RLK_OK) return s;
  if (const rlk_status s = binder.bind_shapes(); s != RLK_OK) return s;
  if (const rlk_status s = binder.check_rules(); s != RLK_OK) return s;
  MemoryCheck memory(decl, inputs, outputs, binder, out);
  if (const rlk_status s = memory.check_places(); s != RLK_OK) return s;
  return check_memory ? memory.run() : RLK_OK;
}

}  // namespace rlk::core
