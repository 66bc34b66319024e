// rlk.h: the answers that are JSON documents, schema 1.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/declaration/numerics.hpp"
#include "loader/api/handles.hpp"
#include "loader/host/services.hpp"
#include "loader/store/record.hpp"

using nlohmann::ordered_json;
using rlk::core::ArgDecl;
using rlk::core::DtypeExpr;
using rlk::core::OpDecl;
using rlk::core::ParamDecl;
using rlk::core::ParamType;
using rlk::loader::guarded;

namespace rlk::loader {
namespace {

std::string dtype_text(const OpDecl& decl, const DtypeExpr& dtype) {
  switch (dtype.kind) {
    case DtypeExpr::Kind::fixed:
      return core::name_of(dtype.dtype);
    case DtypeExpr::Kind::variable:
      return decl.dtypes[static_cast<size_t>(dtype.variable)].name;
    case DtypeExpr::Kind::accumulate:
      return std::string("acc(") + decl.dtypes[static_cast<size_t>(dtype.variable)].name + ")";
  }
  return "";
}

ordered_json shapes_json(const OpDecl& decl, const ArgDecl& argument) {
  if (decl.form_param < 0) return argument.shapes[0].text;
  ordered_json shapes = ordered_json::object();
  for (size_t form = 0; form < argument.shapes.size(); ++form) {
    if (argument.shapes[form].kind != core::ShapeDecl::Kind::none) {
      shapes[decl.forms[form]] = argument.shapes[form].text;
    }
  }
  return shapes;
}

// Without a default: the compiler names a domain that is missing here.
const char* domain_text(core::Domain domain) {
  switch (domain) {
    case core::Domain::real:
      return "real";
    case core::Domain::uniform:
      return "uniform";
    case core::Domain::integer:
      return "integer";
    case core::Domain::id:
      return "id";
    case core::Domain::mask:
      return "mask";
    case core::Domain::row_index:
      return "row_index";
    case core::Domain::cu_seqlens:
      return "cu_seqlens";
    case core::Domain::forward:
      return "forward";
    case core::Domain::owner:
      return "owner";
    case core::Domain::length:
      return "length";
    case core::Domain::block_table:
      return "block_table";
  }
  return "";
}

ordered_json argument_json(const OpDecl& decl, const ArgDecl& argument, bool input) {
  ordered_json out = {{"name", argument.name},
                      {"dtype", dtype_text(decl, argument.dtype)},
                      {"shape", shapes_json(decl, argument)},
                      {"optional", argument.optional}};
  if (input) {
    out["domain"] = domain_text(argument.domain.kind);
    out["host_readable"] = argument.host;
  } else {
    ordered_json aliases = ordered_json::array();
    for (const int i : argument.may_alias) aliases.push_back(decl.inputs[static_cast<size_t>(i)].name);
    out["may_alias"] = aliases;
    if (argument.must_alias >= 0) out["must_alias"] = decl.inputs[static_cast<size_t>(argument.must_alias)].name;
    if (!argument.elements.empty()) out["elements"] = ordered_json::array();
    for (const char* name : argument.elements) out["elements"].push_back(name);
  }
  out["meaning"] = argument.doc;
  return out;
}

void add_nan_rules(const OpDecl& decl, const ArgDecl& input, ordered_json& out) {
  if (input.nan.empty()) return;
  out["nan"] = ordered_json::array();
  for (const core::NanRule& rule : input.nan) {
    ordered_json one = {{"when", nullptr}, {"output", nullptr}, {"reach", core::name_of(rule.reach)}};
    if (rule.when.text != nullptr) one["when"] = rule.when.text;
    if (rule.output >= 0) one["output"] = decl.outputs[static_cast<size_t>(rule.output)].name;
    out["nan"].push_back(std::move(one));
  }
  out["nan_text"] = input.nan_text;
  out["hidden_by"] = ordered_json::array();
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    if ((input.domain.hidden_by >> i & 1) != 0) out["hidden_by"].push_back(decl.inputs[i].name);
  }
}

ordered_json param_json(const ParamDecl& param) {
  static constexpr const char* kTypes[] = {"f64", "i64", "enum"};
  ordered_json out = {{"name", param.name}, {"type", kTypes[static_cast<size_t>(param.type)]}};
  if (param.type == ParamType::enumeration) {
    out["values"] = ordered_json::array();
    for (const char* value : param.values) out["values"].push_back(value);
    out["default"] = param.values[static_cast<size_t>(param.default_i64)];
  } else if (param.type == ParamType::f64) {
    out["default"] = param.default_f64;
  } else {
    out["default"] = param.default_i64;
  }
  if (param.has_min) out[param.min_exclusive ? "min_exclusive" : "min"] = param.min;
  out["meaning"] = param.doc;
  return out;
}

ordered_json op_json(const OpDecl& decl) {
  ordered_json out = {{"name", decl.name},
                      {"revision", decl.revision},
                      {"family", decl.family},
                      {"summary", decl.summary},
                      {"formula", decl.formula},
                      {"notes", decl.notes},
                      {"differentiable", decl.backward[0] != 0}};
  out["backward"] = decl.backward[0] != 0 ? ordered_json(decl.backward) : ordered_json(nullptr);
  for (const char* key : {"inputs", "outputs", "params", "dtypes", "symbols", "rules"})
    out[key] = ordered_json::array();
  for (const ArgDecl& argument : decl.inputs) {
    out["inputs"].push_back(argument_json(decl, argument, true));
    add_nan_rules(decl, argument, out["inputs"].back());
  }
  for (const ArgDecl& argument : decl.outputs) out["outputs"].push_back(argument_json(decl, argument, false));
  for (const ParamDecl& param : decl.params) out["params"].push_back(param_json(param));
  out["rounded"] = ordered_json::array();
  for (const core::RoundedDecl& rounded : decl.rounded) {
    out["rounded"].push_back({{"name", rounded.name}, {"source", rounded.source}});
  }
  for (const core::DtypeVariable& variable : decl.dtypes) {
    ordered_json choices = ordered_json::array();
    for (const DtypeExpr& choice : variable.choices) choices.push_back(dtype_text(decl, choice));
    out["dtypes"].push_back({{"name", variable.name}, {"choices", choices}});
  }
  for (const core::SymbolDecl& symbol : decl.symbols) {
    out["symbols"].push_back(
        {{"name", symbol.name}, {"dynamic", symbol.dynamic}, {"min", symbol.min}, {"meaning", symbol.doc}});
  }
  for (const core::RuleDecl& rule : decl.rules) {
    out["rules"].push_back({{"name", rule.name}, {"holds", rule.holds.text}, {"hint", rule.hint}});
  }
  return out;
}

}  // namespace

