// Words once, then numbers: std::from_chars and one pass.
#include "loader/store/unit_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace rlk::loader {
namespace {

using core::UnitResult;

constexpr size_t kMostBytes = size_t{256} << 20;  // of the words of all units together, each as often as it is named
constexpr size_t kDigits = 8;                     // of a size class

class Writer {
public:
  // In the order of Reader::unit.
  void unit(const UnitResult& unit) {
    for (const std::string* text :
         {&unit.op, &unit.implementation, &unit.dtype, &unit.feature, &unit.variant, &unit.reason_code, &unit.reason})
      word(*text);
    std::string classes(unit.size_classes.size() * kDigits, '0');
    for (size_t i = 0; i < unit.size_classes.size(); ++i) {
      char digits[kDigits];
      const char* const end = std::to_chars(digits, digits + kDigits, unit.size_classes[i], 16).ptr;
      std::copy(digits, const_cast<char*>(end), classes.data() + (i + 1) * kDigits - (end - digits));
    }
    word(classes);
    number(static_cast<int>(unit.verdict));
    number(unit.numerics);
    number(unit.cases);
    number(unit.worst_error_ratio);
    number(unit.worst_error_ulp);
    lines_.back() = '\n';
    ++units_;
  }

  std::string text() const { return fmt::format("{} {}\n{}{}", places_.size(), units_, words_, lines_); }

private:
  void word(const std::string& text) {
    const auto [place, is_new] = places_.try_emplace(text, places_.size());
    if (is_new) words_ += fmt::format("{}:{}\n", text.size(), text);
    number(place->second);
  }
  template <class Number>
  void number(Number value) {
    char digits[32];
    lines_.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
    lines_ += ' ';
  }

  std::unordered_map<std::string, size_t> places_;
  std::string words_;
  std::string lines_;
  size_t units_ = 0;
};

class Reader {
public:
  explicit Reader(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool run(std::vector<UnitResult>* units) {
    size_t n_words = 0, n_units = 0;
    // A word takes at least "0:\n" and a unit more: what the text has no room for is not reserved.
    if (!number(&n_words, ' ') || !number(&n_units, '\n') || n_words > left() / 3) return false;
    words_.reserve(n_words);
    for (size_t i = 0; i < n_words; ++i)
      if (!word()) return false;
    if (n_units > left() / 26) return false;
    units->reserve(n_units);
    for (size_t i = 0; i < n_units; ++i)
      if (!unit(&units->emplace_back())) return false;
    return at_ == end_;
  }

private:
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  bool skip(char expected) {
    if (at_ == end_ || *at_ != expected) return false;
    ++at_;
    return true;
  }

  template <class Number>
  bool number(Number* out, char after) {
    const auto [last, error] = std::from_chars(at_, end_, *out);
    at_ = last;
    return error == std::errc() && skip(after);
  }

  bool word() {
    size_t bytes = 0;
    if (!number(&bytes, ':') || bytes > left()) return false;
    words_.emplace_back(at_, bytes);
    at_ += bytes;
    return skip('\n');
  }

  bool place(std::string_view* out) {
    size_t place = 0;
    if (!number(&place, ' ') || place >= words_.size()) return false;
    *out = words_[place];
    room_ -= std::min(room_, out->size());
    return room_ > 0;
  }

  bool unit(UnitResult* unit) {
    std::string_view text;
    for (std::string* out : {&unit->op, &unit->implementation, &unit->dtype, &unit->feature, &unit->variant,
                             &unit->reason_code, &unit->reason}) {
      if (!place(&text)) return false;
      *out = text;
    }
    int verdict = -1;
    if (!place(&text) || !classes(text, &unit->size_classes) || !number(&verdict, ' ')) return false;
    unit->verdict = static_cast<UnitResult::Verdict>(verdict);
    return !unit->op.empty() && verdict >= 0 && verdict <= static_cast<int>(UnitResult::Verdict::declined) &&
           number(&unit->numerics, ' ') && number(&unit->cases, ' ') && number(&unit->worst_error_ratio, ' ') &&
           number(&unit->worst_error_ulp, '\n');
  }

  static bool classes(std::string_view text, std::vector<uint32_t>* out) {
    out->resize(text.size() / kDigits);
    const char* at = text.data();
    for (uint32_t& number : *out) {
      const auto [last, error] = std::from_chars(at, at + kDigits, number, 16);
      at += kDigits;
      if (last != at || error != std::errc()) return false;
    }
    return text.size() % kDigits == 0;
  }

  const char* at_;
  const char* const end_;
  size_t room_ = kMostBytes;
  std::vector<std::string_view> words_;
};

}  // namespace

std::string units_to_text(const std::vector<UnitResult>& units) {
  Writer writer;
  for (const UnitResult& unit : units) writer.unit(unit);
  return writer.text();
}

bool units_from_text(std::string_view text, std::vector<UnitResult>* units, std::string* error) {
  Reader reader(text);
  std::vector<UnitResult> read;
  if (!reader.run(&read)) {
    *error = "the units are damaged, or of another version";
    return false;
  }
  *units = std::move(read);
  return true;
}

}  // namespace rlk::loader
