// The size of a thread's stack does not change: it is asked for once a thread.
#include "core/cpu/plugin/stack.hpp"

#include <pthread.h>
#include <rlk/sdk/error.hpp>

#include <cstddef>
#include <future>
#include <system_error>

namespace rlk::cpu {
namespace {

constexpr size_t kEnough = size_t{1} << 20;

bool ask_whether_little() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  void* lowest = nullptr;
  size_t bytes = kEnough;
  pthread_attr_getstack(&attributes, &lowest, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes < kEnough;
}

}  // namespace

void with_enough_stack(const std::function<void()>& work) {
  thread_local const bool is_little = ask_whether_little();
  if (!is_little) return work();
  std::future<void> done;
  try {
    done = std::async(std::launch::async, work);
  } catch (const std::system_error&) {  // the implementation is not at fault: it must not be switched off
    throw sdk::Error(RLK_OUT_OF_MEMORY,
                     "the calling thread has less than 1 MiB of stack and no other can be started; raise the limit of "
                     "processes (ulimit -u, or the container's pids limit), or call with more stack");
  }
  done.get();
}

}  // namespace rlk::cpu
