// The sizes and weights of a small layer of Qwen3, on the host and on a device.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "device_array.hpp"

namespace qwen3 {

// Qwen3's proportions, smaller: heads are not hidden / q_heads wide.
constexpr int64_t kHidden = 48, kQHeads = 4, kKvHeads = 2, kHead = 16, kInner = 80;
constexpr int64_t kQ = kQHeads * kHead, kKv = kKvHeads * kHead;
constexpr int64_t kSequences = 2, kPrompts[kSequences] = {9, 14}, kPromptTokens = 23, kSteps = 4;
constexpr int64_t kPositions = 32;
constexpr double kTheta = 1e6;
using Floats = DeviceArray<float>;
using Integers = DeviceArray<int64_t>;

inline std::vector<float> random_numbers(int64_t count, double mean, double deviation, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> draw(mean, deviation);
  std::vector<float> list(static_cast<size_t>(count));
  for (float& number : list) number = static_cast<float>(draw(engine));
  return list;
}

// Of the weights, and of their gradients.
template <class Tensor>
struct PerWeight {
  Tensor input_norm, q, k, v, q_norm, k_norm, o, post_norm, gate, up, down;

  template <class Function>
  void each(const Function& function) const {
    function("input norm", input_norm), function("q projection", q), function("k projection", k);
    function("v projection", v), function("q norm", q_norm), function("k norm", k_norm);
    function("o projection", o), function("post norm", post_norm), function("gate projection", gate);
    function("up projection", up), function("down projection", down);
  }
};
using HostWeights = PerWeight<std::vector<float>>;
using DeviceWeights = PerWeight<Floats>;

inline HostWeights random_weights() {
  const auto norm = [](int64_t count, uint32_t seed) { return random_numbers(count, 1, 0.2, seed); };
  const auto matrix = [](int64_t out, int64_t in, uint32_t seed) {
    return random_numbers(out * in, 0, 1.2 / std::sqrt(static_cast<double>(in)), seed);
  };
  return {norm(kHidden, 1),
          matrix(kQ, kHidden, 2),
          matrix(kKv, kHidden, 3),
          matrix(kKv, kHidden, 4),
          norm(kHead, 5),
          norm(kHead, 6),
          matrix(kHidden, kQ, 7),
          norm(kHidden, 8),
          matrix(kInner, kHidden, 9),
          matrix(kInner, kHidden, 10),
          matrix(kHidden, kInner, 11)};
}

inline DeviceWeights on_device(const rlk::Stream& s, const HostWeights& w) {
  return {{s, w.input_norm}, {s, w.q},         {s, w.k},    {s, w.v},  {s, w.q_norm}, {s, w.k_norm},
          {s, w.o},          {s, w.post_norm}, {s, w.gate}, {s, w.up}, {s, w.down}};
}

inline DeviceWeights like_weights(const rlk::Stream& s) {
  return {{s, kHidden},         {s, kQ * kHidden}, {s, kKv * kHidden}, {s, kKv * kHidden},    {s, kHead},
          {s, kHead},           {s, kHidden * kQ}, {s, kHidden},       {s, kInner * kHidden}, {s, kInner * kHidden},
          {s, kHidden * kInner}};
}

}  // namespace qwen3
