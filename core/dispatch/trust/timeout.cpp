// The thread, and the wait for it.
#include "core/dispatch/trust/timeout.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>  // and with it the library's own macros
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

#include "core/declaration/no_cancel.hpp"
#include "core/dispatch/trust/process_end.hpp"

namespace rlk::core {
namespace {

std::atomic<double> scale_of_all{1.0};

struct Wait {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::exception_ptr thrown;
};

// Set also when the plugin ends the thread instead of returning (pthread_exit).
class Over {
public:
  explicit Over(std::shared_ptr<Wait> wait) : wait_(std::move(wait)) {}
  ~Over() {
    const std::lock_guard lock(wait_->mutex);
    wait_->over = true;
    wait_->changed.notify_all();
  }
  Over(const Over&) = delete;
  Over& operator=(const Over&) = delete;

private:
  std::shared_ptr<Wait> wait_;
};

}  // namespace

void set_patience(double scale) {
  scale_of_all.store(scale, std::memory_order_relaxed);
}

double patience() {
  return scale_of_all.load(std::memory_order_relaxed);
}

bool run_with_timeout(double seconds, std::function<void()> work) {
  const NoCancel whole;
  const auto wait = std::make_shared<Wait>();
  const auto run = [wait, work = std::move(work)] {
    const NoCancel also;
    const Over over(wait);
    try {
      work();
    }
#ifdef __GLIBCXX__
    catch (const abi::__forced_unwind&) {  // the plugin ends the thread
      throw;
    }
#endif
    catch (...) {
      wait->thrown = std::current_exception();
    }
  };
  try {
    std::thread([run] {
      this_thread_is_the_hosts();
      run();
    }).detach();
  } catch (const std::system_error&) {
    run();
  }
  std::unique_lock lock(wait->mutex);
  const std::chrono::duration<double> longest(seconds * patience());
  if (!wait->changed.wait_for(lock, longest, [&] { return wait->over; })) return false;
  if (wait->thrown != nullptr) std::rethrow_exception(wait->thrown);
  return true;
}

}  // namespace rlk::core
