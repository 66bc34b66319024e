// `rlk-plugins ops`: the operators as their declarations state them.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "core/declaration/extremes.hpp"
#include "loader/cli/call.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/session.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"

namespace rlk::cli {
namespace {

using core::ArgDecl;
using core::DtypeExpr;
using core::OpDecl;
using core::ParamType;

std::string dtype_text(const OpDecl& decl, const DtypeExpr& expr) {
  if (expr.kind == DtypeExpr::Kind::fixed) return core::name_of(expr.dtype);
  const std::string variable = decl.dtypes[static_cast<size_t>(expr.variable)].name;
  return expr.kind == DtypeExpr::Kind::variable ? variable : "acc(" + variable + ")";
}

std::string choices_text(const OpDecl& decl, const core::DtypeVariable& variable) {
  std::string text;
  for (const DtypeExpr& choice : variable.choices) text += (text.empty() ? "" : " ") + dtype_text(decl, choice);
  return text;
}

std::string shapes_text(const OpDecl& decl, const ArgDecl& arg) {
  const auto& first = arg.shapes[0];
  const bool same = std::all_of(arg.shapes.begin(), arg.shapes.end(), [&](const core::ShapeDecl& shape) {
    return shape.kind != core::ShapeDecl::Kind::none && std::string_view(shape.text) == first.text;
  });
  if (same) return first.text;
  std::string text;
  for (size_t form = 0; form < arg.shapes.size(); ++form) {
    if (arg.shapes[form].kind == core::ShapeDecl::Kind::none) continue;
    const std::string name = arg.shapes.size() > 1 ? std::string(decl.forms[form]) + " " : "";
    text += (text.empty() ? "" : ", ") + name + arg.shapes[form].text;
  }
  return text;
}

std::string default_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

// "at least 0 where kl_kind != k1"
std::string limits_text(const OpDecl& decl, const ArgDecl& output) {
  const core::Limits limits = core::limits_of(decl.name, output.name);
  std::string text;
  if (std::isfinite(limits.at_least)) text = "at least " + default_text(limits.at_least);
  if (limits.when.text != nullptr) text += std::string(" where ") + limits.when.text;
  if (std::isfinite(limits.at_most)) text += (text.empty() ? "at most " : ", at most ") + default_text(limits.at_most);
  return text;
}

// A terminal's width; for a file or a pipe what declarations keep to.
size_t line() {
  constexpr size_t kOfDeclarations = 130;
  return isatty(output_number()) != 0 ? line_width() : kOfDeclarations;
}

void print_arguments(const OpDecl& decl, bool inputs) {
  Table table({inputs ? "input" : "output", "dtype", "shape", "", "meaning"});
  for (const ArgDecl& arg : inputs ? decl.inputs : decl.outputs) {
    std::string remarks = arg.optional ? "optional" : "required";
    if (arg.host) remarks += ", host readable";
    for (const int input : arg.may_alias)
      remarks += std::string(", may be ") + decl.inputs[static_cast<size_t>(input)].name;
    if (const std::string limits = inputs ? "" : limits_text(decl, arg); !limits.empty()) remarks += ", " + limits;
    if (arg.must_alias >= 0) {
      remarks += std::string(", written over ") + decl.inputs[static_cast<size_t>(arg.must_alias)].name;
    }
    table.row({arg.name, dtype_text(decl, arg.dtype), shapes_text(decl, arg), remarks, arg.doc});
  }
  const bool narrow = line() < 110;
  table.wrap(2, narrow ? 16 : 44, line());
  table.wrap(3, narrow ? 10 : 26, line());
  table.print();
  for (const ArgDecl& arg : inputs ? decl.inputs : decl.outputs) {
    std::string names;
    for (size_t i = 0; i < arg.elements.size(); ++i)
      names += (i > 0 ? ", " : "") + fmt::format("{} {}", i, arg.elements[i]);
    if (!names.empty())
      std::fprintf(output(), "%s", wrapped(fmt::format("{}: {}", arg.name, names), 2, line()).c_str());
  }
  std::fprintf(output(), "\n");
}

void print_nan_rules(const OpDecl& decl) {
  std::fprintf(output(), "A NaN in one element of an input makes NaN what depends on that element:\n");
  for (const ArgDecl& input : decl.inputs) {
    if (input.nan.empty()) continue;
    const std::string text = fmt::format("{}: {}", input.name, core::nan_words(decl, input));
    std::fprintf(output(), "%s", wrapped(text, 2, line()).c_str());
  }
  std::fprintf(output(), "\n");
}

void print_params(const OpDecl& decl) {
  Table table({"parameter", "values", "default", "meaning"});
  for (const core::ParamDecl& param : decl.params) {
    const bool real = param.type == ParamType::f64;
    std::string values = real ? "real" : "integer";
    std::string otherwise = real ? default_text(param.default_f64) : std::to_string(param.default_i64);
    if (param.type == ParamType::enumeration) {
      values.clear();
      for (const char* value : param.values) values += (values.empty() ? "" : " | ") + std::string(value);
      otherwise = param.values[static_cast<size_t>(param.default_i64)];
    }
    if (param.has_min) values += (param.min_exclusive ? " > " : " >= ") + default_text(param.min);
    table.row({param.name, values, otherwise, param.doc});
  }
  if (table.empty()) return;
  table.wrap(1, line() < 110 ? 20 : 38, line());
  table.print();
  std::fprintf(output(), "\n");
}

bool uses_accumulator(const OpDecl& decl) {
  bool used = false;
  for (const auto* arguments : {&decl.inputs, &decl.outputs})
    for (const ArgDecl& arg : *arguments) used |= arg.dtype.kind == DtypeExpr::Kind::accumulate;
  for (const core::DtypeVariable& variable : decl.dtypes)
    for (const DtypeExpr& choice : variable.choices) used |= choice.kind == DtypeExpr::Kind::accumulate;
  return used;
}

void print_op(const OpDecl& decl) {
  std::fprintf(output(), "%s, revision %u, %s\n%s\n%s\n%s\n", decl.name, decl.revision, decl.family,
               wrapped(decl.summary, 0, line()).c_str(), wrapped(decl.formula, 2, line()).c_str(),
               wrapped(decl.notes, 2, line()).c_str());
  print_arguments(decl, true);
  print_arguments(decl, false);
  print_nan_rules(decl);
  print_params(decl);

  Table sizes({"size", "", "meaning"});
  for (const core::SymbolDecl& symbol : decl.symbols) {
    std::string remarks = symbol.min > 0 ? fmt::format("at least {}", symbol.min) : "may be 0";
    if (symbol.dynamic) remarks += ", dynamic";
    if (symbol.form >= 0) remarks += std::string(", ") + decl.forms[static_cast<size_t>(symbol.form)];
    sizes.row({symbol.name, remarks, symbol.doc});
  }
  if (!sizes.empty()) {
    sizes.print();
    std::fprintf(output(), "\n");
  }

  for (const core::DtypeVariable& variable : decl.dtypes)
    std::fprintf(output(), "dtype %s: %s\n", variable.name, choices_text(decl, variable).c_str());
  if (uses_accumulator(decl)) std::fprintf(output(), "acc(T): f32, or f64 where T is f64\n");
  for (const core::RuleDecl& rule : decl.rules) {
    const std::string holds = fmt::format("rule {}: {}", rule.name, rule.holds.text);
    const std::string hint = "(" + std::string(rule.hint) + ")";
    if (holds.size() + 1 + hint.size() <= line()) {
      std::fprintf(output(), "%s %s\n", holds.c_str(), hint.c_str());
    } else {
      std::fprintf(output(), "%s%s", wrapped(holds, 0, line()).c_str(), wrapped(hint, 4, line()).c_str());
    }
  }
  for (const core::RoundedDecl& rounded : decl.rounded) {
    std::fprintf(
        output(), "%s",
        wrapped(fmt::format("may be rounded to a 16-bit T: {}, {}", rounded.name, rounded.source), 0, line()).c_str());
  }
  if (*decl.backward != 0) std::fprintf(output(), "backward: %s\n", decl.backward);
  for (const char* source : decl.sources)
    std::fprintf(output(), "%s", wrapped("source: " + std::string(source), 0, line()).c_str());
}

int print_json(const std::string& only) {
  rlk_error error = RLK_ERROR_INIT;
  char* text = nullptr;
  check(rlk_ops_json(&text, &error), error);
  const std::string document = take_text(text);
  if (only.empty()) {
    std::fprintf(output(), "%s\n", document.c_str());
    return kFine;
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::parse(document);
  nlohmann::ordered_json kept = nlohmann::ordered_json::array();
  for (auto& op : all.at("ops"))
    if (op.at("name") == only) kept.push_back(std::move(op));
  all["ops"] = std::move(kept);
  std::fprintf(output(), "%s\n", all.dump().c_str());
  return kFine;
}

int run_ops(const Arguments& arguments) {
  const std::string name = arguments.operand(0);
  if (!name.empty()) find_op(name);
  if (arguments.json()) return print_json(name);
  if (!name.empty()) {
    print_op(find_op(name));
    return kFine;
  }
  std::vector<const OpDecl*> sorted;
  for (const OpDecl& decl : core::declarations()) sorted.push_back(&decl);
  std::sort(sorted.begin(), sorted.end(), [](const OpDecl* a, const OpDecl* b) {
    return std::tuple(std::string_view(a->family), std::string_view(a->name)) <
           std::tuple(std::string_view(b->family), std::string_view(b->name));
  });
  Table table({"operator", "family", "summary"});
  for (const OpDecl* decl : sorted) table.row({decl->name, decl->family, decl->summary});
  if (isatty(output_number()) != 0) table.wrap(2, 0, line());  // a file or a pipe has one line for each operator
  table.print();
  return kFine;
}

}  // namespace

Verb verb_ops() {
  return {"ops",
          "The operators, or one of them in full: formula, arguments, parameters, rules.",
          "Of an operator: T, I, O and the like stand for dtypes, listed below the tables. A dynamic size may be "
          "another in\n"
          "every call without new planning. A call that breaks a rule is refused.",
          "rlk-plugins ops logp",
          {{"OP", false}},
          {},
          run_ops};
}

}  // namespace rlk::cli
