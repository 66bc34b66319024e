// A line on the terminal that says what takes so long, and is gone when it is done. Without a terminal one line of the
// log may say it instead.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace rlk::loader {

class Progress {
public:
  // For work of which a log is to have a line.
  struct Log {
    std::function<bool()> may_use_terminal;             // empty: always
    std::function<void(const std::string& what)> tell;  // called once, after some seconds without the terminal
  };

  // Shows "what (3 s)" on standard error, if that is a terminal, once it takes longer than a moment.
  explicit Progress(std::string what);
  Progress(std::string what, Log log);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // [thread-safe]
  void say(std::string what);

private:
  using Clock = std::chrono::steady_clock;
  void run();
  void show();

  const Log log_;
  const bool is_terminal_;
  std::mutex mutex_;  // of what follows
  std::condition_variable ends_;
  std::string what_;
  bool ended_ = false;
  bool shown_ = false;
  bool told_ = false;
  const Clock::time_point begin_ = Clock::now();
  std::thread thread_;
};

}  // namespace rlk::loader
