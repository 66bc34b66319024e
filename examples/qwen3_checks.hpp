// What qwen3_decode asks of the tokens that it drew: the same ids whoever calls, and the logits of another way to them.
#pragma once

#include <rlk/ops/cast.hpp>
#include <rlk/ops/embedding.hpp>
#include <rlk/rlk.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "qwen3_decoder.hpp"

namespace qwen3 {

struct Settings {
  Shapes shapes;
  std::string backend = "cpu", reference = "cpu", dtype = "f32";
  double bound = 0;  // 0: that of the dtype
  rlk_dtype type() const { return dtype == "bf16" ? rlk::kBf16 : rlk::kF32; }
};

inline std::vector<float> as_floats(const rlk::Stream& stream, const DeviceNumbers& numbers, int64_t rows,
                                    int64_t columns) {
  const Floats wide(stream, rows * columns);
  rlk::ops::Cast cast;
  cast.in.x = numbers.as({rows, columns});
  cast.out.y = wide.as({rows, columns});
  cast(stream);
  return wide.host();
}

// Whether two lists of ids [batch, steps] are one; prints where they part.
inline bool are_equal(const char* what, const std::vector<int64_t>& ids, const std::vector<int64_t>& expected,
                      int64_t steps) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (ids[i] == expected[i]) continue;
    const auto at = static_cast<int64_t>(i);
    std::printf("%s differ: sequence %lld has %lld in step %lld, not %lld\n", what, static_cast<long long>(at / steps),
                static_cast<long long>(ids[i]), static_cast<long long>(at % steps),
                static_cast<long long>(expected[i]));
    return false;
  }
  std::printf("%s are equal: %zu\n", what, expected.size());
  return true;
}

// logits [step][batch, vocabulary], drawn [batch, steps].
inline bool draws_agree(const rlk::Runtime& runtime, const Shapes& shapes, const std::vector<Text>& prompts,
                        const std::vector<std::vector<float>>& logits, const std::vector<int64_t>& drawn) {
  const rlk::Stream cpu = runtime.stream("cpu");
  const Sampler sampler(cpu, shapes.batch);
  const Floats scores(cpu, shapes.batch * shapes.vocabulary);
  const Integers positions(cpu, shapes.batch), ids(cpu, shapes.batch);
  std::vector<int64_t> all(drawn.size());
  for (int64_t step = 0; step < shapes.steps; ++step) {
    std::vector<int64_t> at;
    for (const Text& prompt : prompts) at.push_back(static_cast<int64_t>(prompt.size()) + step);
    scores.set(logits[static_cast<size_t>(step)]), positions.set(at);
    Served served;
    sampler.draw(cpu, scores.as({shapes.batch, shapes.vocabulary}), positions, ids, served);
    const std::vector<int64_t> now = ids.host();
    for (size_t b = 0; b < now.size(); ++b)
      all[b * static_cast<size_t>(shapes.steps) + static_cast<size_t>(step)] = now[b];
  }
  return are_equal("ids of the steps and those that sample draws on cpu from their logits", all, drawn, shapes.steps);
}

inline bool logits_agree(const rlk::Runtime& runtime, const Settings& settings, const std::vector<Text>& prompts,
                         const std::vector<std::vector<float>>& logits, const std::vector<int64_t>& drawn) {
  const Shapes& shapes = settings.shapes;
  std::vector<Text> texts = prompts;
  std::vector<int64_t> rows;  // of the tokens that a step read: [step, batch]
  for (int64_t step = 0; step < shapes.steps; ++step) {
    int64_t first = 0;
    for (const Text& prompt : prompts) {
      const auto length = static_cast<int64_t>(prompt.size());
      rows.push_back(first + length - 1 + step), first += length + shapes.steps - 1;
    }
  }
  for (size_t b = 0; b < texts.size(); ++b) {
    const auto ids = drawn.begin() + static_cast<std::ptrdiff_t>(b) * shapes.steps;
    texts[b].insert(texts[b].end(), ids, ids + shapes.steps - 1);
  }
  const rlk::Stream stream = runtime.stream(settings.reference.c_str());
  const Decoder decoder(stream, settings.type(), shapes);
  decoder.forget(stream);
  const Prefill prefill(stream, settings.type(), shapes, texts);
  const auto n = static_cast<int64_t>(rows.size());
  const Integers at(stream, rows);
  const DeviceNumbers states(stream, settings.type(), n * shapes.hidden),
      all(stream, settings.type(), n * shapes.vocabulary);
  rlk::ops::Embedding pick;  // a state is a row by its number
  pick.in.ids = at.as({n});
  pick.in.weight = prefill.run(stream, decoder).as({prefill.count(), shapes.hidden});
  pick.out.y = states.as({n, shapes.hidden});
  pick(stream);
  decoder.logits(stream, n, states, all);
  const std::vector<float> expected = as_floats(stream, all, n, shapes.vocabulary);
  float largest = 0, error = 0;
  bool is_finite = true;
  auto wanted = expected.begin();
  for (const std::vector<float>& step : logits) {
    for (const float got : step) {
      is_finite = is_finite && std::isfinite(got) && std::isfinite(*wanted);
      largest = std::max(largest, std::fabs(*wanted)), error = std::max(error, std::fabs(got - *wanted)), ++wanted;
    }
  }
  error /= largest;
  const bool is_good = is_finite && error <= settings.bound;
  std::printf("logits of the steps and of one prefill of the texts on %s: error %.1e of the largest, at most %.0e%s\n",
              settings.reference.c_str(), is_finite ? static_cast<double>(error) : NAN, settings.bound,
              is_good ? "" : ": beyond the bound");
  return is_good;
}

}  // namespace qwen3
