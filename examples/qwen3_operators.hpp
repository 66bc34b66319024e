// Operators as the examples of Qwen3 use them: a call each, on rows without gaps.
#pragma once

#include <rlk/ops/add.hpp>
#include <rlk/ops/add_rms_norm.hpp>
#include <rlk/ops/linear.hpp>
#include <rlk/ops/rms_norm.hpp>
#include <rlk/ops/rotary_embedding.hpp>
#include <rlk/rlk.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include "device_array.hpp"

namespace qwen3 {

using Shape = std::vector<int64_t>;

inline void linear(const rlk::Stream& stream, int64_t tokens, const DeviceNumbers& x, int64_t in,
                   const DeviceNumbers& weight, int64_t out, const DeviceNumbers& y) {
  rlk::ops::Linear call;
  call.in.x = x.as({tokens, in});
  call.in.weight = weight.as({out, in});
  call.out.y = y.as({tokens, out});
  call(stream);
}

inline void rms_norm(const rlk::Stream& stream, int64_t rows, const DeviceNumbers& x, int64_t size,
                     const DeviceNumbers& weight, const DeviceNumbers& y) {
  rlk::ops::RmsNorm call;
  call.in.x = x.as({rows, size});
  call.in.weight = weight.as({size});
  call.out.y = y.as({rows, size});
  call(stream);
}

// y = rms_norm(x + residual); the sum goes to `sum`, which may be the residual.
inline void add_rms_norm(const rlk::Stream& stream, int64_t rows, const DeviceNumbers& x, const DeviceNumbers& residual,
                         int64_t size, const DeviceNumbers& weight, const DeviceNumbers& y, const DeviceNumbers& sum) {
  rlk::ops::AddRmsNorm call;
  call.in.x = x.as({rows, size});
  call.in.residual = residual.as({rows, size});
  call.in.weight = weight.as({size});
  call.out.y = y.as({rows, size});
  call.out.sum = sum.as({rows, size});
  call(stream);
}

// to += what
inline void add(const rlk::Stream& stream, const Shape& shape, const DeviceNumbers& to, const DeviceNumbers& what) {
  rlk::ops::Add call;
  call.in.a = to.as(shape);
  call.in.b = what.as(shape);
  call.out.out = to.as(shape);
  call(stream);
}

// In place, q [tokens, heads, size] and k likewise; inverse is the way back, which gradients go.
inline void turn(const rlk::Stream& stream, const rlk::Tensor& positions, const rlk::Tensor& cos_sin, bool inverse,
                 const rlk::Tensor& q, const rlk::Tensor& k) {
  rlk::ops::RotaryEmbedding call;
  call.params.inverse = inverse ? RLK_ROTARY_EMBEDDING_INVERSE_ON : RLK_ROTARY_EMBEDDING_INVERSE_OFF;
  call.in.positions = positions;
  call.in.query = call.out.query_out = q;
  call.in.key = call.out.key_out = k;
  call.in.cos_sin_cache = cos_sin;
  call(stream);
}

// Of each position the cosines, then the sines.
inline std::vector<float> cosines_and_sines(int64_t positions, int64_t head, double theta) {
  std::vector<float> list;
  for (int64_t position = 0; position < positions; ++position) {
    for (const bool is_sine : {false, true}) {
      for (int64_t i = 0; i < head / 2; ++i) {
        const double share = static_cast<double>(i) / static_cast<double>(head);
        const double angle = static_cast<double>(position) * std::pow(theta, -2 * share);
        list.push_back(static_cast<float>(is_sine ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
  return list;
}

}  // namespace qwen3
