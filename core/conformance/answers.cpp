// A question is all of a call that golden_answer reads, each number and each byte of the inputs: two questions are the
// same only where golden would compute the same. How tensors lie in memory is no part of it.
#include "core/conformance/answers.hpp"

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace rlk::core::conformance {
namespace {

class Asked {
public:
  explicit Asked(const ConcreteCall& call) {
    size_t bytes = 0;
    for (const Argument& input : call.inputs) bytes += input.bytes.size() + 64;
    text_.reserve(bytes + 1024);
    add(reinterpret_cast<uintptr_t>(call.decl));
    add_all(std::span(call.params));
    add_all(std::span(call.symbols));
    add_all(std::span(call.dtypes));
    add(call.inputs.size());
    for (const Argument& input : call.inputs) {
      add(input.present);
      if (!input.present) continue;  // what a call without it would have had there is not read
      add(input.dtype);
      add_all(std::span(input.shape));
      add_all(std::span(input.bytes));
    }
    add(call.outputs.size());
    for (const Argument& output : call.outputs) {
      add(output.present);
      add(output.dtype);
    }
    add(call.has_more_faults);
    add(call.faults.size());
    for (const Fault& fault : call.faults) {
      add(fault.kind);
      add(fault.row);
      add(fault.value);
    }
  }
  std::string take() { return std::move(text_); }

private:
  template <class T>
  void add(const T& number) {
    static_assert(std::has_unique_object_representations_v<T>);
    text_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  // With its length first: where one list ends and the next begins is a part of the question.
  template <class T, size_t count>
  void add_all(std::span<T, count> list) {
    static_assert(std::has_unique_object_representations_v<T>);
    add(list.size());
    if (!list.empty()) text_.append(reinterpret_cast<const char*>(list.data()), list.size_bytes());
  }

  std::string text_;
};

size_t bytes_in(const Answer& answer) {
  size_t bytes = sizeof(Answer);
  for (const golden::Output& output : answer.outputs) {
    bytes += sizeof(output) + output.kept.size() / 8 + output.exact.size() * sizeof(int64_t) +
             (output.value.size() + output.cond.size() + output.rounded.size()) * sizeof(double);
  }
  return bytes;
}

}  // namespace

std::shared_ptr<const Answer> Answers::to(const ConcreteCall& call) {
  std::string question = Asked(call).take();
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = index_.find(question); found != index_.end()) {
      known_.splice(known_.begin(), known_, found->second);
      return known_.front().answer;
    }
  }
  auto answer = std::make_shared<const Answer>(golden_answer(call));
  keep(std::move(question), answer);
  return answer;
}

void Answers::keep(std::string question, const std::shared_ptr<const Answer>& answer) {
  const size_t bytes = bytes_in(*answer) + question.size();
  if (bytes > most_bytes_ / 4) return;  // one call of many numbers does not take the place of all others
  const std::lock_guard lock(mutex_);
  if (index_.contains(question)) return;  // another thread was asked the same meanwhile
  known_.push_front({std::move(question), bytes, answer});
  index_.emplace(known_.front().question, known_.begin());
  bytes_ += bytes;
  while (bytes_ > most_bytes_) {
    bytes_ -= known_.back().bytes;
    index_.erase(known_.back().question);
    known_.pop_back();
  }
}

size_t Answers::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace rlk::core::conformance
