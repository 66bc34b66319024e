// librlk is rlk_runtime, whole; a library needs a source of its own, and this is the question that it alone answers.
#include <rlk/rlk.h>

#include "loader/host/services.hpp"

extern "C" const char* rlk_version(void) {
  return rlk::loader::host_version();
}
