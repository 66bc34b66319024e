// Tensors without gaps, parameters as words.
#include "core/conformance/make_shown_case.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <cstring>

namespace rlk::core::conformance {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<std::string> changed_params(const ConcreteCall& call) {
  std::vector<std::string> words;
  for (const ParamDecl& param : call.decl->params) {
    const std::byte* at = call.params.data() + param.offset;
    if (std::memcmp(at, static_cast<const std::byte*>(call.decl->defaults) + param.offset, sizeof(int64_t)) == 0) {
      continue;
    }
    const Values values = call.values();
    const int64_t integer = values.i64(param.offset);
    std::string text = std::to_string(integer);
    if (param.type == ParamType::f64) {
      double number = 0;
      char digits[40];
      std::memcpy(&number, at, sizeof(number));
      std::snprintf(digits, sizeof(digits), "%.17g", number);
      text = digits;
    } else if (integer >= 0 && static_cast<size_t>(integer) < param.values.size()) {
      text = param.values[static_cast<size_t>(integer)];
    }
    words.push_back(fmt::format("{}={}", param.name, text));
  }
  return words;
}

}  // namespace

ShownCase shown(const std::string& title, const std::string& variant, const std::optional<Failure>& failure,
                const Seen& seen) {
  ShownCase out;
  out.title = title;
  out.op = seen.call.decl->name;
  out.variant = variant;
  if (failure) out.code = failure->code, out.reason = failure->text;
  out.params = changed_params(seen.call);
  const OpDecl& decl = *seen.call.decl;
  for (size_t i = 0; i < seen.call.inputs.size(); ++i) {
    const Argument& input = seen.call.inputs[i];
    if (input.present)
      out.tensors.push_back({decl.inputs[i].name, ShownTensor::Role::input, input.dtype, input.shape, input.bytes});
  }
  for (size_t i = 0; i < seen.call.outputs.size(); ++i) {
    const Argument& output = seen.call.outputs[i];
    if (!output.present) continue;
    if (i < seen.outputs.size() && seen.outputs[i].size() == static_cast<size_t>(output.byte_count()))
      out.tensors.push_back(
          {decl.outputs[i].name, ShownTensor::Role::got, output.dtype, output.shape, seen.outputs[i]});
    const golden::Output& expected = seen.answer.outputs[i];
    const bool exact = !expected.exact.empty();
    out.tensors.push_back({decl.outputs[i].name, ShownTensor::Role::expected, exact ? Dtype::i64 : Dtype::f64,
                           output.shape, exact ? bytes_of(expected.exact) : bytes_of(expected.value)});
  }
  return out;
}

}  // namespace rlk::core::conformance
