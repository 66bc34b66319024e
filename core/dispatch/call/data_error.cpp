// A data error in words. What is expected of the values stands in the declaration.
#include "core/dispatch/call/data_error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace rlk::core {
namespace {

// The inputs of a domain: "'cu_seqlens_q' or 'cu_seqlens_k'"; the first of them is left in `first`.
std::string inputs_of(const OpDecl& decl, Domain domain, const ArgDecl** first) {
  std::string names;
  for (const ArgDecl& arg : decl.inputs) {
    if (arg.domain.kind != domain) continue;
    if (names.empty()) *first = &arg;
    names += fmt::format("{}'{}'", names.empty() ? "" : " or ", arg.name);
  }
  return names.empty() ? "an input" : names;
}

// A number or one name needs no brackets.
std::string text_of(const Expr& expr, const char* otherwise) {
  if (expr.text == nullptr) return otherwise;
  const std::string_view text = expr.text;
  const bool is_word =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_word ? std::string(text) : fmt::format("({})", text);
}

// Cumulative lengths and lengths of rows have one kind of error: where an operator has both, either may be meant.
std::string bad_lengths(const OpDecl& op, const std::string& row, const std::string& value, const ArgDecl** arg) {
  const ArgDecl *cumulative = nullptr, *lengths = nullptr;
  const std::string names = inputs_of(op, Domain::cu_seqlens, &cumulative);
  const std::string of_rows = inputs_of(op, Domain::length, &lengths);
  std::string text;
  if (lengths != nullptr) {
    text = fmt::format(
        ": row {} has the length {} in {}; expected 0 <= length <= {}. Correct the length; "
        "the outputs of the row are NaN",
        row, value, of_rows, text_of(lengths->domain.high, "the end"));
  }
  if (cumulative != nullptr || lengths == nullptr) {
    text += fmt::format(
        "{} position {} of {} is {}; expected a sequence that starts at 0, "
        "never decreases and ends at {}. Correct the lengths; the whole output is NaN",
        text.empty() ? ":" : "; or", row, names, value,
        cumulative != nullptr ? text_of(cumulative->domain.high, "the token count") : "the token count");
  }
  *arg = cumulative != nullptr ? cumulative : lengths;
  return text;
}

}  // namespace

uint32_t make_tag(const OpDecl& decl, uint32_t call_number) {
  const auto index = static_cast<uint32_t>(&decl - declarations().data());
  // 0 stays free: it is what a record that nobody wrote holds.
  return (index + 1) << kTagCallBits | call_of_tag(call_number);
}

const OpDecl* op_of_tag(uint32_t tag) {
  const uint32_t index = (tag >> kTagCallBits) - 1;
  return index < declarations().size() ? &declarations()[index] : nullptr;
}

std::string describe(const rlk_data_error& error, const std::string& stream_name) {
  const OpDecl* decl = op_of_tag(error.tag);
  static const OpDecl kNone{};
  const OpDecl& op = decl != nullptr ? *decl : kNone;
  std::string text = decl != nullptr ? op.name : "an operator of an unknown call";
  const std::string row = std::to_string(error.row), value = std::to_string(error.value);
  const ArgDecl* arg = nullptr;
  switch (error.kind) {
    case RLK_DATA_ID_OUT_OF_RANGE: {
      const std::string tables = inputs_of(op, Domain::block_table, &arg);
      if (arg != nullptr) {
        text += fmt::format(
            ": row {} names the block {} in {}; "
            "expected 0 <= block < {} for as many tokens as its length says. "
            "Correct the block or the length; the outputs of the row are NaN",
            row, value, tables, text_of(arg->domain.high, "the end"));
        break;
      }
      text += fmt::format(": row {} has the id {} in {}", row, value, inputs_of(op, Domain::id, &arg));
      if (arg != nullptr) {
        text += fmt::format("; expected {} <= id < {}", text_of(arg->domain.low, "0"),
                            text_of(arg->domain.high, "the end"));
        if (arg->domain.ignore_param >= 0) {
          text += std::string(", or ") + op.params[static_cast<size_t>(arg->domain.ignore_param)].name +
                  " to ignore the row";
        }
      }
      text += ". Correct the id; what depends on it is NaN, in integers 0";
      break;
    }
    case RLK_DATA_NO_FINITE_LOGIT:
      text += ": every logit of row " + row +
              " is -inf; expected at least one finite logit. Ignore the row or correct its masking; the outputs of the "
              "row are NaN";
      break;
    case RLK_DATA_ROW_OUT_OF_RANGE: {
      text += fmt::format(": row {} has the row index {} in {}", row, value, inputs_of(op, Domain::row_index, &arg));
      if (arg != nullptr) {
        text += "; expected 0 <= index < " + text_of(arg->domain.high, "the end");
        if (arg->domain.increasing) text += ", strictly increasing";
      }
      text += ". Correct the index; the outputs of the row are NaN";
      break;
    }
    case RLK_DATA_BAD_SEQLENS:
      text += bad_lengths(op, row, value, &arg);
      break;
    default:
      text += fmt::format(
          ": a data error of the unknown kind {} at row {}, value {}; "
          "expected values inside the declared domain",
          error.kind, row, value);
  }
  // A plugin that reports what the operator cannot have.
  const bool has_input = error.kind == RLK_DATA_ID_OUT_OF_RANGE || error.kind == RLK_DATA_ROW_OUT_OF_RANGE ||
                         error.kind == RLK_DATA_BAD_SEQLENS;
  if (has_input && arg == nullptr) text += "; expected no such error, because no input of the operator can have it";
  return fmt::format("{} (stream {}, call {} on it)", text, stream_name, call_of_tag(error.tag));
}

}  // namespace rlk::core
