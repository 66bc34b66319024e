// Did the stream report a data error of one call? rlk knows once it has asked the stream after the call: a plugin
// may keep its errors until then.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace rlk::core {

// Shared by the stream, which answers, and by the shadow check, which asks. [thread-safe]
class Telling {
public:
  enum class Answer : uint8_t {
    not_asked,
    told,
    silent,   // no error was reported, of this call or of any other
    unclear,  // another call's error was reported: a stream keeps the first one alone
  };
  explicit Telling(uint32_t tag) : tag_(tag) {}

  uint32_t tag() const { return tag_; }
  // rlk has asked the stream, or never will. Once.
  void settle(Answer answer) {
    std::function<void()> next;
    {
      const std::lock_guard lock(mutex_);
      answer_ = answer;
      if (answer == Answer::silent) next = std::move(when_silent_);
      when_silent_ = nullptr;
    }
    if (next) next();
  }
  // While the stream has not been asked the function is kept, and called if the stream is silent when asked.
  Answer ask(std::function<void()> when_silent) {
    const std::lock_guard lock(mutex_);
    if (answer_ == Answer::not_asked) when_silent_ = std::move(when_silent);
    return answer_;
  }

private:
  const uint32_t tag_;
  std::mutex mutex_;
  Answer answer_ = Answer::not_asked;
  std::function<void()> when_silent_;
};

}  // namespace rlk::core
