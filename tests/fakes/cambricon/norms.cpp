// Norms of rows, of the simulated CNNL: in fp32 whatever they read, with one rounding. Squares are those of fp32, which
// are infinite beyond its range.
#include "cnnl.hpp"
#include "tests/fakes/halves.hpp"

#if !defined(RLK_FAKE_WITHOUT_NORMS)
#include <cmath>

using namespace fake_cnnl;

#define API FAKE_EXPORT int

namespace {

float read(const View& view, int64_t at) {
  return view.tensor->dtype == kHalf ? fake::float_of_f16(view.as<uint16_t>()[at]) : view.as<float>()[at];
}
void write(const View& view, int64_t at, float value) {
  if (view.tensor->dtype == kHalf)
    view.as<uint16_t>()[at] = fake::f16_of_float(value);
  else
    view.as<float>()[at] = value;
}

// The operands that both have: x, y and the numbers of rows of one dtype, rows of which the last dimension is one.
struct Rows {
  int64_t number = 0, columns = 0;
};
Rows rows_of(Call& call, const Tensor& x, const Tensor& factors, const Tensor& y, const Tensor& numbers, int axis) {
  call.require(x.dims.size() == 2 && axis == 1 && y.dims == x.dims && y.dtype == x.dtype);
  if (call.status() != 0) return {};
  call.require(factors.dims == std::vector<int>{x.dims[1]} && factors.dtype == x.dtype &&
               numbers.dims == std::vector<int>{x.dims[0]} && numbers.dtype == x.dtype);
  return {x.dims[0], x.dims[1]};
}

}  // namespace

API cnnlGetLayerNormOpWorkspaceSize(void* handle, int axis, void* xd, size_t* bytes) {
  return axis < 0 ? kBadParam : answer(handle, "cnnlGetLayerNormOpWorkspaceSize", bytes, {xd});
}
API cnnlGetRmsNormOpWorkspaceSize(void* handle, int axis, void* xd, size_t* bytes) {
  return axis < 0 ? kBadParam : answer(handle, "cnnlGetRmsNormOpWorkspaceSize", bytes, {xd});
}

API cnnlLayerNormForward(void* handle, void* xd, const void* x, int axis, void* wd, const void* weight,
                         const void* bias, float eps, void* workspace, size_t bytes, void* yd, void* y, void* nd,
                         void* mean, void* rstd) {
  Call call(handle, "cnnlLayerNormForward");
  const auto floats = {kFloat, kHalf};
  const Tensor &in = call.in(xd, x, floats), &factors = call.in(wd, weight, floats);
  call.in(wd, bias, floats);
  const Tensor &out = call.out(yd, y, floats), &numbers = call.out(nd, mean, floats);
  call.out(nd, rstd, floats);
  const Rows rows = rows_of(call, in, factors, out, numbers, axis);
  call.workspace(workspace, bytes);
  return call.run(false, [=](std::vector<View>& v) {
    const auto columns = static_cast<float>(rows.columns);
    for (int64_t n = 0; n < rows.number; ++n) {
      const int64_t first = n * rows.columns;
      float sum = 0, squares = 0;
      for (int64_t i = 0; i < rows.columns; ++i) sum += read(v[0], first + i);
      const float middle = sum / columns;
      for (int64_t i = 0; i < rows.columns; ++i) {
        const float away = read(v[0], first + i) - middle;
        squares += away * away;
      }
      const float root = 1 / std::sqrt(squares / columns + eps);
      for (int64_t i = 0; i < rows.columns; ++i)
        write(v[3], first + i, (read(v[0], first + i) - middle) * root * read(v[1], i) + read(v[2], i));
      write(v[4], n, middle);
      write(v[5], n, root);
    }
  });
}
API cnnlRmsNormForward(void* handle, int axis, void* xd, const void* x, void* wd, const void* weight, const void* bias,
                       float eps, void* workspace, size_t bytes, void* yd, void* y, void* nd, void* rstd) {
  if (bias != nullptr) return kNotSupported;  // what it would do is known of no caller
  Call call(handle, "cnnlRmsNormForward");
  const auto floats = {kFloat, kHalf};
  const Tensor &in = call.in(xd, x, floats), &factors = call.in(wd, weight, floats), &out = call.out(yd, y, floats),
               &numbers = call.out(nd, rstd, floats);
  const Rows rows = rows_of(call, in, factors, out, numbers, axis);
  call.workspace(workspace, bytes);
  return call.run(false, [=](std::vector<View>& v) {
    for (int64_t n = 0; n < rows.number; ++n) {
      const int64_t first = n * rows.columns;
      float squares = 0;
      for (int64_t i = 0; i < rows.columns; ++i) squares += read(v[0], first + i) * read(v[0], first + i);
      const float root = 1 / std::sqrt(squares / static_cast<float>(rows.columns) + eps);
      for (int64_t i = 0; i < rows.columns; ++i) write(v[2], first + i, read(v[0], first + i) * root * read(v[1], i));
      write(v[3], n, root);
    }
  });
}
#endif
