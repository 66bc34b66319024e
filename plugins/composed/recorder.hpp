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

// A value; its number is its place in the graph.
struct Node {
  Word word = Word::input;
  sdk::Dtype dtype = sdk::Dtype::f32;      // boolean: a mask
  std::array<int, 3> from = {-1, -1, -1};  // operands, of those that the word has
  double number = 0;                       // of Word::number, as the dtype keeps it
  View view;                               // of Word::input
  Dims dims;
};

struct Output {
  View view;
  int value;
};

// Rows `first` and following of tensors with so many dimensions, of which the first is `rows`; others are seen whole.
struct Window {
  size_t rank = 0;  // 0: no window
  int64_t rows = 0, first = 0, count = 0;
};

class Recorder {
public:
  // has_f64: whether what asks for fp64 may have it.
  explicit Recorder(bool has_f64 = true, const Window& window = {}) : window_(window), has_f64_(has_f64) {}
  bool has_f64() const { return has_f64_; }
  // Whether a finite number of the call is infinite in fp32, in which the formula was recorded.
  bool has_lost_number() const { return has_lost_number_; }

  // What is absent is its number.
  int input(const View& view, sdk::Dtype number_dtype = sdk::Dtype::f32);
  int number(double value, sdk::Dtype dtype);
  int positions(const Dims& dims, sdk::Dtype dtype);
  int cast(int value, sdk::Dtype dtype);
  // What was computed, as a result of this dtype: from fp64 to 16 bits by way of fp32, whose rounding is far below
  // theirs.
  int rounded(int value, sdk::Dtype dtype);
  int make(Word word, int a) { return step(word, {a, -1, -1}); }
  int make(Word word, int a, int b);
  int select(int mask, int chosen, int other);
  int inverse(int mask);
  // An absent output is not computed. The value is cast to the output's dtype, and repeated to its sizes.
  void output(const View& view, int value);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Output>& outputs() const { return outputs_; }

private:
  const Node& at(int value) const { return nodes_[static_cast<size_t>(value)]; }
  bool is_number(int value) const { return at(value).word == Word::number; }
  bool is_number(int value, double number) const { return is_number(value) && at(value).number == number; }
  View seen(const View& view) const;
  int compare(Word word, int a, int b);
  int step(Word word, std::array<int, 3> from);
  int add(Node node);

  const Window window_;
  const bool has_f64_;
  bool has_lost_number_ = false;
  std::vector<Node> nodes_;
  std::vector<Output> outputs_;
};

}  // namespace rlk::composed
