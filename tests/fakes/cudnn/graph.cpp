// The operations in plain loops over doubles; each result is rounded to the type of its tensor.
#include "graph.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <regex>

#include "tests/fakes/halves.hpp"

namespace fake_cudnn {
namespace {

constexpr int kAdd = 0, kMultiply = 1, kDivide = 6, kSubtract = 9, kExp = 13, kLog = 15, kIdentity = 21;
constexpr int kGreater = 302, kGreaterOrEqual = 303, kIndex = 501, kSelect = 601;
constexpr int kSum = 0, kMax = 3;
constexpr int kPattern = 3001, kShape = 3002, kDataType = 3003, kLayout = 3004;

double load(const std::byte* from, int dtype) {
  float single = 0;
  int32_t whole = 0;
  uint16_t bits = 0;
  switch (dtype) {
    case kInt32:
      return std::memcpy(&whole, from, 4), whole;
    case kHalf:
      return std::memcpy(&bits, from, 2), fake::float_of_f16(bits);
    case kBfloat16:
      return std::memcpy(&bits, from, 2), fake::float_of_bf16(bits);
    default:
      return std::memcpy(&single, from, 4), single;
  }
}
void store(std::byte* to, int dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == kHalf || dtype == kBfloat16) {
    const uint16_t bits = dtype == kHalf ? fake::f16_of_float(single) : fake::bf16_of_float(single);
    std::memcpy(to, &bits, 2);
  } else if (dtype == kInt32) {
    const auto whole = static_cast<int32_t>(value);
    std::memcpy(to, &whole, 4);
  } else {
    std::memcpy(to, &single, 4);
  }
}
double rounded(double value, int dtype) {
  std::byte bytes[4];
  if (dtype == kBoolean) return value;
  return store(bytes, dtype, value), load(bytes, dtype);
}

// Elements of a tensor in the order of its dimensions, whatever its strides.
struct Array {
  Dims dims{};
  std::vector<double> values;
  // Of a smaller tensor, the element that a larger one meets: dimensions of 1 are repeated, and several heads share
  // one.
  double at(const Dims& i, const Dims& of) const {
    int64_t place = 0;
    for (size_t d = 0; d < 4; ++d) {
      const int64_t index = d == 1 ? i[d] / (of[d] / dims[d]) : dims[d] == 1 ? 0 : i[d];
      place = place * dims[d] + index;
    }
    return values[static_cast<size_t>(place)];
  }
};

template <class Body>
void each(const Dims& dims, const Body& body) {
  Dims i{};
  for (i[0] = 0; i[0] < dims[0]; ++i[0])
    for (i[1] = 0; i[1] < dims[1]; ++i[1])
      for (i[2] = 0; i[2] < dims[2]; ++i[2])
        for (i[3] = 0; i[3] < dims[3]; ++i[3]) body(i);
}

int64_t offset_of(const Tensor& tensor, const Dims& i) {
  int64_t offset = 0;
  for (size_t d = 0; d < 4; ++d) offset += i[d] * tensor.strides[d];
  return offset * static_cast<int64_t>(tensor.element_bytes());
}

double elementwise(const Operation& of, double x, double b, bool condition, const Dims& i) {
  switch (of.mode) {
    case kAdd:
      return x + b;
    case kMultiply:
      return x * b;
    case kDivide:
      return x / b;
    case kSubtract:
      return x - b;
    case kExp:
      return std::exp(x);
    case kLog:
      return std::log(x);
    case kGreater:
      return x > b ? 1 : 0;
    case kGreaterOrEqual:
      return x >= b ? 1 : 0;
    case kIndex:
      return static_cast<double>(i[static_cast<size_t>(of.axis)]);
    case kSelect:
      return condition ? x : b;
    default:
      return x;
  }
}

bool can_meet(const Tensor& small, const Tensor& large) {
  for (size_t d = 0; d < 4; ++d) {
    if (small.dims[d] != 1 && small.dims[d] != large.dims[d]) return false;
  }
  return true;
}

}  // namespace

size_t Tensor::span() const {
  int64_t last = 0;
  for (size_t d = 0; d < 4; ++d) last += (dims[d] - 1) * strides[d];
  return static_cast<size_t>(last + 1) * element_bytes();
}

