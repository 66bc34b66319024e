// Checks the CUDA plugin on a real device, through its C ABI, against fp64 loops on the host; then times it.
//   rlk_cuda_selfcheck PLUGIN.so [--no-checks] [--no-times]
#include <chrono>
#include <cstdio>
#include <cstring>

#include "harness.hpp"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::printf("usage: %s PLUGIN.so [--no-checks] [--no-times]\n", argv[0]);
    return 2;
  }
  bool checks = true, times = true;
  for (int i = 2; i < argc; ++i) {
    checks = checks && std::strcmp(argv[i], "--no-checks") != 0;
    times = times && std::strcmp(argv[i], "--no-times") != 0;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  selfcheck::Plugin plugin(argv[1]);
  selfcheck::Report report;
  const std::pair<const char*, void (*)(selfcheck::Plugin&, selfcheck::Report&)> parts[] = {
      {"add", selfcheck::check_add},
      {"logp", selfcheck::check_logp},
      {"logp_backward", selfcheck::check_logp_backward},
      {"attention", selfcheck::check_attention},
      {"times", selfcheck::measure}};
  for (const auto& [name, part] : parts) {
    if (std::strcmp(name, "times") == 0 ? !times : !checks) continue;
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
