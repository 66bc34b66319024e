// A data error in words. What is expected of the values stands in the declaration.
#include "core/dispatch/call/data_error.hpp"

#include <fmt/core.h>

#include <rlk/sdk/immortal.hpp>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace rlk::core {
namespace {

// Inputs that a data error can be of.
bool can_be_wrong(const ArgDecl& input) {
  const Domain kind = input.domain.kind;
  return kind == Domain::id || kind == Domain::row_index || kind == Domain::cu_seqlens || kind == Domain::length ||
         kind == Domain::block_table;
}

bool has_lengths(const ArgDecl& input) {
  return input.domain.kind == Domain::cu_seqlens || input.domain.kind == Domain::length;
}

struct CheckedInputs {
  std::array<uint8_t, kMaxDomainEnds> inputs{};
  size_t count = 0;
};

CheckedInputs checked_inputs(const OpDecl& decl) {
  CheckedInputs checked;
  for (size_t i = 0; i < decl.inputs.size() && checked.count < kMaxDomainEnds; ++i) {
    const ArgDecl& input = decl.inputs[i];
    if (can_be_wrong(input) && input.domain.high.eval != nullptr)
      checked.inputs[checked.count++] = static_cast<uint8_t>(i);
  }
  return checked;
}

// Of every operator.
const std::vector<CheckedInputs>& all_checked_inputs() {
  static const sdk::Immortal<std::vector<CheckedInputs>> all([] {
    std::vector<CheckedInputs> list;
    for (const OpDecl& decl : declarations()) list.push_back(checked_inputs(decl));
    return list;
  }());
  return *all;
}

// A data error in words, for one call.
struct Words {
  const OpDecl& op;
  const DomainEnds* ends;

  // The first input of a domain; nullptr without one.
  const ArgDecl* input_of(Domain domain) const {
    for (const ArgDecl& arg : op.inputs)
      if (arg.domain.kind == domain) return &arg;
    return nullptr;
  }
  // The first or the second input of lengths.
  const ArgDecl* lengths(size_t which) const {
    for (const ArgDecl& arg : op.inputs) {
      if (!has_lengths(arg)) continue;
      if (which == 0) return &arg;
      --which;
    }
    return nullptr;
  }
  // "11 (Tq)" where the call's number is known, else "Tq".
  std::string end_of(const ArgDecl* arg, const char* otherwise) const {
    if (arg == nullptr || arg->domain.high.text == nullptr) return otherwise;
    const std::string_view text = arg->domain.high.text;
    if (ends != nullptr) {
      const CheckedInputs checked = checked_inputs(op);
      for (size_t k = 0; k < checked.count; ++k) {
        if (&op.inputs[checked.inputs[k]] != arg) continue;
        const std::string number = std::to_string((*ends)[k]);
        return number == text ? number : fmt::format("{} ({})", number, text);
      }
    }
    return text_of(arg->domain.high, otherwise);
  }
  // A number or one name needs no brackets.
  static std::string text_of(const Expr& expr, const char* otherwise) {
    if (expr.text == nullptr) return otherwise;
    const std::string_view text = expr.text;
    const bool is_word =
        std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    return is_word ? std::string(text) : fmt::format("({})", text);
  }
};

std::string name_of(const ArgDecl* arg) {
  return arg != nullptr ? fmt::format("'{}'", arg->name) : "an input";
}

bool may_be_integer(const OpDecl& op, const DtypeExpr& expr) {
  if (expr.kind == DtypeExpr::Kind::fixed) return !is_floating(expr.dtype);
  if (expr.kind == DtypeExpr::Kind::accumulate) return false;
  const auto& choices = op.dtypes[static_cast<size_t>(expr.variable)].choices;
  return std::any_of(choices.begin(), choices.end(),
                     [&](const DtypeExpr& choice) { return may_be_integer(op, choice); });
}

// In some output that does not replace an input: integers cannot be NaN.
bool may_give_integers(const OpDecl& op) {
  return std::any_of(op.outputs.begin(), op.outputs.end(),
                     [&](const ArgDecl& output) { return may_be_integer(op, output.dtype); });
}

std::string bad_lengths(const Words& words, const std::string& row, const std::string& value, const ArgDecl* arg) {
  if (arg != nullptr && arg->domain.kind == Domain::length) {
    return fmt::format(
        ": row {} has the length {} in {}; expected 0 <= length <= {}. Correct the length; "
        "the outputs of the row are NaN",
        row, value, name_of(arg), words.end_of(arg, "the end"));
  }
  return fmt::format(
      ": position {} of {} is {}; expected a sequence that starts at 0, "
      "never decreases and ends at {}. Correct the lengths; the whole output is NaN",
      row, name_of(arg), value, words.end_of(arg, "the token count"));
}

}  // namespace

