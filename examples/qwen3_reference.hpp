// A layer of Qwen3 in fp64, token by token as its paper has it, and its gradients by reverse differentiation of those
// very operations: nothing here knows the operators' formulas.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace reference {

// Every operation on numbers, with its derivatives by them.
struct Operation {
  int64_t a, b;  // operations that gave the operands; -1: a constant
  double by_a, by_b;
};
inline std::vector<Operation>& operations() {
  static std::vector<Operation> list;
  return list;
}

struct Number {
  double value = 0;
  int64_t id = -1;

  Number() = default;
  Number(double constant) : value(constant) {}
  Number(double result, const Operation& how) : value(result), id(static_cast<int64_t>(operations().size())) {
    operations().push_back(how);
  }
  // One whose gradient is asked for.
  static Number variable(double value) { return {value, Operation{-1, -1, 0, 0}}; }
};
inline Number operator+(Number a, Number b) {
  return {a.value + b.value, {a.id, b.id, 1, 1}};
}
inline Number operator-(Number a, Number b) {
  return {a.value - b.value, {a.id, b.id, 1, -1}};
}
inline Number operator*(Number a, Number b) {
  return {a.value * b.value, {a.id, b.id, b.value, a.value}};
}
inline Number operator/(Number a, Number b) {
  return {a.value / b.value, {a.id, b.id, 1 / b.value, -a.value / (b.value * b.value)}};
}
inline Number exp(Number a) {
  const double power = std::exp(a.value);
  return {power, {a.id, -1, power, 0}};
}
inline Number sqrt(Number a) {
  const double root = std::sqrt(a.value);
  return {root, {a.id, -1, 0.5 / root, 0}};
}

// The derivative of the last operation by each.
inline std::vector<double> gradients() {
  std::vector<double> list(operations().size(), 0);
  if (!list.empty()) list.back() = 1;
  for (size_t i = list.size(); i-- > 0;) {
    const Operation& how = operations()[i];
    if (how.a >= 0) list[static_cast<size_t>(how.a)] += list[i] * how.by_a;
    if (how.b >= 0) list[static_cast<size_t>(how.b)] += list[i] * how.by_b;
  }
  return list;
}

using Row = std::vector<Number>;

struct Sizes {
  size_t hidden, q_heads, kv_heads, head, inner;
};

// Matrices have a row for each feature of the result.
struct Weights {
  Row input_norm, q, k, v, q_norm, k_norm, o, post_norm, gate, up, down;
};

inline Row linear(const Row& x, const Row& weight) {
  Row y(weight.size() / x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] = y[i] + weight[i * x.size() + j] * x[j];
  }
  return y;
}

inline Row rms_norm(const Row& x, const Row& weight) {
  Number squares;
  for (const Number& number : x) squares = squares + number * number;
  const Number root = sqrt(squares / Number(static_cast<double>(x.size())) + Number(1e-6));
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / root * weight[i];
  return y;
}

inline Row sum(const Row& a, const Row& b) {
  Row y(a.size());
  for (size_t i = 0; i < a.size(); ++i) y[i] = a[i] + b[i];
  return y;
}

// The heads of a token, normalised and turned: number i of the first half with number i of the second.
inline std::vector<Row> heads_of(const Row& all, const Row& norm, const float* cosines, const float* sines) {
  const size_t size = norm.size(), half = size / 2;
  std::vector<Row> heads;
  for (size_t first = 0; first < all.size(); first += size) {
    const Row x = rms_norm(
        Row(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + size)),
        norm);
    Row turned(size);
    for (size_t i = 0; i < half; ++i) {
      const Number c = static_cast<double>(cosines[i]), s = static_cast<double>(sines[i]);
      turned[i] = x[i] * c - x[half + i] * s;
      turned[half + i] = x[half + i] * c + x[i] * s;
    }
    heads.push_back(turned);
  }
  return heads;
}

// The layer over one sequence. cos_sin has a row for each position: the cosines, then the sines.
inline std::vector<Row> layer(const Sizes& sizes, const Weights& w, const std::vector<Row>& tokens,
                              const std::vector<float>& cos_sin) {
  std::vector<std::vector<Row>> keys;
  std::vector<Row> values, outputs;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Row x = rms_norm(tokens[t], w.input_norm);
    const float* cosines = cos_sin.data() + t * sizes.head;
    const std::vector<Row> q = heads_of(linear(x, w.q), w.q_norm, cosines, cosines + sizes.head / 2);
    keys.push_back(heads_of(linear(x, w.k), w.k_norm, cosines, cosines + sizes.head / 2));
    values.push_back(linear(x, w.v));
    Row attended(sizes.q_heads * sizes.head);
    for (size_t h = 0; h < sizes.q_heads; ++h) {
      const size_t g = h / (sizes.q_heads / sizes.kv_heads);
      Row weights;
      Number total;
      for (size_t j = 0; j <= t; ++j) {
        Number dot;
        for (size_t d = 0; d < sizes.head; ++d) dot = dot + q[h][d] * keys[j][g][d];
        weights.push_back(exp(dot / Number(std::sqrt(static_cast<double>(sizes.head)))));
        total = total + weights.back();
      }
      for (size_t d = 0; d < sizes.head; ++d) {
        Number mean;
        for (size_t j = 0; j <= t; ++j) mean = mean + weights[j] * values[j][g * sizes.head + d];
        attended[h * sizes.head + d] = mean / total;
      }
    }
    const Row stream = sum(linear(attended, w.o), tokens[t]);
    const Row y = rms_norm(stream, w.post_norm);
    const Row gate = linear(y, w.gate), up = linear(y, w.up);
    Row inner(sizes.inner);
    for (size_t i = 0; i < sizes.inner; ++i) {
      inner[i] = gate[i] / (Number(1) + exp(Number(0) - gate[i])) * up[i];
    }
    outputs.push_back(sum(stream, linear(inner, w.down)));
  }
  return outputs;
}

}  // namespace reference
