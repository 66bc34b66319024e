// The operators of the simulated CNNL, in fp32 and in the simplest way.
#include <cmath>
#include <cstring>
#include <limits>

#include "cnnl.hpp"
#include "tests/fakes/halves.hpp"

using namespace fake_cnnl;

#define API FAKE_EXPORT int

namespace {

// The element of a dense tensor that broadcasts to `dims` at the flat position `at` there. Ranks are the same.
int64_t broadcast_at(const std::vector<int>& from, const std::vector<int>& dims, int64_t at) {
  int64_t position = 0, step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (from[i] != 1) position += at % dims[i] * step;
    at /= dims[i];
    step *= from[i];
  }
  return position;
}
bool broadcasts(const std::vector<int>& from, const std::vector<int>& to) {
  if (from.size() != to.size()) return false;
  for (size_t i = 0; i < to.size(); ++i) {
    if (from[i] != to[i] && from[i] != 1) return false;
  }
  return true;
}

struct Axis {
  int64_t outer = 1, size = 1, inner = 1;
};
Axis axis_of(const std::vector<int>& dims, int axis) {
  Axis result;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i)
    (i < axis ? result.outer : i == axis ? result.size : result.inner) *= dims[static_cast<size_t>(i)];
  return result;
}
bool is_axis(int axis, const Tensor& tensor) {
  return axis >= 0 && axis < static_cast<int>(tensor.dims.size());
}

// Bits of 16 or 32.
void move_element(const View& to, int64_t at, const View& from, int64_t source) {
  if (from.tensor->dtype == kHalf)
    to.as<uint16_t>()[at] = from.as<uint16_t>()[source];
  else
    to.as<uint32_t>()[at] = from.as<uint32_t>()[source];
}

template <class Function>
int map(void* handle, const char* name, void* xd, const void* x, void* yd, void* y, Function&& function) {
  Call call(handle, name);
  const std::vector<int> dims = call.in(xd, x, {kFloat}).dims;
  call.require(call.out(yd, y, {kFloat}).dims == dims);
  return call.run(true, [n = count(dims), function](std::vector<View>& v) {
    for (int64_t i = 0; i < n; ++i) v[1].as<float>()[i] = function(v[0].as<float>()[i]);
  });
}

// Of two inputs that are equal in shape to the output, or broadcast in their second.
template <class Function>
int combine(Call& call, void* ad, const void* a, void* bd, const void* b, void* cd, void* c, Function&& function) {
  const std::vector<int> from = call.in(ad, a, {kFloat}).dims, second = call.in(bd, b, {kFloat}).dims;
  const std::vector<int> dims = call.out(cd, c, {kFloat}).dims;
  call.require(from == dims && broadcasts(second, dims));
  return call.run(true, [=](std::vector<View>& v) {
    for (int64_t i = 0, n = count(dims); i < n; ++i)
      v[2].as<float>()[i] = function(v[0].as<float>()[i], v[1].as<float>()[broadcast_at(second, dims, i)]);
  });
}

template <class T>
bool holds(int operation, T x, T y) {
  switch (operation) {
    case 0:
      return x == y;
    case 1:
      return x != y;
    case 2:
      return x > y;
    case 3:
      return x >= y;
    case 4:
      return x < y;
    case 5:
      return x <= y;
    case 6:
      return x != T{} && y != T{};
    default:
      return x != T{} || y != T{};
  }
}

int reduce(void* handle, void* desc, void* xd, const void* x, void* yd, void* y, void* positions, void* workspace,
           size_t bytes, const char* name) {
  Call call(handle, name);
  if (call.status() != 0) return call.status();
  const Reduction how = *reductions().get(desc, name);
  call.workspace(workspace, bytes);
  const Tensor &in = call.in(xd, x, {kFloat}), &out = call.out(yd, y, {kFloat});
  if (!is_axis(how.axis, in) || (how.indices == 1) != (positions != nullptr)) return kBadParam;
  std::vector<int> expected = in.dims;
  expected[static_cast<size_t>(how.axis)] = 1;
  call.require(out.dims == expected);
  if (positions != nullptr)
    fake::require_device(positions, static_cast<size_t>(count(out.dims)) * 4, {name, "the indices"});
  return call.run(false, [=](std::vector<View>& v) {
    const Axis axis = axis_of(in.dims, how.axis);
    for (int64_t o = 0; o < axis.outer * axis.inner; ++o) {
      const float* first = v[0].as<float>() + o / axis.inner * axis.size * axis.inner + o % axis.inner;
      float best = -std::numeric_limits<float>::infinity();
      double sum = 0;
      int64_t at = 0;
      for (int64_t i = 0; i < axis.size; ++i) {
        const float value = first[i * axis.inner];
        sum += static_cast<double>(value);
        if (std::isnan(value) && how.nan == 1 && !std::isnan(best)) best = value, at = i;
        if (value > best) best = value, at = i;
      }
      v[1].as<float>()[o] = how.operation == 3 ? best : static_cast<float>(sum);
      if (positions != nullptr) reinterpret_cast<int32_t*>(fake::bytes_at(positions))[o] = static_cast<int32_t>(at);
    }
  });
}

}  // namespace

