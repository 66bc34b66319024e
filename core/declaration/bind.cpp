// Parameters, presence and rules: the part of a call's check that knows no tensor's dtype or shape.
#include "core/declaration/bind.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/declaration/error.hpp"

namespace rlk::core {

std::string text_of_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  double back = 0;
  char shorter[32];
  std::snprintf(shorter, sizeof(shorter), "%g", value);
  if (std::sscanf(shorter, "%lf", &back) == 1 && back == value) return shorter;
  return text;
}

std::string Binder::name_of_argument(const ArgDecl& arg, bool output) {
  return fmt::format("{} '{}'", output ? "output" : "input", arg.name);
}

rlk_status Binder::refuse(const std::string& text) const {
  return fail(error_, RLK_INVALID_ARGUMENT, fmt::format("{}: {}", decl_.name, text));
}

// ---- parameters

rlk_status Binder::bind_params(const void* params, std::span<std::byte> storage) {
  constexpr uint32_t kHeader = 2 * sizeof(uint32_t);  // struct_size, reserved
  const auto what = [&] { return "rlk_" + std::string(decl_.name) + "_params"; };
  if (params == nullptr) {
    call_.params = decl_.defaults;
  } else {
    uint32_t header[2];
    std::memcpy(header, params, sizeof(header[0]));
    if (header[0] < kHeader || header[0] % 8 != 0) {
      return refuse(
          fmt::format("{}.struct_size is {}; expected a whole struct, such as {}. Start from RLK_..._PARAMS_INIT",
                      what(), header[0], decl_.params_size));
    }
    // Every byte of the size is read: a size that was never set must not lead beyond the caller's memory.
    if (header[0] > kMaxParamsBytes) {
      return refuse(
          fmt::format("{}.struct_size is {}; expected at most {}, which the parameters of no version exceed. "
                      "Start from RLK_..._PARAMS_INIT",
                      what(), header[0], kMaxParamsBytes));
    }
    std::memcpy(header, params, sizeof(header));
    if (header[1] != 0) {
      return refuse(fmt::format("{}.reserved is {}; expected 0. Start from RLK_..._PARAMS_INIT", what(), header[1]));
    }
    const auto* bytes = static_cast<const std::byte*>(params);
    for (uint32_t i = decl_.params_size; i < header[0]; ++i) {
      if (bytes[i] != std::byte{0}) {
        return refuse(
            fmt::format("{} is {} bytes long and byte {} is not 0; "
                        "expected zeros beyond the {} bytes that this version of rlk knows. "
                        "Leave that parameter at its default or use a newer rlk",
                        what(), header[0], i, decl_.params_size));
      }
    }
    call_.params = params;
    if (header[0] != decl_.params_size) {
      if (storage.size() < decl_.params_size) {
        return failf(error_, RLK_INTERNAL, "%s: %zu bytes to complete parameters of %u", decl_.name, storage.size(),
                     decl_.params_size);
      }
      std::memcpy(storage.data(), decl_.defaults, decl_.params_size);
      if (header[0] > kHeader) {
        std::memcpy(storage.data() + kHeader, bytes + kHeader, std::min(header[0], decl_.params_size) - kHeader);
      }
      call_.params = storage.data();
    }
  }
  for (const ParamDecl& param : decl_.params) {
    if (const rlk_status status = check_param(param); status != RLK_OK) return status;
  }
  if (decl_.form_param >= 0) {
    call_.form = static_cast<int>(call_.values().i64(decl_.params[static_cast<size_t>(decl_.form_param)].offset));
  }
  return RLK_OK;
}

rlk_status Binder::check_param(const ParamDecl& param) const {
  const auto refuse_value = [&](const std::string& seen, const std::string& expected) {
    return refuse(fmt::format("parameter '{}' is {}; expected {} ({})", param.name, seen, expected, param.doc));
  };
  const Values values = call_.values();
  if (param.type == ParamType::f64) {
    const double value = values.f64(param.offset);
    if (std::isnan(value) || (param.finite && std::isinf(value))) {
      return refuse_value(text_of_number(value), param.finite ? "a finite number" : "a number or infinity");
    }
    if (param.has_min && !(param.min_exclusive ? value > param.min : value >= param.min)) {
      return refuse_value(text_of_number(value),
                          (param.min_exclusive ? "more than " : "at least ") + text_of_number(param.min));
    }
    return RLK_OK;
  }
  const int64_t value = values.i64(param.offset);
  if (param.type == ParamType::enumeration) {
    if (value >= 0 && value < static_cast<int64_t>(param.values.size())) return RLK_OK;
    std::string expected;
    for (size_t i = 0; i < param.values.size(); ++i) {
      expected += (i == 0                         ? ""
                   : i + 1 == param.values.size() ? " or "
                                                  : ", ") +
                  fmt::format("{} ({})", i, param.values[i]);
    }
    return refuse_value(std::to_string(value), expected);
  }
  const auto bound = static_cast<int64_t>(param.min);
  if (param.has_min && !(param.min_exclusive ? value > bound : value >= bound)) {
    return refuse_value(std::to_string(value),
                        fmt::format("{} {}", param.min_exclusive ? "more than" : "at least", bound));
  }
  return RLK_OK;
}

// ---- presence

