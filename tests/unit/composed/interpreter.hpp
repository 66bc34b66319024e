// A vendor that computes on the host, in fp32 and in integers, in two characters: one takes any strides and lets every
// operand repeat, one wants dense tensors of the output's sizes and no numbers. What is not written yet is NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "plugins/composed/program.hpp"

namespace composed_test {

using namespace rlk::composed;
using rlk::sdk::Dtype;

inline Primitives vendor(bool is_strict, uint64_t workspace_bytes = ~uint64_t{0}) {
  Primitives all{"the interpreter", {}, 64, workspace_bytes};
  const Dtypes both = {Dtype::f32, Dtype::boolean};
  for (int w = static_cast<int>(Word::copy); w <= static_cast<int>(Word::sum_rows); ++w) {
    const auto word = static_cast<Word>(w);
    Primitive one{word, false, name_of(word), true, both};
    one.repeats = is_strict ? 0 : 0b111;
    one.takes_strides = !is_strict || word == Word::copy;
    one.in_place = word == Word::put_rows ||
                   (!is_reduction(word) && !is_lookup(word) && word != Word::copy && word != Word::expand);
    all.table.push_back(one);
    if (is_strict || word < Word::add || word > Word::not_equal || word == Word::subtract) continue;
    one.has_number = true;
    all.table.push_back(one);
  }
  return all;
}

// The same with integers, which it casts to and from.
inline Primitives vendor_of_integers(bool is_strict) {
  Primitives all = vendor(is_strict);
  for (Primitive& one : all.table)
    one.dtypes = one.to = {Dtype::f32, Dtype::boolean, Dtype::i64, Dtype::i32, Dtype::u8};
  Primitive cast = all.table[0];
  cast.word = Word::cast;
  cast.in_place = false;
  cast.takes_strides = !is_strict;
  all.table.push_back(cast);
  return all;
}

class Interpreter {
public:
  Interpreter(const Primitives& primitives, const std::vector<std::vector<float>*>& inputs,
              const std::vector<std::vector<float>*>& outputs)
      : primitives_(primitives) {
    for (std::vector<float>* input : inputs) inputs_.push_back(reinterpret_cast<std::byte*>(input->data()));
    for (std::vector<float>* output : outputs) outputs_.push_back(reinterpret_cast<std::byte*>(output->data()));
  }
  // Of tensors of any dtypes.
  struct Tensors {
    std::vector<std::byte*> inputs, outputs;
  };
  Interpreter(const Primitives& primitives, Tensors tensors)
      : primitives_(primitives), inputs_(std::move(tensors.inputs)), outputs_(std::move(tensors.outputs)) {}

  void run(const Program& program) {
    workspace_.assign(program.workspace_bytes, std::byte{0xff});
    for (const Step& step : program.steps) run(step);
  }

private:
  std::byte* first(const Operand& operand) {
    std::byte* start = operand.place == Operand::Place::workspace ? workspace_.data()
                       : operand.place == Operand::Place::input   ? inputs_[operand.index]
                                                                  : outputs_[operand.index];
    return start + operand.byte_offset;
  }
  // Whose number `at` of the sizes `dims` is; sizes of 1 repeat.
  std::byte* element(const Operand& operand, const Dims& dims, int64_t at) {
    int64_t offset = 0;
    for (size_t i = dims.size(); i-- > 0; at /= dims[i]) {
      if (operand.dims[i] != 1) offset += at % dims[i] * operand.strides[i];
    }
    return first(operand) + offset * rlk::sdk::bytes_of(operand.dtype);
  }
  float load(const Operand& operand, const Dims& dims, int64_t at) {
    if (operand.place == Operand::Place::number) return static_cast<float>(operand.number);
    if (operand.dtype == Dtype::boolean) return *element(operand, dims, at) != std::byte{0} ? 1.0F : 0.0F;
    float value = 0;
    std::memcpy(&value, element(operand, dims, at), sizeof(value));
    return value;
  }
  void store(const Operand& operand, int64_t at, float value) {
    std::byte* const to = element(operand, operand.dims, at);
    if (operand.dtype == Dtype::boolean)
      *to = value != 0 ? std::byte{1} : std::byte{0};
    else
      std::memcpy(to, &value, sizeof(value));
  }