rlk_status give_text(const std::string& text, char** out, rlk_error* error) {
  *out = static_cast<char*>(std::malloc(text.size() + 1));
  if (*out == nullptr) return core::fail(error, RLK_OUT_OF_MEMORY, "host memory is exhausted");
  std::memcpy(*out, text.c_str(), text.size() + 1);
  return RLK_OK;
}

std::string changes_json(const std::vector<Registrar::Change>& changes) {
  static constexpr const char* kKinds[] = {"added", "replaced", "refused", "retired"};
  ordered_json out = {{"schema", 1}, {"changes", ordered_json::array()}};
  for (const Registrar::Change& change : changes) {
    const PluginRecord& record = change.record;
    out["changes"].push_back({{"plugin", record.id},
                              {"change", kKinds[static_cast<size_t>(change.kind)]},
                              {"version", record.version},
                              {"path", record.path},
                              {"reason_code", record.reason_code},
                              {"reason", record.reason}});
  }
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

namespace {

// A value without others inside of it. Reasons name files, and the bytes of a path need not be UTF-8.
std::string text_of_value(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

using Members = std::vector<std::pair<const char*, std::string>>;

std::string text_of_object(const Members& members, const std::string& indent) {
  std::string out = "{";
  for (const auto& [name, value] : members)
    out += fmt::format("{}\n{}  \"{}\": {}", out.size() > 1 ? "," : "", indent, name, value);
  return out + "\n" + indent + "}";
}

std::string text_of_candidate(const core::Option& option, const core::FallbackBytes& bytes) {
  std::string numerics;
  for (const std::string& name : core::names_of_numerics(option.numerics))
    numerics += (numerics.empty() ? "" : ", ") + text_of_value(name);
  Members members = {{"plugin", text_of_value(option.plugin)},
                     {"implementation", text_of_value(option.implementation)},
                     {"verdict", text_of_value(core::name_of(option.verdict))},
                     {"reason_code", text_of_value(option.reason_code)},
                     {"reason", text_of_value(option.reason)},
                     {"variant", text_of_value(option.variant)},
                     {"numerics", "[" + numerics + "]"},
                     {"cost_us", text_of_value(option.cost_us)},
                     {"measured_us", text_of_value(option.measured_us)},
                     {"staged", text_of_value(option.staged)}};
  if (option.staged) {
    members.emplace_back(
        "staged_cost",
        text_of_object({{"to_host_bytes", text_of_value(bytes.to_host)},
                        {"to_device_bytes", text_of_value(bytes.to_device)},
                        {"copies", text_of_value(bytes.copies)},
                        {"estimated_copy_us", text_of_value(bytes.estimated_us())},
                        {"assumed_bytes_per_s", text_of_value(core::FallbackBytes::kAssumedBytesPerSecond)}},
                       "      "));
  }
  return text_of_object(members, "    ");
}

}  // namespace

// Written piece by piece: a document of nested values needs memory to be destroyed, and a program that has none would
// end there.
std::string explain_json(const core::Explanation& explanation) {
  std::string chosen = "null", candidates;
  for (const core::Option& option : explanation.options) {
    if (option.verdict == core::Verdict::taken) {
      chosen = text_of_object(
          {{"plugin", text_of_value(option.plugin)}, {"implementation", text_of_value(option.implementation)}}, "  ");
    }
    candidates += (candidates.empty() ? "\n    " : ",\n    ") + text_of_candidate(option, explanation.staged);
  }
  std::string out = "{\n  \"schema\": 1,\n  \"op\": " + text_of_value(explanation.op) +
                    ",\n  \"kind\": " + text_of_value(explanation.kind) +
                    fmt::format(",\n  \"sizes\": [{}]", fmt::join(explanation.sizes, ", ")) +
                    ",\n  \"chosen\": " + chosen + ",\n  \"candidates\": [" + candidates +
                    (candidates.empty() ? "]" : "\n  ]");
  if (!explanation.refused.empty()) out += ",\n  \"refused\": " + text_of_value(explanation.refused);
  if (!explanation.fallback.code.empty()) {
    out += ",\n  \"fallback\": " + text_of_object({{"reason_code", text_of_value(explanation.fallback.code)},
                                                   {"reason", text_of_value(explanation.fallback.text)}},
                                                  "  ");
  }
  return out + "\n}";
}

}  // namespace rlk::loader

extern "C" {

void rlk_string_free(char* text) {
  std::free(text);
}

rlk_status rlk_list_json(rlk_runtime* runtime, char** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    const std::string abi = fmt::format("{}.{}", RLK_ABI_MAJOR, RLK_ABI_MINOR);
    return rlk::loader::give_text(
        rlk::loader::list_to_json({rlk::loader::host_version(), abi}, runtime->process->records()), out, error);
  });
}

rlk_status rlk_ops_json(char** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    ordered_json document = {{"schema", 1}, {"ops", ordered_json::array()}};
    for (const OpDecl& decl : rlk::core::declarations()) document["ops"].push_back(rlk::loader::op_json(decl));
    return rlk::loader::give_text(document.dump(2), out, error);
  });
}

}  // extern "C"
