// Cases with their data and right answers: computed once, ahead of time where it can be, and kept while they are asked
// for.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/conformance/answers.hpp"
#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

struct Example {
  Case spec;
  ConcreteCall call;
  std::shared_ptr<const Answer> answer;
  std::string words;
};

// Golden answers are slow and asked for again: by each implementation of the operator, and as the other data of every
// case of the same variations. The last ones are kept. [one thread at a time]
class Examples {
public:
  // The caller's included: runs of one implementation keep no more of them busy.
  static constexpr unsigned kMostThreads = 4;

  explicit Examples(uint64_t seed, std::shared_ptr<Answers> answers = std::make_shared<Answers>());
  ~Examples();
  Examples(const Examples&) = delete;
  Examples& operator=(const Examples&) = delete;

  // `other_data` draws the inputs anew. nullptr when the declaration does not allow the case.
  std::shared_ptr<const Example> get(const Case& c, bool other_data);
  // These will be asked for next, about in this order, and not with other data: threads of its own compute some of them
  // ahead. Takes the place of what was expected before; with none the threads end.
  void expect(const std::vector<Case>& upcoming);

private:
  class Ahead;
  struct Kept {
    std::string key;
    size_t bytes;
    std::shared_ptr<const Example> example;
  };
  void keep(std::string key, const std::shared_ptr<const Example>& example);

  uint64_t seed_;
  std::shared_ptr<Answers> answers_;
  std::list<Kept> kept_;  // used last first
  std::unordered_map<std::string_view, std::list<Kept>::iterator> index_;
  size_t bytes_ = 0;
  std::unique_ptr<Ahead> ahead_;
};

}  // namespace rlk::core::conformance