  // What counts with nothing: comparisons, selections, and casts, copies, expansions and fills.
  template <class Number>
  static Number chosen(Word word, Number a, Number b, Number c) {
    switch (word) {
      case Word::less:
        return a < b;
      case Word::less_equal:
        return a <= b;
      case Word::greater:
        return a > b;
      case Word::greater_equal:
        return a >= b;
      case Word::equal:
        return a == b;
      case Word::not_equal:
        return a != b;
      case Word::select:
        return a != 0 ? b : c;
      default:
        return a;
    }
  }
  static float computed(Word word, float a, float b, float c) {
    switch (word) {
      case Word::add:
        return a + b;
      case Word::subtract:
        return a - b;
      case Word::multiply:
        return a * b;
      case Word::divide:
        return a / b;
      case Word::absolute:
        return std::fabs(a);
      case Word::root:
        return std::sqrt(a);
      case Word::exp:
        return std::exp(a);
      case Word::log:
        return std::log(a);
      case Word::tanh:
        return std::tanh(a);
      case Word::floor:
        return std::floor(a);
      case Word::both:
        return a != 0 && b != 0;
      case Word::either:
        return a != 0 || b != 0;
      default:
        return chosen(word, a, b, c);
    }
  }

  void run(const Step& step) {
    const Primitive& primitive = primitives_.table[step.primitive];
    if (primitive.word == Word::gather) return gather(step);
    if (has_integers(step)) return primitive.word == Word::sum ? sum_integers(step) : run_integers(step);
    if (is_reduction(primitive.word)) return reduce(primitive.word, step);
    if (primitive.word == Word::product) return multiply(step);
    if (primitive.word == Word::put_rows) return put_rows(step);
    const Dims& dims = step.out.dims;
    if (primitive.word == Word::positions) {
      for (int64_t at = 0; at < element_count(dims); ++at) store(step.out, at, static_cast<float>(at));
      return;
    }
    for (int64_t at = 0; at < element_count(dims); ++at) {
      float operand[3] = {};
      for (size_t k = 0; k < step.in.size(); ++k) operand[k] = load(step.in[k], dims, at);
      if (primitive.has_number || step.in.empty()) operand[step.in.size()] = static_cast<float>(step.number);
      store(step.out, at, computed(primitive.word, operand[0], operand[1], operand[2]));
    }
  }

  // --- integers ------------------------------------------------------------------------------------------------------
  static bool is_integer(const Operand& operand) {
    return operand.dtype == Dtype::i64 || operand.dtype == Dtype::i32 || operand.dtype == Dtype::u8;
  }
  static bool has_integers(const Step& step) {
    return is_integer(step.out) || std::any_of(step.in.begin(), step.in.end(), is_integer);
  }
  template <class T>
  T bits_at(const Operand& operand, const Dims& dims, int64_t at) {
    T value{};
    std::memcpy(&value, element(operand, dims, at), sizeof(value));
    return value;
  }
  int64_t load_integer(const Operand& operand, const Dims& dims, int64_t at) {
    if (operand.place == Operand::Place::number) return static_cast<int64_t>(operand.number);
    if (operand.dtype == Dtype::i64) return bits_at<int64_t>(operand, dims, at);
    if (operand.dtype == Dtype::i32) return bits_at<int32_t>(operand, dims, at);
    if (operand.dtype == Dtype::u8) return bits_at<uint8_t>(operand, dims, at);
    const float number = load(operand, dims, at);
    EXPECT_TRUE(number == std::floor(number) && std::fabs(number) <= 2147483520.0F) << number;
    return static_cast<int64_t>(number);
  }
  void store_integer(const Operand& operand, int64_t at, int64_t value) {
    std::byte* const to = element(operand, operand.dims, at);
    const auto narrow = static_cast<int32_t>(value);
    if (operand.dtype == Dtype::i64)
      std::memcpy(to, &value, sizeof(value));
    else if (operand.dtype == Dtype::i32)
      std::memcpy(to, &narrow, sizeof(narrow));
    else if (operand.dtype == Dtype::u8)
      *to = static_cast<std::byte>(value);
    else
      store(operand, at, static_cast<float>(value));
  }
  // No program may leave the 63 bits of a number: what is there is documented nowhere.
  static int64_t computed_integer(Word word, int64_t a, int64_t b, int64_t c) {
    int64_t result = 0;
    switch (word) {
      case Word::add:
        EXPECT_FALSE(__builtin_add_overflow(a, b, &result)) << a << " + " << b;
        return result;
      case Word::subtract:
        EXPECT_FALSE(__builtin_sub_overflow(a, b, &result)) << a << " - " << b;
        return result;
      case Word::multiply:
        EXPECT_FALSE(__builtin_mul_overflow(a, b, &result)) << a << " * " << b;
        return result;
      case Word::bit_and:
        return a & b;
      case Word::bit_xor:
        return a ^ b;
      default:
        return chosen(word, a, b, c);
    }
  }
  void run_integers(const Step& step) {
    const Primitive& primitive = primitives_.table[step.primitive];
    for (int64_t at = 0; at < element_count(step.out.dims); ++at) {
      int64_t operand[3] = {};
      for (size_t k = 0; k < step.in.size(); ++k) operand[k] = load_integer(step.in[k], step.out.dims, at);
      if (primitive.has_number)
        operand[step.in.size()] = step.in[0].dtype == Dtype::i64 ? step.whole : static_cast<int64_t>(step.number);
      if (step.in.empty()) operand[0] = static_cast<int64_t>(step.number);
      store_integer(step.out, at, computed_integer(primitive.word, operand[0], operand[1], operand[2]));
    }
  }
  void sum_integers(const Step& step) {
    const int64_t size = step.in[0].dims.back();
    for (int64_t row = 0; row < element_count(step.out.dims); ++row) {
      int64_t sum = 0;
      for (int64_t i = 0; i < size; ++i)
        sum = computed_integer(Word::add, sum, load_integer(step.in[0], step.in[0].dims, row * size + i), 0);
      store_integer(step.out, row, sum);
    }
  }
  void gather(const Step& step) {
    const int64_t columns = step.in[0].dims.back(), places = step.out.dims.back();
    const auto bytes = static_cast<size_t>(rlk::sdk::bytes_of(step.out.dtype));
    for (int64_t at = 0; at < element_count(step.out.dims); ++at) {
      const int64_t place = load_integer(step.in[1], step.out.dims, at);
      ASSERT_TRUE(place >= 0 && place < columns) << place;
      std::memcpy(element(step.out, step.out.dims, at),
                  element(step.in[0], step.in[0].dims, at / places * columns + place), bytes);
    }
  }

