// The runtime's services, but for the parallel one.
#include "conformance/hosts.hpp"

#include <algorithm>
#include <cstring>

#include "loader/host/services.hpp"

namespace rlk::test {
namespace {

void run_whole(void*, int64_t n, int64_t, rlk_parallel_body body, void* user) {
  if (n > 0) body(user, 0, n);
}
void run_backwards(void*, int64_t n, int64_t grain, rlk_parallel_body body, void* user) {
  if (n <= 0) return;
  for (int64_t begin = (n - 1) / grain * grain; begin >= 0; begin -= grain)
    body(user, begin, std::min(begin + grain, n));
}

constexpr rlk_parallel_service kSerial = {sizeof(rlk_parallel_service), 0, run_whole,
                                          [](void*) -> uint32_t { return 1; }};
constexpr rlk_parallel_service kBackwards = {sizeof(rlk_parallel_service), 0, run_backwards,
                                             [](void*) -> uint32_t { return 7; }};

template <const rlk_parallel_service& service>
const rlk_host* host_with() {
  static const rlk_host host = [] {
    rlk_host copy = *loader::host_services();
    copy.get_service = [](void* context, const char* id) -> const void* {
      if (std::strcmp(id, RLK_SERVICE_PARALLEL) == 0) return &service;
      return loader::host_services()->get_service(context, id);
    };
    return copy;
  }();
  return &host;
}

}  // namespace

const rlk_host* serial_host() {
  return host_with<kSerial>();
}
const rlk_host* backwards_host() {
  return host_with<kBackwards>();
}

}  // namespace rlk::test
