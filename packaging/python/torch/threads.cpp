#include "threads.hpp"

#include <rlk/rlk.h>

#include "shim.hpp"

namespace rlk::torch {
namespace {

uint32_t thread_count(void* /*context*/) {
  uint32_t count = 1;
  return shim.torch_get_num_threads(&count) == 0 ? count : 1;
}

struct Work {
  void (*function)(void* user, uint32_t i);
  void* user;
};

void run(void* /*context*/, uint32_t n, void (*function)(void* user, uint32_t i), void* user) {
  Work work{function, user};
  // Should it fail, nothing is lost: librlk does what is left out.
  shim.torch_parallel_for(
      0, n, 1,
      [](int64_t begin, int64_t end, void* given) {
        const Work& wanted = *static_cast<const Work*>(given);
        for (int64_t i = begin; i < end; ++i) wanted.function(wanted.user, static_cast<uint32_t>(i));
      },
      &work);
}

}  // namespace

void share_threads() {
  const rlk_thread_pool pool = {sizeof(rlk_thread_pool), 0, nullptr, thread_count, run};
  rlk_set_thread_pool(&pool, nullptr);
}

}  // namespace rlk::torch
