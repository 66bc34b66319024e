// While rlk works on a thread, pthread_cancel waits: what unwinds a cancelled thread may not pass through functions
// that promise to throw nothing, and would end the process there. A plugin, or the program, may have asked for it.
#pragma once

#include <pthread.h>

namespace rlk::core {

class NoCancel {
public:
  NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace rlk::core
