// What tests of the API share: a runtime with the built-in CPU, and a small call.
#pragma once

#include <rlk/ops/logp.h>
#include <rlk/rlk.hpp>

#include <cmath>
#include <string>
#include <vector>

namespace rlk::test {

inline Runtime& runtime() {
  static Runtime shared;
  return shared;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Logp {
  int64_t rows = 3, vocabulary = 5;
  std::vector<float> logits = {1, 2, 3, 4, 5, 0, 0, 0, 0, 0, -1, 3, -INFINITY, 2, 0};
  std::vector<int64_t> ids = {4, 2, 1};
  std::vector<float> logp = std::vector<float>(3, -7), entropy = std::vector<float>(3, -7);

  void run(const Stream& stream, const rlk_logp_params* params = nullptr, const rlk_call_options* options = nullptr) {
    call(stream, "logp", params, {Tensor(logits.data(), kF32, {rows, vocabulary}), Tensor(ids.data(), kI64, {rows})},
         {Tensor(logp.data(), kF32, {rows}), Tensor(), Tensor(entropy.data(), kF32, {rows})}, options);
  }
  double expected_logp(size_t row) const {
    double sum = 0;
    for (size_t v = 0; v < 5; ++v) sum += std::exp(static_cast<double>(logits[row * 5 + v]));
    return static_cast<double>(logits[row * 5 + static_cast<size_t>(ids[row])]) - std::log(sum);
  }
};

}  // namespace rlk::test
