// Which right answers are known already? Calls of the same numbers are asked for again and again: tensors that lie
// otherwise in memory, the forward of several gradients, and the same cases in a run after this one.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/conformance/golden_bridge.hpp"

namespace rlk::core::conformance {

// The answers that were asked for last. [thread-safe]
class Answers {
public:
  explicit Answers(size_t most_bytes = size_t{64} << 20) : most_bytes_(most_bytes) {}

  // golden_answer(call), which may have been computed before. The inputs of the call are filled.
  std::shared_ptr<const Answer> to(const ConcreteCall& call);

  size_t bytes() const;

private:
  struct Known {
    std::string question;
    size_t bytes;
    std::shared_ptr<const Answer> answer;
  };
  void keep(std::string question, const std::shared_ptr<const Answer>& answer);

  const size_t most_bytes_;
  mutable std::mutex mutex_;                                                // of what follows
  std::list<Known> known_;                                                  // asked for last first
  std::unordered_map<std::string_view, std::list<Known>::iterator> index_;  // by question
  size_t bytes_ = 0;
};

}  // namespace rlk::core::conformance