std::string OperationGraph::add(Operation operation) {
  for (const TensorOf& tensor : {operation.x, operation.b, operation.condition, operation.y}) {
    if (tensor == nullptr) continue;
    const auto known = all_.emplace(tensor->id, tensor).first;
    if (known->second != tensor) return "two tensors have the number " + std::to_string(tensor->id);
    if (!tensor->is_virtual) tensors_.emplace(tensor->id, tensor);
    if (tensor != operation.y && tensor->is_virtual && !is_written(tensor->id)) return "an intermediate is read first";
  }
  if (is_written(operation.y->id)) return "a tensor is written twice";
  const Dims &x = operation.x->dims, &y = operation.y->dims;
  if (operation.kind == Kind::matmul) {
    const Dims& b = operation.b->dims;
    if (x[3] != b[2] || y[2] != x[2] || y[3] != b[3] || x[0] != b[0] || y[0] != x[0] || y[1] != x[1] || x[1] % b[1])
      return "sizes of a product";
  } else if (operation.kind == Kind::pointwise) {
    if (!can_meet(*operation.x, *operation.y)) return "sizes of an elementwise operation";
    if (operation.b != nullptr && !can_meet(*operation.b, *operation.y)) return "sizes of an elementwise operation";
    if (operation.mode == kIndex && (operation.axis < 0 || operation.axis > 3)) return "an index without an axis";
  } else if (operation.kind == Kind::reduction) {
    if (x[0] != y[0] || x[1] % y[1] != 0 || x[2] != y[2] || (y[3] != 1 && y[3] != x[3])) return "sizes of a reduction";
  } else if (x[2] != y[3] || x[3] != y[2] || x[0] != y[0] || x[1] != y[1]) {
    return "sizes of a transposition";
  }
  operations_.push_back(std::move(operation));
  return "";
}

bool OperationGraph::is_written(int64_t id) const {
  for (const Operation& operation : operations_) {
    if (operation.y->id == id) return true;
  }
  return false;
}

std::string OperationGraph::letters() const {
  std::string all;
  for (const Operation& operation : operations_) {
    if (operation.kind == Kind::matmul) all += 'M';
    if (operation.kind == Kind::reshape) all += 'T';
    if (operation.kind == Kind::reduction) all += operation.mode == kSum ? 'S' : operation.mode == kMax ? 'X' : '?';
    if (operation.kind != Kind::pointwise) continue;
    static const std::map<int, char> letter = {
        {kAdd, '+'},      {kMultiply, '*'}, {kDivide, '/'},         {kSubtract, '-'}, {kExp, 'e'},   {kLog, 'l'},
        {kIdentity, '='}, {kGreater, '>'},  {kGreaterOrEqual, 'G'}, {kIndex, 'i'},    {kSelect, 's'}};
    const auto found = letter.find(operation.mode);
    all += found == letter.end() ? '?' : found->second;
  }
  return all;
}

