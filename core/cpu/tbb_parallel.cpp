// The two hooks: a range split by TBB, and the whole range in one piece.
#include "core/cpu/tbb_parallel.hpp"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

namespace rlk::cpu {
namespace {

using Body = void (*)(void* user, int64_t begin, int64_t end);

void run_tbb(void* /*ctx*/, int64_t n, int64_t grain, Body body, void* user) {
  const auto size = static_cast<size_t>(std::max<int64_t>(grain, 1));
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, n, size),
                    [body, user](const tbb::blocked_range<int64_t>& range) { body(user, range.begin(), range.end()); });
}

void run_serial(void* /*ctx*/, int64_t n, int64_t /*grain*/, Body body, void* user) {
  body(user, 0, n);
}

}  // namespace

ParallelFor tbb_parallel() {
  return {nullptr, run_tbb, tbb::this_task_arena::max_concurrency()};
}
ParallelFor serial_parallel() {
  return {nullptr, run_serial, 1};
}

}  // namespace rlk::cpu
