// Whether a part of a call is a call of its own: golden's answer to it is what the answer to the whole call has there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/sample.hpp"

namespace rlk::core::conformance {

// Whether the part has the element, by its number in the whole tensor.
inline bool keeps(const Kept& kept, const std::vector<int64_t>& shape, int64_t element) {
  for (size_t axis = shape.size(); axis-- > 0; element /= shape[axis]) {
    const int64_t index = element % shape[axis];
    if (kept[axis] && !std::binary_search(kept[axis]->begin(), kept[axis]->end(), index)) return false;
  }
  return true;
}

// The elements of a tensor that a part keeps, in their order.
inline std::vector<int64_t> places_kept(const Kept& kept, const std::vector<int64_t>& shape) {
  int64_t total = 1;
  for (const int64_t size : shape) total *= size;
  std::vector<int64_t> places;
  for (int64_t element = 0; element < total; ++element) {
    if (keeps(kept, shape, element)) places.push_back(element);
  }
  return places;
}

// The whole call is filled.
inline void expect_answer_of_whole(const ConcreteCall& whole, Sample part, const std::string& words) {
  for (size_t i = 0; i < whole.inputs.size(); ++i) {
    const Argument& from = whole.inputs[i];
    if (!from.present) continue;
    const auto size = static_cast<std::ptrdiff_t>(size_of(from.dtype));
    std::vector<std::byte>& to = part.call.inputs[i].bytes;
    to.clear();
    for (const int64_t place : places_kept(part.inputs[i], from.shape)) {
      to.insert(to.end(), from.bytes.begin() + place * size, from.bytes.begin() + (place + 1) * size);
    }
  }
  const Answer right = golden_answer(whole), got = golden_answer(part.call);
  for (size_t i = 0; i < whole.outputs.size(); ++i) {
    if (!part.judged[i]) continue;
    const std::vector<int64_t> places = places_kept(part.outputs[i], whole.outputs[i].shape);
    ASSERT_EQ(got.outputs[i].value.size(), places.size()) << words;
    for (size_t k = 0; k < places.size(); ++k) {
      const auto place = static_cast<size_t>(places[k]);
      const double a = got.outputs[i].value[k], b = right.outputs[i].value[place];
      const double condition = right.outputs[i].cond[place];
      const bool is_same = a == b || (std::isnan(a) && std::isnan(b)) || std::isinf(condition) ||
                           std::fabs(a - b) <= 1e-12 * (std::fabs(b) + condition);
      ASSERT_TRUE(is_same) << words << ": element " << places[k] << " is " << a << " in the part, " << b
                           << " in the whole call";
    }
  }
}

}  // namespace rlk::core::conformance