std::string OperationGraph::unsupported(int* status) const {
  const std::string all = letters();
  const std::string mask = R"((ii(\+-)?\+?Gs)?(ii\+>s)?)";
  static const std::regex forward(R"(M\*)" + mask + R"(X-eSl\+/M)");
  static const std::regex backward(R"(\*S\*M\*-)" + mask + R"(eTMS?M-\*\*TMS?TM=?)");
  *status = kPattern;
  if (!std::regex_match(all, forward) && !std::regex_match(all, backward))
    return "no engine knows the operations " + all;
  const int dtype = operations_.back().y->dtype;
  for (const Operation& operation : operations_) {
    const bool sums_heads = operation.kind == Kind::reduction && operation.x->dims[1] != operation.y->dims[1];
    *status = kDataType;
    // The library takes fp32 too, and computes something else.
    if (sums_heads && operation.x->dtype != operation.y->dtype) return "gradients of heads of another data type";
  }
  for (const auto& [id, tensor] : tensors_) {
    if (tensor->is_by_value || tensor->dtype == kFloat) continue;
    *status = kDataType;
    if (tensor->dtype != dtype || (dtype != kHalf && dtype != kBfloat16)) return "tensors of several data types";
    *status = kLayout;
    const bool is_turned = tensor->strides[3] != 1 && tensor->strides[2] == 1;
    const Dims dims =
        is_turned ? Dims{tensor->dims[0], tensor->dims[1], tensor->dims[3], tensor->dims[2]} : tensor->dims;
    const int64_t row = is_turned ? tensor->strides[3] : tensor->strides[2];
    if (!is_turned && tensor->strides[3] != 1) return "elements of a head are apart";
    if (row % 8 != 0 || tensor->strides[0] % 8 != 0 || tensor->strides[1] % 8 != 0) return "rows are not on 16 bytes";
    *status = kShape;
    if (dims[3] % 8 != 0 || dims[3] > 256) return "hidden_dim should be a multiple of 8, up to 256";
  }
  const bool hides = all.find('i') != std::string::npos;
  const bool is_bottom_right = all.find("+-G") != std::string::npos || all.find("+-+G") != std::string::npos;
  for (const Operation& operation : operations_) {
    if (operation.kind != Kind::pointwise || operation.mode != kSelect || !hides) continue;
    const bool has_fewer_keys = operation.y->dims[3] < operation.y->dims[2];
    *status = kShape;
    if (has_fewer_keys && (is_bottom_right || all.find('>') != std::string::npos))
      return "fewer keys than queries under this mask";
  }
  return "";
}

// Gradients of queries that are collected in memory: blocks add to them in any order.
bool OperationGraph::is_deterministic() const {
  return letters().back() != '=';
}

void OperationGraph::run(const std::map<int64_t, std::byte*>& memory) const {
  std::map<int64_t, Array> known;
  const auto value_of = [&](const TensorOf& tensor) -> const Array& {
    const auto found = known.try_emplace(tensor->id);
    Array& array = found.first->second;
    if (found.second) {
      array.dims = tensor->dims;
      const std::byte* base = memory.at(tensor->id);
      each(tensor->dims,
           [&](const Dims& i) { array.values.push_back(load(base + offset_of(*tensor, i), tensor->dtype)); });
    }
    return array;
  };
  for (const Operation& operation : operations_) {
    const Tensor& to = *operation.y;
    const Array& x = value_of(operation.x);
    const Array* b = operation.b != nullptr ? &value_of(operation.b) : nullptr;
    const Array* condition = operation.condition != nullptr ? &value_of(operation.condition) : nullptr;
    Array y;
    y.dims = to.dims;
    each(to.dims, [&](const Dims& i) {
      double result = 0;
      if (operation.kind == Kind::matmul) {
        for (int64_t k = 0; k < x.dims[3]; ++k) {
          result += x.at({i[0], i[1], i[2], k}, x.dims) *
                    b->at({i[0], i[1], k, i[3]}, {x.dims[0], x.dims[1], b->dims[2], b->dims[3]});
        }
      } else if (operation.kind == Kind::pointwise) {
        result = elementwise(operation, x.at(i, to.dims), b != nullptr ? b->at(i, to.dims) : 0,
                             condition != nullptr && condition->at(i, to.dims) != 0, i);
      } else if (operation.kind == Kind::reshape) {
        result = x.at({i[0], i[1], i[3], i[2]}, x.dims);
      } else {
        const bool takes_sum = operation.mode == kSum;
        if (!takes_sum) result = -std::numeric_limits<double>::infinity();
        const int64_t group = x.dims[1] / to.dims[1], columns = to.dims[3] == 1 ? x.dims[3] : 1;
        for (int64_t h = 0; h < group; ++h) {
          for (int64_t c = 0; c < columns; ++c) {
            const double one = x.at({i[0], i[1] * group + h, i[2], to.dims[3] == 1 ? c : i[3]}, x.dims);
            result = takes_sum ? result + one : std::fmax(result, one);
          }
        }
      }
      y.values.push_back(rounded(result, to.dtype));
      if (!to.is_virtual) store(memory.at(to.id) + offset_of(to, i), to.dtype, result);
    });
    known[to.id] = std::move(y);
  }
}

}  // namespace fake_cudnn