  // In the memory of the table; an index is a number.
  void put_rows(const Step& step) {
    EXPECT_EQ(first(step.in[0]), first(step.out));
    const int64_t columns = step.out.dims.back();
    for (int64_t at = 0; at < element_count(step.in[2].dims); ++at) {
      const auto place = static_cast<int64_t>(load(step.in[1], step.in[1].dims, at / columns));
      store(step.out, place * columns + at % columns, load(step.in[2], step.in[2].dims, at));
    }
  }
  // Of a matrix of the output the first element in an operand, whose sizes of 1 repeat.
  static int64_t matrix_of(const Dims& own, const Dims& dims, int64_t batch) {
    int64_t at = 0, step = own[own.size() - 2] * own.back();
    for (size_t i = dims.size() - 2; i-- > 0; batch /= dims[i]) {
      if (own[i] != 1) at += batch % dims[i] * step;
      step *= own[i];
    }
    return at;
  }
  void multiply(const Step& step) {
    const Dims &x = step.in[0].dims, &y = step.in[1].dims, &dims = step.out.dims;
    const int64_t columns = dims.back(), size = x.back(), rows = dims[dims.size() - 2];
    for (int64_t at = 0; at < element_count(dims); ++at) {
      const int64_t batch = at / (rows * columns), row = at / columns % rows, column = at % columns;
      float sum = 0;
      for (int64_t k = 0; k < size; ++k) {
        sum += load(step.in[0], x, matrix_of(x, dims, batch) + row * size + k) *
               load(step.in[1], y, matrix_of(y, dims, batch) + k * columns + column);
      }
      store(step.out, at, sum);
    }
  }
  void reduce(Word word, const Step& step) {
    const Dims& from = step.in[0].dims;
    const auto axis = word == Word::sum_rows ? static_cast<size_t>(step.number) : from.size() - 1;
    const int64_t size = from[axis],
                  inner = element_count(Dims(from.begin() + static_cast<int64_t>(axis) + 1, from.end()));
    std::vector<float> results(static_cast<size_t>(element_count(step.out.dims)),
                               word == Word::largest ? -std::numeric_limits<float>::infinity() : 0.0F);
    for (int64_t at = 0; at < element_count(from); ++at) {
      const auto to = static_cast<size_t>(at / (inner * size) * inner + at % inner);
      const float value = load(step.in[0], from, at);
      results[to] = word == Word::largest ? std::max(results[to], value) : results[to] + value;
    }
    for (size_t i = 0; i < results.size(); ++i) store(step.out, static_cast<int64_t>(i), results[i]);
  }

  const Primitives& primitives_;
  std::vector<std::byte*> inputs_, outputs_;
  std::vector<std::byte> workspace_;
};

}  // namespace composed_test