uint32_t make_tag(const OpDecl& decl, uint32_t call_number) {
  const auto index = static_cast<uint32_t>(&decl - declarations().data());
  // 0 stays free: an unwritten record holds it.
  return (index + 1) << kTagCallBits | call_of_tag(call_number);
}

const OpDecl* op_of_tag(uint32_t tag) {
  const uint32_t index = (tag >> kTagCallBits) - 1;
  return index < declarations().size() ? &declarations()[index] : nullptr;
}

void RecentDomainEnds::note(uint32_t tag, const OpDecl& decl, const Values& values) {
  const CheckedInputs& checked = all_checked_inputs()[static_cast<size_t>(&decl - declarations().data())];
  if (checked.count == 0) return;
  Call& call = calls_[next_];
  next_ = (next_ + 1) % calls_.size();
  call.tag = tag;
  for (size_t k = 0; k < checked.count; ++k) call.ends[k] = decl.inputs[checked.inputs[k]].domain.high.eval(values);
}

const DomainEnds* RecentDomainEnds::of(uint32_t tag) const noexcept {
  const auto found = std::find_if(calls_.begin(), calls_.end(), [tag](const Call& call) { return call.tag == tag; });
  return found != calls_.end() ? &found->ends : nullptr;
}

std::string describe(const rlk_data_error& error, const std::string& stream_name, const DomainEnds* ends) {
  const OpDecl* decl = op_of_tag(error.tag);
  static const OpDecl kNone{};
  const OpDecl& op = decl != nullptr ? *decl : kNone;
  const Words words{op, decl != nullptr ? ends : nullptr};
  std::string text = decl != nullptr ? op.name : "an operator of an unknown call";
  const std::string row = std::to_string(error.row), value = std::to_string(error.value);
  const ArgDecl* arg = nullptr;
  bool has_input = true;
  switch (error.kind) {
    case RLK_DATA_ID_OUT_OF_RANGE: {
      arg = words.input_of(Domain::block_table);
      if (arg != nullptr) {
        text += fmt::format(
            ": row {} names the block {} in {}; "
            "expected 0 <= block < {} for as many tokens as its length says. "
            "Correct the block or the length; the outputs of the row are NaN",
            row, value, name_of(arg), words.end_of(arg, "the end"));
        break;
      }
      arg = words.input_of(Domain::id);
      text += fmt::format(": row {} has the id {} in {}", row, value, name_of(arg));
      if (arg != nullptr) {
        text +=
            fmt::format("; expected {} <= id < {}", Words::text_of(arg->domain.low, "0"), words.end_of(arg, "the end"));
        if (arg->domain.ignore_param >= 0) {
          text += std::string(", or ") + op.params[static_cast<size_t>(arg->domain.ignore_param)].name +
                  " to ignore the row";
        }
      }
      text += ". Correct the id; what depends on it is NaN";
      if (may_give_integers(op)) text += ", in integers 0";
      break;
    }
    case RLK_DATA_NO_FINITE_LOGIT:
      has_input = false;
      text += ": every logit of row " + row +
              " is -inf; expected at least one finite logit. Ignore the row or correct its masking; the outputs of the "
              "row are NaN";
      break;
    case RLK_DATA_ROW_OUT_OF_RANGE: {
      arg = words.input_of(Domain::row_index);
      text += fmt::format(": row {} has the row index {} in {}", row, value, name_of(arg));
      if (arg != nullptr) {
        text += "; expected 0 <= index < " + words.end_of(arg, "the end");
        if (arg->domain.increasing) text += ", strictly increasing";
      }
      text += ". Correct the index; the outputs of the row are NaN";
      break;
    }
    case RLK_DATA_BAD_SEQLENS:
    case RLK_DATA_BAD_SECOND_SEQLENS:
      arg = words.lengths(error.kind == RLK_DATA_BAD_SEQLENS ? 0 : 1);
      text += bad_lengths(words, row, value, arg);
      break;
    default:
      has_input = false;
      text += fmt::format(
          ": a data error of the unknown kind {} at row {}, value {}; "
          "expected values inside the declared domain",
          error.kind, row, value);
  }
  // A plugin that reports what the operator cannot have.
  if (has_input && arg == nullptr) text += "; expected no such error, because no input of the operator can have it";
  return fmt::format("{} (stream {}, call {} on it)", text, stream_name, call_of_tag(error.tag));
}

}  // namespace rlk::core
