// Printing of tables and paragraphs.
#include "loader/cli/table.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/declaration/text.hpp"
#include "loader/cli/output.hpp"

namespace rlk::cli {
namespace {

// Columns on the terminal: UTF-8 continuation bytes take none.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

constexpr size_t kWidestLine = 110, kNarrowestLine = 40;
constexpr size_t kNarrowestColumn = 24;  // a last column is not squeezed further

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), output());
}

// The lines of a cell that has at most so many characters in each; 0: one line.
std::vector<std::string> pieces_of(const std::string& text, size_t limit) {
  if (limit == 0 || width_of(text) <= limit) return {text};
  std::vector<std::string> pieces;
  const std::string lines = wrapped(text, 0, limit);
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    pieces.push_back(lines.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

}  // namespace

bool standard_output_is_terminal() {
  return isatty(output_number()) == 1;
}

std::string coloured(std::string_view text, Tone tone) {
  static const bool colours = standard_output_is_terminal() && std::getenv("NO_COLOR") == nullptr;
  static constexpr const char* kCodes[] = {"", "\033[32m", "\033[33m", "\033[31m", "\033[2m"};
  if (!colours || tone == Tone::plain) return std::string(text);
  return fmt::format("{}{}\033[0m", kCodes[static_cast<size_t>(tone)], text);
}

std::string printable(std::string_view text) {
  std::string out = core::printable(text);
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

size_t line_width() {
  winsize size = {};
  if (ioctl(output_number(), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kWidestLine;
  return std::clamp<size_t>(size.ws_col, kNarrowestLine, kWidestLine);
}

std::string wrapped(std::string_view text, size_t indent, size_t width) {
  const std::string margin(indent, ' ');
  std::string out;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = printable(text.substr(begin, end - begin));
    begin = end + 1;
    while (indent + line.size() > width) {
      // At the last space that fits; a word longer than the line (a path) stays whole.
      size_t cut = line.rfind(' ', width - indent);
      if (cut == std::string::npos || cut == 0) cut = line.find(' ', width - indent);
      if (cut == std::string::npos || cut == 0) break;
      out += margin + line.substr(0, cut) + "\n";
      line.erase(0, cut + 1);
    }
    out += margin + line + "\n";
  }
  return out;
}

std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("-_./=,+:", c) != nullptr; };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string bytes_text(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < std::size(kUnits); ++unit) value /= 1024.0;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

void Table::row(std::vector<Cell> cells) {
  for (Cell& cell : cells) cell.text = cell.text.empty() ? "-" : printable(cell.text);
  lines_.push_back({std::move(cells), false});
}

void Table::note(const std::string& text, Tone tone) {
  lines_.push_back({{Cell(text, tone)}, true});
}

void Table::wrap(size_t column, size_t width, size_t line) {
  limits_.resize(header_.size());
  limits_[column] = width;
  line_limit_ = line;
}

void Table::print() const {
  std::vector<size_t> widths;
  for (const std::string& title : header_) widths.push_back(title.size());
  const auto limit_of = [&](size_t column) {
    if (limits_.empty()) return size_t{0};
    if (column + 1 < header_.size()) return limits_[column];
    size_t before = 0;
    for (size_t i = 0; i < column; ++i) before += widths[i] + 2;
    return std::max(line_limit_, before + kNarrowestColumn) - before;
  };
  // By column and not by row: what is left for the last one follows from the others.
  std::vector<std::vector<std::vector<std::string>>> pieces(lines_.size());
  for (size_t i = 0; i < widths.size(); ++i) {
    for (size_t row = 0; row < lines_.size(); ++row) {
      if (lines_[row].note || i >= lines_[row].cells.size()) continue;
      pieces[row].push_back(pieces_of(lines_[row].cells[i].text, limit_of(i)));
      for (const std::string& piece : pieces[row].back()) widths[i] = std::max(widths[i], width_of(piece));
    }
  }
  const auto put = [&](size_t column, size_t columns, std::string_view text, Tone tone) {
    cli::print(coloured(text, tone));
    if (column + 1 == columns) return cli::print("\n");
    cli::print(std::string(widths[column] - width_of(text) + 2, ' '));
  };
  for (size_t i = 0; i < header_.size(); ++i) put(i, header_.size(), header_[i], Tone::faint);
  for (size_t row = 0; row < lines_.size(); ++row) {
    const Line& line = lines_[row];
    if (line.note) {
      cli::print(coloured(wrapped(line.cells[0].text, 4), line.cells[0].tone));
      continue;
    }
    size_t height = 0;
    for (const auto& cell : pieces[row]) height = std::max(height, cell.size());
    for (size_t below = 0; below < height; ++below) {
      // A line ends with the last cell that has anything in it.
      size_t columns = pieces[row].size();
      while (columns > 0 && below >= pieces[row][columns - 1].size()) --columns;
      for (size_t i = 0; i < columns; ++i) {
        const auto& cell = pieces[row][i];
        put(i, columns, below < cell.size() ? cell[below] : std::string(), line.cells[i].tone);
      }
    }
  }
}

}  // namespace rlk::cli