#define QUERY(name, ...)                                                                     \
  API cnnlGet##name##WorkspaceSize(void* handle, void* a, void* b, void* c, size_t* bytes) { \
    return answer(handle, "cnnlGet" #name "WorkspaceSize", bytes, {a, b, c});                \
  }
QUERY(OpTensor)
QUERY(Div)
QUERY(LogicOp)
QUERY(SelectV2)

API cnnlOpTensor(void* handle, void* desc, const void* alpha1, void* ad, const void* a, const void* alpha2, void* bd,
                 const void* b, void* workspace, size_t bytes, const void* beta, void* cd, void* c) {
  Call call(handle, "cnnlOpTensor");
  if (call.status() != 0) return call.status();
  const int operation = op_tensors().get(desc, "cnnlOpTensor")->operation;
  const float x = *static_cast<const float*>(alpha1), y = *static_cast<const float*>(alpha2);
  call.require(operation >= 0 && *static_cast<const float*>(beta) == 0);
  call.workspace(workspace, bytes);
  return combine(call, ad, a, bd, b, cd, c, [=](float p, float q) {
    return operation == 2 ? x * p * (y * q) : operation == 1 ? x * p - y * q : x * p + y * q;
  });
}
API cnnlDiv_v2(void* handle, int prefer, void* ad, const void* a, void* bd, const void* b, void* workspace,
               size_t bytes, void* cd, void* c) {
  Call call(handle, "cnnlDiv_v2");
  call.require(prefer == 0 || prefer == 1);
  call.workspace(workspace, bytes);
  return combine(call, ad, a, bd, b, cd, c, [](float p, float q) { return p / q; });
}
API cnnlTransform_v2(void* handle, int mode, const void* alpha, void* xd, const void* x, const void* beta, void* yd,
                     void* y) {
  if (mode != 0) return kNotSupported;
  Call call(handle, "cnnlTransform_v2");
  const Tensor &in = call.in(xd, x, {kFloat, kInt32}), &out = call.out(yd, y, {kFloat, kInt32});
  call.require(in.dims == out.dims && in.dtype == out.dtype);
  const int64_t n = count(in.dims);
  // Factors have the tensor's dtype, and are read now.
  const auto by = [&](auto typed) {
    using T = decltype(typed);
    T factor{}, plus{};
    std::memcpy(&factor, alpha, sizeof(T));
    std::memcpy(&plus, beta, sizeof(T));
    return call.run(true, [=](std::vector<View>& v) {
      for (int64_t i = 0; i < n; ++i) v[1].as<T>()[i] = factor * v[0].as<T>()[i] + plus;
    });
  };
  return in.dtype == kInt32 ? by(int32_t{}) : by(float{});
}
API cnnlAbs(void* handle, void* xd, const void* x, void* yd, void* y) {
  return map(handle, "cnnlAbs", xd, x, yd, y, [](float v) { return std::fabs(v); });
}
API cnnlSqrt_v2(void* handle, int prefer, void* xd, const void* x, void* yd, void* y) {
  if (prefer != 0 && prefer != 1) return kBadParam;
  return map(handle, "cnnlSqrt_v2", xd, x, yd, y, [](float v) { return std::sqrt(v); });
}
API cnnlExp_v2(void* handle, int prefer, void* xd, const void* x, void* yd, void* y) {
  if (prefer != 0 && prefer != 1) return kBadParam;
  return map(handle, "cnnlExp_v2", xd, x, yd, y, [](float v) { return std::exp(v); });
}
API cnnlLog_v2(void* handle, int prefer, int base, void* xd, const void* x, void* yd, void* y) {
  if ((prefer != 0 && prefer != 1) || base != 0) return kBadParam;
  return map(handle, "cnnlLog_v2", xd, x, yd, y, [](float v) { return std::log(v); });
}
// The first number and the difference are read now, as the vendor's are; each element is one product and one sum.
API cnnlArange_v2(void* handle, int prefer, const void* start, const void* step, void* yd, void* y) {
  if (prefer < 0 || prefer > 1) return kBadParam;
  Call call(handle, "cnnlArange_v2");
  const int64_t n = count(call.out(yd, y, {kFloat}).dims);
  const float first = *static_cast<const float*>(start), more = *static_cast<const float*>(step);
  return call.run(false, [=](std::vector<View>& v) {
    for (int64_t i = 0; i < n; ++i) v[0].as<float>()[i] = first + static_cast<float>(i) * more;
  });
}
API cnnlFill_v3(void* handle, int mode, const void* value, void* yd, void* y) {
  if (mode != 0) return kNotSupported;
  Call call(handle, "cnnlFill_v3");
  const int64_t n = count(call.out(yd, y, {kFloat, kInt32}).dims);
  uint32_t word = 0;
  std::memcpy(&word, value, sizeof(word));  // read now, as the vendor's does
  return call.run(false, [=](std::vector<View>& v) {
    for (int64_t i = 0; i < n; ++i) v[0].as<uint32_t>()[i] = word;
  });
}
API cnnlCopy(void* handle, void* xd, const void* x, void* yd, void* y) {
  Call call(handle, "cnnlCopy");
  const Tensor &in = call.in(xd, x, {kFloat, kInt16, kInt32}, true),
               &out = call.out(yd, y, {kFloat, kInt16, kInt32}, true);
  call.require(in.dims == out.dims && in.dtype == out.dtype);
  return call.run(false, [=](std::vector<View>& v) {
    for (int64_t i = 0, n = count(in.dims); i < n; ++i) {
      int64_t from = 0, to = 0, rest = i;
      for (size_t d = in.dims.size(); d-- > 0; rest /= in.dims[d]) {
        from += rest % in.dims[d] * in.strides[d];
        to += rest % in.dims[d] * out.strides[d];
      }
      if (in.dtype == kInt16)
        v[1].as<uint16_t>()[to] = v[0].as<uint16_t>()[from];
      else
        v[1].as<uint32_t>()[to] = v[0].as<uint32_t>()[from];
    }
  });
}
// The two kinds of cast whose numbers are public.
API cnnlCastDataType(void* handle, void* xd, const void* x, int kind, void* yd, void* y) {
  if (kind != 129 && kind != 219) return kNotSupported;
  Call call(handle, "cnnlCastDataType");
  const bool widens = kind == 129;
  const std::vector<int> dims = call.in(xd, x, {widens ? kHalf : kFloat}).dims;
  call.require(call.out(yd, y, {widens ? kFloat : kHalf}).dims == dims);
  return call.run(false, [=](std::vector<View>& v) {
    for (int64_t i = 0, n = count(dims); i < n; ++i) {
      if (widens)
        v[1].as<float>()[i] = fake::float_of_f16(v[0].as<uint16_t>()[i]);
      else
        v[1].as<uint16_t>()[i] = fake::f16_of_float(v[0].as<float>()[i]);
    }
  });
}
API cnnlExpand(void* handle, void* xd, const void* x, void* yd, void* y) {
  Call call(handle, "cnnlExpand");
  const Tensor &in = call.in(xd, x, {kFloat, kInt32}), &out = call.out(yd, y, {kFloat, kInt32});
  call.require(broadcasts(in.dims, out.dims) && in.dtype == out.dtype);
  return call.run(false, [=](std::vector<View>& v) {
    for (int64_t i = 0, n = count(out.dims); i < n; ++i)
      v[1].as<uint32_t>()[i] = v[0].as<uint32_t>()[broadcast_at(in.dims, out.dims, i)];
  });
}
API cnnlGetReduceOpWorkspaceSize(void* handle, void* xd, void* yd, void* desc, size_t* bytes) {
  reductions().get(desc, "cnnlGetReduceOpWorkspaceSize");
  return answer(handle, "cnnlGetReduceOpWorkspaceSize", bytes, {xd, yd});
}
API cnnlReduce(void* handle, void* desc, void* workspace, size_t bytes, const void*, void* xd, const void* x,
               size_t position_bytes, void* positions, const void*, void* yd, void* y) {
  if ((position_bytes == 0) != (positions == nullptr)) return kBadParam;
  return reduce(handle, desc, xd, x, yd, y, positions, workspace, bytes, "cnnlReduce");
}
#if !defined(RLK_FAKE_WITHOUT_REDUCE_V2)
API cnnlGetReduceOpWorkspaceSize_v2(void* handle, void* xd, void* yd, void*, void* desc, size_t* bytes) {
  reductions().get(desc, "cnnlGetReduceOpWorkspaceSize_v2");
  return answer(handle, "cnnlGetReduceOpWorkspaceSize_v2", bytes, {xd, yd});
}
API cnnlReduce_v2(void* handle, void* desc, void* xd, const void* x, const void*, const void*, void* workspace,
                  size_t bytes, void* yd, void* y, void* index_desc, void* positions) {
  if ((index_desc == nullptr) != (positions == nullptr)) return kBadParam;
  return reduce(handle, desc, xd, x, yd, y, positions, workspace, bytes, "cnnlReduce_v2");
}
#endif
API cnnlLogicOp(void* handle, int operation, void* ad, const void* a, void* bd, const void* b, void* workspace,
                size_t bytes, void* cd, void* c) {
  Call call(handle, "cnnlLogicOp");
  const auto inputs = {kFloat, kInt32, kUint8, kBool};
  const Tensor &x = call.in(ad, a, inputs), &y = call.in(bd, b, inputs), &out = call.out(cd, c, {kBool});
  call.require(x.dtype == y.dtype && x.dims == y.dims && x.dims == out.dims && operation >= 0 && operation <= 7);
  call.workspace(workspace, bytes);
  return call.run(false, [=, dtype = x.dtype](std::vector<View>& v) {
    for (int64_t i = 0, n = count(out.dims); i < n; ++i) {
      v[2].as<uint8_t>()[i] = dtype == kFloat   ? holds(operation, v[0].as<float>()[i], v[1].as<float>()[i])
                              : dtype == kInt32 ? holds(operation, v[0].as<int32_t>()[i], v[1].as<int32_t>()[i])
                                                : holds(operation, v[0].as<uint8_t>()[i], v[1].as<uint8_t>()[i]);
    }
  });
}
API cnnlSelectV2(void* handle, void* cd, const void* condition, void* ad, const void* a, void* bd, const void* b,
                 void* workspace, size_t bytes, void* yd, void* y) {
  Call call(handle, "cnnlSelectV2");
  const Tensor &cond = call.in(cd, condition, {kBool}), &x = call.in(ad, a, {kFloat, kInt32}),
               &other = call.in(bd, b, {kFloat, kInt32}), &out = call.out(yd, y, {kFloat, kInt32});
  call.require(cond.dims == out.dims && x.dims == out.dims && other.dims == out.dims && x.dtype == out.dtype &&
               other.dtype == out.dtype);
  call.workspace(workspace, bytes);
  return call.run(false, [=](std::vector<View>& v) {
    for (int64_t i = 0, n = count(out.dims); i < n; ++i)
      v[3].as<uint32_t>()[i] = (v[0].as<uint8_t>()[i] != 0 ? v[1] : v[2]).as<uint32_t>()[i];
  });
}
API cnnlIndexSelect(void* handle, int axis, void* xd, const void* x, void* id, const void* index, void* yd, void* y) {
  Call call(handle, "cnnlIndexSelect");
  const Tensor &in = call.in(xd, x, {kFloat, kInt32, kHalf}), &at = call.in(id, index, {kInt32}),
               &out = call.out(yd, y, {kFloat, kInt32, kHalf});
  call.require(is_axis(axis, in) && at.dims.size() == 1 && in.dtype == out.dtype);
  if (call.status() != 0) return call.status();
  std::vector<int> expected = in.dims;
  expected[static_cast<size_t>(axis)] = at.dims[0];
  call.require(out.dims == expected);
  return call.run(false, [=](std::vector<View>& v) {
    const Axis from = axis_of(in.dims, axis), to = axis_of(out.dims, axis);
    for (int64_t i = 0; i < count(out.dims); ++i) {
      const int32_t row = v[1].as<int32_t>()[i / to.inner % to.size];
      if (row < 0 || row >= from.size) fake::violation("INDEX_OUT_OF_RANGE", "cnnlIndexSelect");
      move_element(v[2], i, v[0], (i / to.inner / to.size * from.size + row) * from.inner + i % to.inner);
    }
  });
}
#if !defined(RLK_FAKE_WITHOUT_GATHER)
API cnnlGather(void* handle, int axis, void* xd, const void* x, void* id, const void* index, void* yd, void* y) {
  Call call(handle, "cnnlGather");
  const Tensor &in = call.in(xd, x, {kFloat, kInt32, kHalf}), &at = call.in(id, index, {kInt32}),
               &out = call.out(yd, y, {kFloat, kInt32, kHalf});
  call.require(is_axis(axis, in) && at.dims == out.dims && in.dims.size() == 2 && axis == 1 &&
               at.dims[0] == in.dims[0] && in.dtype == out.dtype);
  return call.run(false, [=](std::vector<View>& v) {
    for (int64_t i = 0; i < count(out.dims); ++i) {
      const int32_t column = v[1].as<int32_t>()[i];
      if (column < 0 || column >= in.dims[1]) fake::violation("INDEX_OUT_OF_RANGE", "cnnlGather");
      move_element(v[2], i, v[0], i / out.dims[1] * in.dims[1] + column);
    }
  });
}
#endif
