// Checks the CUDA plugin on a real device, through its C ABI, against fp64 loops on the host; then times it.
//   rlk_cuda_selfcheck PLUGIN.so [part...]     parts: add logp logp_backward attention attention_few times
// Without parts: all but attention_few, which is for an emulated device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "harness.hpp"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: %s PLUGIN.so [part...]\n", argv[0]);
    return 2;
  }
  const auto wanted = [&](const char* part) {
    if (argc == 2) return std::strcmp(part, "attention_few") != 0;
    return std::any_of(argv + 2, argv + argc, [&](const char* name) { return std::strcmp(name, part) == 0; });
  };
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  selfcheck::Plugin plugin(argv[1]);
  selfcheck::Report report;
  const std::pair<const char*, void (*)(selfcheck::Plugin&, selfcheck::Report&)> parts[] = {
      {"add", selfcheck::check_add},
      {"logp", selfcheck::check_logp},
      {"logp_backward", selfcheck::check_logp_backward},
      {"attention", selfcheck::check_attention},
      {"attention_few", selfcheck::check_attention_few},
      {"times", selfcheck::measure}};
  for (const auto& [name, part] : parts) {
    if (!wanted(name)) continue;
    const auto start = std::chrono::steady_clock::now();
    const int failures = report.failures(), done = report.checks();
    part(plugin, report);
    std::printf("%s: %d checks, %d failed, %.1f s\n", name, report.checks() - done, report.failures() - failures,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("%s: %d checks, %d failed\n", report.failures() == 0 ? "PASS" : "FAIL", report.checks(),
              report.failures());
  return report.failures() == 0 ? 0 : 1;
}
