// What the manifest leaves out is declined, so that a forgotten parameter is a slower call and not a wrong one.
#include "plugins/tvmffi/answer.hpp"

#include <algorithm>
#include <cstring>

namespace rlk::tvmffi {

std::vector<Any> values_of(const Operator& op, const rlk_call_desc& desc) {
  std::vector<uint64_t> memory((op.params_size + 7) / 8);
  std::memcpy(memory.data(), op.defaults, op.params_size);
  uint32_t size = 0;
  std::memcpy(&size, desc.params, sizeof(size));
  std::memcpy(memory.data(), desc.params, std::min(size, op.params_size));
  std::vector<Any> out;
  for (uint32_t i = 0; i < op.n_params; ++i) {
    Any& value = out.emplace_back(Any{op.params[i].type == 'f' ? kFloat : kInt, 0, {0}});
    std::memcpy(&value.i64, reinterpret_cast<const char*>(memory.data()) + op.params[i].offset, sizeof(value.i64));
  }
  return out;
}

namespace {

sdk::Refusal refuse_settings(const Kernel& kernel, const rlk_call_desc& desc) {
  const std::vector<Any> values = values_of(*kernel.op, desc);
  for (const auto& [index, rule] : kernel.settings) {
    const Any& value = values[index];
    const double number = value.type_index == kFloat ? value.f64 : static_cast<double>(value.i64);
    if (std::find(rule.values.begin(), rule.values.end(), number) != rule.values.end()) continue;
    if (rule.values.empty()) {
      if (number >= rule.min && number <= rule.max) continue;
      return sdk::Support::no("PARAMETER", sdk::format("%s is %g; the manifest says from %g to %g",
                                                       kernel.op->params[index].name, number, rule.min, rule.max));
    }
    return sdk::Support::no("PARAMETER", std::string(kernel.op->params[index].name) +
                                             " is not at a value that the manifest names, or at its default");
  }
  return std::nullopt;
}

sdk::Refusal refuse_sizes(const Kernel& kernel, const rlk_call_desc& desc) {
  for (const auto& [index, rule] : kernel.sizes) {
    const int64_t size = index < desc.n_symbols ? desc.symbols[index] : -1;
    const auto of = static_cast<uint32_t>(rule.of);
    const int64_t other = rule.of >= 0 && of < desc.n_symbols ? desc.symbols[of] : -1;
    if (size >= 0 && other >= 0 && size != rule.times * other)
      return sdk::Support::no(
          "SIZE", sdk::format("%s is %lld and %s %lld; the manifest says %lld times as much", kernel.op->symbols[index],
                              static_cast<long long>(size), kernel.op->symbols[of], static_cast<long long>(other),
                              static_cast<long long>(rule.times)));
    if (size < 0 || (size >= rule.min && size <= rule.max && size % rule.multiple == 0)) continue;
    return sdk::Support::no(
        "SIZE", sdk::format("%s is %lld; the manifest says from %lld to %lld, a multiple of %lld",
                            kernel.op->symbols[index], static_cast<long long>(size), static_cast<long long>(rule.min),
                            static_cast<long long>(rule.max), static_cast<long long>(rule.multiple)));
  }
  return std::nullopt;
}

sdk::Refusal refuse_places(const Kernel& kernel, const rlk_call_desc& desc) {
  const Operator& op = *kernel.op;
  for (uint32_t i = 0; i < op.n_outputs && i < desc.n_outputs; ++i) {
    if (desc.outputs[i] == nullptr) continue;
    const int32_t is_over = desc.output_alias[i];
    const auto wanted = kernel.in_place.find(i);
    if (wanted != kernel.in_place.end() && is_over >= 0 && is_over != static_cast<int32_t>(wanted->second))
      return sdk::Support::no(
          "ALIAS", sdk::format("the function writes %s over %s; the call wants it over %s", op.outputs[i].name,
                               op.inputs[wanted->second].name, op.inputs[is_over].name));
    if (kernel.is_never_in_place && is_over >= 0 && op.outputs[i].alias < 0)
      return sdk::Support::no("ALIAS", sdk::format("%s is to be written over %s; the manifest says never in place",
                                                   op.outputs[i].name, op.inputs[is_over].name));
  }
  return std::nullopt;
}

const rlk_tensor* tensor_of(const Slot& slot, const rlk_tensor* const* inputs, const rlk_tensor* const* outputs) {
  if (slot.kind == Slot::Kind::input) return inputs[slot.index];
  return slot.kind == Slot::Kind::output ? outputs[slot.index] : nullptr;
}

sdk::Refusal refuse_tensors(const Kernel& kernel, const rlk_call_desc& desc) {
  const Operator& op = *kernel.op;
  for (uint32_t i = 0; i < op.n_inputs && i < desc.n_inputs; ++i) {
    if (!kernel.takes_input[i]) {
      if (auto no = sdk::refuse_input(desc.inputs[i], op.inputs[i].name)) return no;
    } else if (kernel.needs_input[i] && desc.inputs[i] == nullptr) {
      return sdk::Support::no("INPUT", std::string(op.inputs[i].name) + " is absent, and the manifest requires it");
    }
  }
  for (uint32_t i = 0; i < op.n_outputs && i < desc.n_outputs; ++i) {
    if (kernel.takes_output[i]) continue;
    if (auto no = sdk::refuse_output(desc.outputs[i], op.outputs[i].name)) return no;
  }
  const auto fits = [&](const std::vector<sdk::Dtype>& row) {
    for (size_t i = 0; i < kernel.slots.size(); ++i) {
      const rlk_tensor* tensor = tensor_of(kernel.slots[i], desc.inputs, desc.outputs);
      if (tensor != nullptr && sdk::dtype_of(*tensor) != row[i]) return false;
    }
    return true;
  };
  if (std::none_of(kernel.dtypes.begin(), kernel.dtypes.end(), fits))
    return sdk::Support::no("DTYPE", "the manifest names no such combination of dtypes");
  for (const Slot& slot : kernel.slots) {
    const rlk_tensor* tensor = tensor_of(slot, desc.inputs, desc.outputs);
    const char* name = slot.kind == Slot::Kind::input ? op.inputs[slot.index].name : op.outputs[slot.index].name;
    if (tensor == nullptr) continue;
    if (tensor->alignment < kernel.alignment)
      return sdk::Support::no(
          "ALIGNMENT",
          sdk::format("%s starts on %u bytes; the manifest says on %u", name, tensor->alignment, kernel.alignment),
          RLK_SUPPORT_IF_CONTIGUOUS);
    if (!kernel.is_contiguous) continue;
    if (auto no = sdk::refuse_gaps(tensor, name)) return no;
  }
  return std::nullopt;
}

}  // namespace

sdk::Support answer(const Kernel& kernel, const rlk_call_desc& desc) {
  if (auto no = refuse_settings(kernel, desc)) return *no;
  if (auto no = refuse_tensors(kernel, desc)) return *no;
  if (auto no = refuse_places(kernel, desc)) return *no;
  if (auto no = refuse_sizes(kernel, desc)) return *no;
  if (auto no = sdk::refuse_numerics(desc.numerics, kernel.numerics)) return *no;
  sdk::Support yes = sdk::Support::yes(kernel.name, kernel.numerics, kernel.level);
  for (const auto& [output, over] : kernel.in_place) {
    const bool is_copied = output < desc.n_outputs && desc.outputs[output] != nullptr && desc.output_alias[output] < 0;
    if (!is_copied) continue;
    yes.level = RLK_SUPPORT_SLOW;
    yes.reason_code = "COPIES";
    yes.reason = "the function writes over its inputs, which are copied first; a call in place needs no copy";
  }
  yes.workspace_bound = kernel.workspace_bytes;
  return yes;
}

}  // namespace rlk::tvmffi
