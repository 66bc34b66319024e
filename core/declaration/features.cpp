// The non-default features of a call, in the words that verification units use.
#include <fmt/core.h>

#include <algorithm>

#include "core/declaration/bind.hpp"
#include "core/declaration/overlap.hpp"
#include "core/declaration/validate.hpp"

namespace rlk::core {
namespace {

bool is_default(const ParamDecl& param, const Values& values) {
  return param.type == ParamType::f64 ? values.f64(param.offset) == param.default_f64
                                      : values.i64(param.offset) == param.default_i64;
}

// A declared feature stands for its parameters and arguments: they are set jointly, so none of them has a word of its
// own, and the feature is on as soon as one of them is.
struct Covered {
  ParamSet params;
  uint64_t present = 0;
};

Covered add_declared(const BoundCall& call, std::vector<std::string>& words) {
  Covered covered;
  for (const FeatureDecl& feature : call.decl->features) {
    if (!feature.is_unit) continue;
    bool on = (call.present & feature.present) != 0;
    for (const FeatureSetting& setting : feature.settings) {
      covered.params.set(static_cast<size_t>(setting.param));
      on = on || !is_default(call.decl->params[static_cast<size_t>(setting.param)], call.values());
    }
    covered.present |= feature.present;
    if (on) words.emplace_back(feature.name);
  }
  return covered;
}

void add_params(const BoundCall& call, const ParamSet& covered, std::vector<std::string>& words) {
  for (size_t i = 0; i < call.decl->params.size(); ++i) {
    const ParamDecl& param = call.decl->params[i];
    if (covered[i] || is_default(param, call.values())) continue;
    std::string word = param.name;
    if (param.type == ParamType::enumeration) {
      word += std::string("=") + param.values[static_cast<size_t>(call.values().i64(param.offset))];
    }
    words.push_back(std::move(word));
  }
}

void add_optional(std::span<const ArgDecl> args, uint64_t present, std::vector<std::string>& words) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].optional && (present >> i & 1) != 0) words.emplace_back(args[i].name);
  }
}

void add_dtypes(const BoundCall& call, std::vector<std::string>& words) {
  for (size_t i = 1; i < call.decl->dtypes.size(); ++i) {
    const DtypeVariable& variable = call.decl->dtypes[i];
    if (call.dtypes[i] == resolve(variable.choices[0], call)) continue;
    words.push_back(fmt::format("{}={}", variable.name, name_of(call.dtypes[i])));
  }
}

}  // namespace

std::vector<std::string> features_of(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                                     std::span<const rlk_tensor* const> outputs) {
  std::vector<std::string> words;
  const Covered covered = add_declared(call, words);
  add_params(call, covered.params, words);
  add_optional(call.decl->inputs, call.present & ~covered.present, words);
  add_optional(call.decl->outputs, (call.present & ~covered.present) >> 32, words);
  add_dtypes(call, words);
  const auto strided = [](const rlk_tensor* t) { return t != nullptr && !is_contiguous(*t); };
  if (std::any_of(inputs.begin(), inputs.end(), strided) || std::any_of(outputs.begin(), outputs.end(), strided)) {
    words.emplace_back("strided");
  }
  for (size_t i = 0; i < call.decl->outputs.size(); ++i) {
    const int32_t input = call.output_alias[i];
    if (input < 0 || call.decl->outputs[i].must_alias >= 0) continue;  // what every call has is no feature
    words.push_back(
        fmt::format("alias:{}={}", call.decl->outputs[i].name, call.decl->inputs[static_cast<size_t>(input)].name));
  }
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

}  // namespace rlk::core