rlk_status Binder::bind_presence(uint64_t wanted_outputs) {
  if (const rlk_status status = bind_presence_of(decl_.inputs, inputs_, false); status != RLK_OK) return status;
  if (!infer_) {
    const rlk_status status = bind_presence_of(decl_.outputs, outputs_, true);
    return status == RLK_OK ? check_presence_in_place() : status;
  }
  for (size_t i = 0; i < decl_.outputs.size(); ++i) {
    const ArgDecl& arg = decl_.outputs[i];
    const bool of_form = arg.form < 0 || arg.form == call_.form;
    bool wanted = !arg.optional || (wanted_outputs >> i & 1) != 0;
    if (arg.must_alias >= 0) wanted = call_.values().has(arg.must_alias);
    if (of_form && wanted) call_.present |= uint64_t{1} << (32 + i);
  }
  return RLK_OK;
}

// An output in the memory of an optional input is there exactly when that input is.
rlk_status Binder::check_presence_in_place() const {
  for (size_t i = 0; i < decl_.outputs.size(); ++i) {
    const ArgDecl& arg = decl_.outputs[i];
    if (arg.must_alias < 0) continue;
    const bool input = call_.values().has(arg.must_alias), output = call_.values().has(32 + static_cast<int>(i));
    if (input == output) continue;
    const std::string over = name_of_argument(decl_.inputs[static_cast<size_t>(arg.must_alias)], false);
    return refuse(
        fmt::format("{} is {} and {} is {}; expected both or neither: "
                    "the output is written in the memory of the input. Pass one tensor in both places",
                    name_of_argument(arg, true), output ? "given" : "missing", over, input ? "given" : "missing"));
  }
  return RLK_OK;
}

rlk_status Binder::bind_presence_of(std::span<const ArgDecl> args, Tensors given, bool output) {
  for (size_t i = args.size(); i < given.size(); ++i) {
    if (given[i] != nullptr) {
      return refuse(fmt::format("{} {} are passed; expected at most {} {}. Entries beyond that must be NULL",
                                given.size(), output ? "outputs" : "inputs", args.size(),
                                output ? "outputs" : "inputs"));
    }
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const ArgDecl& arg = args[i];
    const bool present = tensor(output, i) != nullptr;
    const bool of_form = arg.form < 0 || arg.form == call_.form;
    const ShapeDecl& shape = arg.shapes[static_cast<size_t>(call_.form)];
    if (present && (!of_form || shape.kind == ShapeDecl::Kind::none)) {
      const std::string selector = decl_.params[static_cast<size_t>(decl_.form_param)].name;
      std::string text =
          fmt::format("{} is given; expected NULL, because {}={} does not have it.", name_of_argument(arg, output),
                      selector, decl_.forms[static_cast<size_t>(call_.form)]);
      if (arg.form >= 0)
        text += fmt::format(" Set {}={} to use it", selector, decl_.forms[static_cast<size_t>(arg.form)]);
      return refuse(text);
    }
    if (!present && of_form && shape.kind != ShapeDecl::Kind::none && !arg.optional) {
      return refuse(fmt::format("{} is missing (NULL); expected a tensor of dtype {} and shape {} ({})",
                                name_of_argument(arg, output), expected_dtypes(arg), shape.text, arg.doc));
    }
    if (present) call_.present |= uint64_t{1} << (output ? 32 + i : i);
  }
  return RLK_OK;
}

// ---- rules

std::string Binder::seen_in(std::string_view text) const {
  std::string seen;
  const auto add = [&](const std::string& pair) { seen += (seen.empty() ? "" : ", ") + pair; };
  const auto is_word = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
  };
  std::string done = ",";
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string word(text.substr(begin, end - begin));
    begin = end + (end == begin ? 1 : 0);
    if (word.empty() || done.find("," + word + ",") != std::string::npos) continue;
    done += word + ",";
    const Values values = call_.values();
    for (size_t i = 0; i < decl_.symbols.size(); ++i) {
      if (word == decl_.symbols[i].name) add(fmt::format("{} = {}", word, call_.symbols[i]));
    }
    for (const ParamDecl& param : decl_.params) {
      if (word != param.name) continue;
      const bool named = param.type == ParamType::enumeration;  // and in range, which bind_params has checked
      add(fmt::format("{} = {}", word,
                      param.type == ParamType::f64 ? text_of_number(values.f64(param.offset))
                      : named ? std::string(param.values[static_cast<size_t>(values.i64(param.offset))])
                              : std::to_string(values.i64(param.offset))));
    }
    const auto add_presence = [&](std::span<const ArgDecl> args, int first_bit) {
      for (size_t i = 0; i < args.size(); ++i) {
        if (word == args[i].name) add(word + (values.has(first_bit + static_cast<int>(i)) ? " given" : " absent"));
      }
    };
    if (text.find("has(" + word + ")") == std::string_view::npos) continue;
    add_presence(decl_.inputs, 0);
    add_presence(decl_.outputs, 32);
  }
  return seen;
}

rlk_status Binder::check_rules() {
  for (const RuleDecl& rule : decl_.rules) {
    if (rule.holds.eval(call_.values()) != 0) continue;
    return refuse(fmt::format("rule '{}' is broken: seen {}; expected {}; {}", rule.name, seen_in(rule.holds.text),
                              rule.holds.text, rule.hint));
  }
  return RLK_OK;
}

}  // namespace rlk::core
