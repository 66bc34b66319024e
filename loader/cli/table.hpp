// Text for people: aligned columns, wrapped paragraphs, colour on a terminal only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rlk::cli {

enum class Tone : uint8_t { plain, good, caution, bad, faint };

struct Cell {
  std::string text;
  Tone tone = Tone::plain;
  Cell(std::string words, Tone colour = Tone::plain) : text(std::move(words)), tone(colour) {}
  Cell(const char* words, Tone colour = Tone::plain) : text(words), tone(colour) {}
};

// Rows under a header, each column as wide as its widest cell; the last column is not padded. A note line belongs to
// the row before it and stands indented below it, wrapped.
class Table {
public:
  explicit Table(std::vector<std::string> header);
  // Cells of this column are wrapped to so many characters, and those of the last column so that a line has `line`.
  void wrap(size_t column, size_t width, size_t line);
  void row(std::vector<Cell> cells);
  void note(const std::string& text, Tone tone = Tone::faint);
  bool empty() const { return lines_.empty(); }
  // On standard output.
  void print() const;

private:
  struct Line {
    std::vector<Cell> cells;  // one cell: a note
    bool note;
  };
  std::vector<std::string> header_;
  std::vector<Line> lines_;
  std::vector<size_t> limits_;  // of the columns; 0 is none
  size_t line_limit_ = 0;       // of a whole line; 0 is none
};

bool standard_output_is_terminal();
// The text between the terminal's codes for the tone; bare when standard output is not a terminal or NO_COLOR is set.
std::string coloured(std::string_view text, Tone tone);
// How wide a line for people is: as the terminal, at most 110 characters.
size_t line_width();
// Lines of at most `width` characters, each behind `indent` spaces, ending in a newline. Line breaks in `text` stay.
std::string wrapped(std::string_view text, size_t indent, size_t width = line_width());
// core::printable without spaces at its end: text from plugins cannot steer the terminal.
std::string printable(std::string_view text);

// A word of a command that is printed to be copied: in quotes where a shell would take it apart.
std::string shell_word(const std::string& text);

std::string bytes_text(uint64_t bytes);  // "79.2 GiB"

}  // namespace rlk::cli
