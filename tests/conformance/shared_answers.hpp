// Golden's answers for all runs of a program: a test tries one wrong implementation after the other in the same cases.
#pragma once

#include <memory>

#include "core/conformance/answers.hpp"

namespace rlk::test {

inline const std::shared_ptr<core::conformance::Answers>& shared_answers() {
  static const auto answers = std::make_shared<core::conformance::Answers>(size_t{96} << 20);
  return answers;
}

}  // namespace rlk::test
