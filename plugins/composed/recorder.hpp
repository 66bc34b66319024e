// What does a formula do? Run over symbolic values (vocabulary.hpp), it leaves a graph: every value is made once, by
// one word from earlier values. The recorder puts each word in one form, computes what is known already, and finds a
// value again that was made before, so that a program (program.hpp) has nothing to simplify.
//
//   Recorder recorder;
//   const int x = recorder.cast(recorder.input(call.x), Dtype::f32);
//   recorder.output(call.y, recorder.make(Word::multiply, x, recorder.number(2, Dtype::f32)));
//
// Sizes broadcast as in the declarations: aligned at the last dimension, a size of 1 repeated.
#pragma once

#include <array>

#include "view.hpp"
#include "words.hpp"

namespace rlk::composed {

// A number to its last bit: a NaN is itself, and the zeros are two.
uint64_t bits_of(double number);

// Operands of a word, in order; -1 behind the last.
struct From : std::array<int, 5> {
  constexpr From(int a = -1, int b = -1, int c = -1, int d = -1, int e = -1) : std::array<int, 5>{a, b, c, d, e} {}
};

// A value; its number is its place in the graph.
struct Node {
  Word word = Word::input;
  sdk::Dtype dtype = sdk::Dtype::f32;  // boolean: a mask
  From from;
  double number = 0;  // of Word::number, as the dtype keeps it; of Word::report the first row
  // Of Word::shift; of order how many places; of part, rows and join the first; of bits which piece; of sum_rows the
  // axis; of a cast which use it is for; of a number of i64 the integer.
  int64_t by = 0;
  size_t axis = 0;  // of Word::part, and the first of Word::transpose
  View view;        // of Word::input
  Dims dims;
};

struct Output {
  View view;
  int value;
  int64_t first_row = -1;  // of Word::rows: the value's first, else none
  bool is_sum = false;     // over all chunks
};

// Rows `first` and following of tensors with so many dimensions, of which the first is `rows`; others are seen whole.
struct Window {
  size_t rank = 0;  // 0: no window
  int64_t rows = 0, first = 0, count = 0;
};

// Which part of a program in chunks of rows is recorded? A formula is recorded for each part anew, and each takes what
// is its own.
enum class Pass : uint8_t {
  whole,  // a program without chunks, or a window that has nothing from before and leaves nothing
  ahead,  // before the first chunk: Recorder::ahead
  chunk,  // a window
  last    // after the last chunk: what is made of Recorder::collected
};

class Recorder {
public:
  explicit Recorder(const Abilities& abilities = {true}, const Window& window = {}, Pass pass = Pass::whole)
      : window_(window), abilities_(abilities), pass_(pass) {}
  bool has_f64() const { return abilities_.has_f64; }
  bool has_tanh() const { return abilities_.has_tanh; }
  bool rounds_products() const { return abilities_.rounds_products; }
  int64_t block_bytes() const { return abilities_.block_bytes; }
  // Whether a finite number of the call is infinite in fp32, in which the formula was recorded.
  bool has_lost_number() const { return has_lost_number_; }

