// A line on the terminal that says what takes so long, and is gone when it is done. Nothing without a terminal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace rlk::cli {

class Progress {
public:
  // Shows "what (3 s)" on standard error once it takes longer than a moment.
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // [thread-safe]
  void say(std::string what);

private:
  void show();

  std::mutex mutex_;  // of what follows
  std::condition_variable ends_;
  std::string what_;
  bool ended_ = false;
  bool shown_ = false;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::thread thread_;
};

}  // namespace rlk::cli
