// A program that was started without standard input, output or error: no file of rlk's is given their numbers, or what
// the program prints would be written into it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <unistd.h>
#include <rlk/rlk.hpp>
#include <rlk/sdk/descriptor.hpp>

#include <initializer_list>
#include <vector>

#include "framework/env.hpp"
#include "framework/fs.hpp"
#include "framework/process.hpp"

namespace rlk::test {
namespace {

TEST(AboveStandard, MovesWhatWouldBeStandardAndLeavesTheRest) {
  EXPECT_EQ(testing::join(testing::in_fork([] {
              close(STDOUT_FILENO);
              const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
              if (fd != STDOUT_FILENO) return 1;
              const int moved = sdk::above_standard(fd);
              if (moved <= STDERR_FILENO || (fcntl(moved, F_GETFD) & FD_CLOEXEC) == 0) return 2;
              if (fcntl(STDOUT_FILENO, F_GETFD) >= 0) return 3;
              errno = ENOENT;
              return sdk::above_standard(moved) == moved && sdk::above_standard(-1) == -1 && errno == ENOENT ? 0 : 4;
            })),
            0);
}

// The plugins are judged, one serves its first calls, which leaves a breadcrumb, and there is a log. In a forked
// process, because the descriptors are closed for good.
class ClosedAtTheStart : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(ClosedAtTheStart, StaysClosed) {
  const testing::TempFolder folder;
  const std::string log = folder / "log", cache = folder / "cache";
  const testing::ScopedEnv variables[] = {{"RLK_LOG_FILE", log.c_str()},
                                          {"RLK_LOG", "debug"},
                                          {"RLK_CACHE_DIR", cache.c_str()},
                                          {"RLK_PLUGIN_PATH", RLK_TEST_PLUGIN}};
  EXPECT_EQ(testing::join(testing::in_fork([] {
              alarm(120);
              for (const int fd : GetParam()) close(fd);
              const auto is_open = [] {
                int open = 0;
                for (const int fd : GetParam()) open += fcntl(fd, F_GETFD) >= 0 ? 1 << fd : 0;
                return open;
              };
              auto* const runtime = new Runtime;
              if (const int open = is_open(); open != 0) return 10 + open;
              for (const char* backend : {"newer_minor", "cpu"}) {
                const Stream stream = runtime->stream(backend);
                std::vector<float> a(8, 1.0f), b(8, 2.0f), sum(8);
                call(stream, "add", static_cast<const rlk_add_params*>(nullptr),
                     {Tensor(a.data(), kF32, {8}), Tensor(b.data(), kF32, {8})}, {Tensor(sum.data(), kF32, {8})});
                stream.synchronize();
                if (sum != std::vector<float>(8, 3.0f)) return 1;
              }
              if (const int open = is_open(); open != 0) return 20 + open;
              runtime->reload();
              if (const int open = is_open(); open != 0) return 30 + open;
              delete runtime;
              return is_open();
            })),
            0)
      << "10, 20, 30 and the bits of the numbers that were given away: after the start, after calls, after a reload";
  EXPECT_NE(testing::read_text(log), "");
}
INSTANTIATE_TEST_SUITE_P(Numbers, ClosedAtTheStart, ::testing::Values(std::vector<int>{1}, std::vector<int>{0, 1, 2}),
                         [](const auto& instance) {
                           std::string name;
                           for (const int fd : instance.param) name += std::to_string(fd);
                           return name;
                         });

}  // namespace
}  // namespace rlk::test