  // What is absent is its number.
  int input(const View& view, sdk::Dtype number_dtype = sdk::Dtype::f32);
  // Of [sequences, tokens, columns] a matrix, of which each token is a row and chunks are divided from.
  int token_rows(const View& view);
  // An input that no chunk divides, however many rows it has.
  int table(const View& view);
  int number(double value, sdk::Dtype dtype);
  // An i64 to its last bit, to compare ids with.
  int id_number(int64_t value);
  int positions(const Dims& dims, sdk::Dtype dtype);
  // For another use a value is cast anew, so that its memory is free in between.
  int cast(int value, sdk::Dtype dtype, int64_t use = 0);
  // What was computed, as a result of this dtype: from fp64 to 16 bits by way of fp32, whose rounding is far below
  // theirs.
  int rounded(int value, sdk::Dtype dtype);
  int make(Word word, int a) { return step(word, {a, -1, -1}); }
  int make(Word word, int a, int b);
  int select(int mask, int chosen, int other);
  int inverse(int mask);
  // Piece `piece`, the lowest being 0, of each number's memory.
  int bits(int value, sdk::Dtype dtype, int64_t piece);
  int index(int id);
  int whole(int value);
  int gather(int rows, int index);
  int take_rows(int table, int index);
  int take_columns(int rows, int index);
  // Of a table that is an input whose memory is that of the output.
  int put_rows(int table, int index, int rows);
  // A table of these sizes that is `nothing` but where rows are put, of their dtype.
  int placed(const Dims& dims, int nothing, int index, int rows);
  int product(int a, int b);
  int transpose(int value);
  // A dimension and the next in exchanged places.
  int exchange(int value, size_t axis);
  int sum_along(int value, size_t axis);
  int order(int rows, int64_t count);
  // `count` columns from `first` on, seen for every head: of [tokens, columns] what broadcasts to [tokens, heads,
  // count].
  int for_heads(int value, int64_t first, int64_t count);
  int columns(int value, int64_t first, int64_t count);
  // Of a value with these sizes columns from `first` on, beside those that `whole` (-1: none) has so far.
  int join(int whole, int part, int64_t first, const Dims& dims);
  // `count` places of one dimension from `first` on.
  int part(int value, size_t axis, int64_t first, int64_t count);
  // Of each row the number that is `by` places behind.
  int shift(int value, int64_t by);
  // A data error for the first row that a mask has, of one number for each: `unknown` has an id outside the vocabulary
  // (-1: there are no ids), `empty` no finite logit. Of a row in both it is the id.
  void report(int empty, int unknown = -1, int ids = -1) { report(Errors{empty, unknown, ids, -1, -1}); }
  // `misplaced`: of a row that has an id, whose `places` names no row of the table, or not the next one. is_of_all: of
  // all rows, behind the last chunk.
  struct Errors {
    int empty, unknown, ids, misplaced, places;
  };
  void report(const Errors& errors, bool is_of_all = false);
  // The same numbers in other sizes, of a value that no chunk divides.
  int reshape(int value, const Dims& dims);
  // What rows share and is made of all of them: before the first chunk, where there are chunks. is_of_rows: each row
  // has its own of it.
  int ahead(int value, bool is_of_rows = false);
  // What is one for each row and asked for by all: all rows of it behind the last chunk.
  int collected(int value);
  // The sum over all chunks of what each makes of its rows, behind the last.
  int summed(int of_chunk);
  // An absent output is not computed. The value is cast to the output's dtype, and repeated to its sizes.
  void output(const View& view, int value);
  // What no chunk divides and each adds to: the output has the sum so far.
  void sum(const View& view, int value);
  // To [sequences, tokens, columns], of a matrix with a row for each token.
  void output_token_rows(const View& view, int value);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Output>& outputs() const { return outputs_; }

  // What is kept between the parts, by View::index, with the sizes of the whole; the first `collected`, if any.
  const std::vector<View>& kept() const { return kept_; }
  const View* first_collected() const { return collects_ ? &first_collected_ : nullptr; }
  // Whether something is made behind the last chunk.
  bool ends() const { return ends_; }

private:
  const Node& at(int value) const { return nodes_[static_cast<size_t>(value)]; }
  bool is_number(int value) const { return at(value).word == Word::number; }
  bool is_number(int value, double number) const { return is_number(value) && at(value).number == number; }
  View seen(const View& view) const;
  bool is_of_rows(const View& view) const {
    return view.dims.size() == window_.rank && window_.rank > 0 && view.dims[0] == window_.rows;
  }
  View keep(int value, bool is_of_rows);
  int compare(Word word, int a, int b);
  int step(Word word, const From& from);
  int add(Node node);

  const Window window_;
  const Abilities abilities_;
  const Pass pass_;
  bool has_lost_number_ = false;
  bool collects_ = false, ends_ = false;
  View first_collected_;
  std::vector<View> kept_;
  std::vector<Node> nodes_;
  std::vector<Output> outputs_;
};

}  // namespace rlk::composed
