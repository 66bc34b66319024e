// The largest numbers of rows, of the simulated CNNL.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "cnnl.hpp"

using namespace fake_cnnl;

#define API FAKE_EXPORT int

// Of two rows for one place any may stay: they have to be the same bits. Known of public callers in the mode "update"
// (3) and in place alone, of numbers of fp32 and fp16.
API cnnlScatterNd_v2(void* handle, int mode, void* id, const void* index, void* xd, const void* x, void* td,
                     const void* table, void* yd, void* y) {
  if (mode != 3 || table != y || td != yd) return kNotSupported;
  Call call(handle, "cnnlScatterNd_v2");
  const Tensor &at = call.in(id, index, {kInt32}), &from = call.in(xd, x, {kFloat, kHalf}),
               &to = call.out(yd, y, {kFloat, kHalf});
  if (call.status() != 0) return call.status();
  call.require(to.dims.size() == 2 && at.dims.size() == 2 && at.dims[1] == 1 && from.dtype == to.dtype &&
               from.dims == std::vector<int>{at.dims[0], to.dims[1]});
  return call.run(false, [=](std::vector<View>& v) {
    const size_t bytes = static_cast<size_t>(to.dims[1]) * (to.dtype == kHalf ? 2 : 4);
    std::vector<char> has(static_cast<size_t>(to.dims[0]));
    for (int32_t i = 0; i < at.dims[0]; ++i) {
      const int32_t place = v[0].as<int32_t>()[i];
      if (place < 0 || place >= to.dims[0])
        fake::violation("INDEX_OUT_OF_RANGE", "cnnlScatterNd_v2: " + std::to_string(place));
      std::byte* const row = v[2].data + static_cast<size_t>(place) * bytes;
      const std::byte* const given = v[1].data + static_cast<size_t>(i) * bytes;
      if (has[static_cast<size_t>(place)] != 0 && std::memcmp(row, given, bytes) != 0)
        fake::violation("TWO_ROWS_FOR_ONE_PLACE", "cnnlScatterNd_v2: which one stays is documented nowhere");
      has[static_cast<size_t>(place)] = 1;
      std::memcpy(row, given, bytes);
    }
  });
}

API cnnlGetTopKTensorWorkspaceSize(void* handle, void* xd, int k, int, bool, void* yd, void* id, size_t* bytes) {
  return k < 1 ? kBadParam : answer(handle, "cnnlGetTopKTensorWorkspaceSize", bytes, {xd, yd, id});
}
// Equals are in the opposite order of their places unless the lower ones are asked for, and a NaN is in front of
// everything. What was read is overwritten: DIOPI has seen that of the vendor's.
API cnnlTopKTensor_v3(void* handle, void* xd, const void* x, int k, int dim, bool largest, bool sorted,
                      bool lower_first, void* workspace, size_t bytes, void* yd, void* y, void* id, void* index) {
  Call call(handle, "cnnlTopKTensor_v3");
  const Tensor &in = call.in(xd, x, {kFloat}), &out = call.out(yd, y, {kFloat}), &at = call.out(id, index, {kInt32});
  if (call.status() != 0) return call.status();
  call.workspace(workspace, bytes);
  const int rank = static_cast<int>(in.dims.size());
  if (rank == 0 || dim != rank - 1 || k < 1 || k > in.dims.back() || !sorted) return kBadParam;
  std::vector<int> expected = in.dims;
  expected.back() = k;
  call.require(out.dims == expected && at.dims == expected);
  return call.run(false, [=](std::vector<View>& v) {
    const auto columns = static_cast<size_t>(in.dims.back()), many = static_cast<size_t>(k);
    for (size_t row = 0; row < static_cast<size_t>(count(in.dims)) / columns; ++row) {
      float* const numbers = v[0].as<float>() + row * columns;
      std::vector<int32_t> order(columns);
      std::iota(order.begin(), order.end(), 0);
      if (!lower_first) std::reverse(order.begin(), order.end());
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        const float p = numbers[a], q = numbers[b];
        if (std::isnan(p) || std::isnan(q)) return std::isnan(p) && !std::isnan(q);
        return largest ? p > q : p < q;
      });
      for (size_t j = 0; j < many; ++j) {
        v[1].as<float>()[row * many + j] = numbers[order[j]];
        v[2].as<int32_t>()[row * many + j] = order[j];
      }
      std::fill_n(numbers, columns, std::numeric_limits<float>::quiet_NaN());
    }
  });
}
