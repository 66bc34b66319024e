// Of how many processors a process may use the time, by what the kernel's files say in containers of all kinds.
#include "loader/host/processors.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <utility>
#include <vector>

#include "framework/fs.hpp"
#include "framework/process.hpp"
#include "loader/host/parallel.hpp"

namespace rlk::loader {
namespace {

struct Container {
  const char* name;
  std::vector<std::pair<const char*, const char*>> files;
  int count;
  const char* why;
};

constexpr const char* kSecond = "24 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
constexpr const char* kFirst =
    "24 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "25 24 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "26 24 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
constexpr const char* kMachine = "the affinity of this process leaves 8 of 16 processors";

class Containers : public ::testing::TestWithParam<Container> {};

TEST_P(Containers, GiveTheTimeOfSoManyProcessors) {
  const testing::TempFolder root;
  for (const auto& [name, content] : GetParam().files) root.file(name, content);
  const Processors found = processors_of(root.path(), 8, 16);
  EXPECT_EQ(found.count, GetParam().count);
  EXPECT_EQ(found.why, GetParam().why);
  EXPECT_EQ(found.is_quota, GetParam().count < 8);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Containers,
    ::testing::Values(Container{"no_files", {}, 8, kMachine},
                      Container{"second_without_a_limit",
                                {{"proc/self/mountinfo", kSecond},
                                 {"proc/self/cgroup", "0::/job\n"},
                                 {"sys/fs/cgroup/job/cpu.max", "max 100000\n"}},
                                8,
                                kMachine},
                      Container{"second",
                                {{"proc/self/mountinfo", kSecond},
                                 {"proc/self/cgroup", "0::/job\n"},
                                 {"sys/fs/cgroup/job/cpu.max", "250000 100000\n"}},
                                3,
                                "the control group /sys/fs/cgroup/job has the time of 2.5 of 8 processors"},
                      Container{"a_group_above",
                                {{"proc/self/mountinfo", kSecond},
                                 {"proc/self/cgroup", "0::/pod/job/step\n"},
                                 {"sys/fs/cgroup/pod/cpu.max", "200000 100000\n"},
                                 {"sys/fs/cgroup/pod/job/cpu.max", "400000 100000\n"},
                                 {"sys/fs/cgroup/pod/job/step/cpu.max", "max 100000\n"}},
                                2,
                                "the control group /sys/fs/cgroup/pod has the time of 2 of 8 processors"},
                      Container{"a_namespace_of_its_own",
                                {{"proc/self/mountinfo", kSecond},
                                 {"proc/self/cgroup", "0::/\n"},
                                 {"sys/fs/cgroup/cpu.max", "50000 100000\n"}},
                                1,
                                "the control group /sys/fs/cgroup has the time of 0.5 of 8 processors"},
                      Container{"more_than_the_affinity",
                                {{"proc/self/mountinfo", kSecond},
                                 {"proc/self/cgroup", "0::/\n"},
                                 {"sys/fs/cgroup/cpu.max", "1200000 100000\n"}},
                                8,
                                kMachine},
                      Container{"first",
                                {{"proc/self/mountinfo", kFirst},
                                 {"proc/self/cgroup", "5:cpuset:/other\n3:cpu,cpuacct:/job\n0::/\n"},
                                 {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n"},
                                 {"sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"},
                                 {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                                 {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
                                4,
                                "the control group /sys/fs/cgroup/cpu,cpuacct/job has the time of 4 of 8 processors"},
                      Container{"first_named_as_the_host_sees_it",
                                {{"proc/self/mountinfo",
                                  "25 24 0:29 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"},
                                 {"proc/self/cgroup", "3:cpu:/docker/ab\n"},
                                 {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"},
                                 {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
                                2,
                                "the control group /sys/fs/cgroup/cpu has the time of 1.5 of 8 processors"},
                      Container{"outside_of_what_is_mounted",
                                {{"proc/self/mountinfo", kSecond},
                                 {"proc/self/cgroup", "0::/../other\n"},
                                 {"sys/fs/cgroup/cpu.max", "100000 100000\n"}},
                                1,
                                "the control group /sys/fs/cgroup has the time of 1 of 8 processors"},
                      Container{"damaged",
                                {{"proc/self/mountinfo", "x\n - cgroup2\n"},
                                 {"proc/self/cgroup", "0\n::\n"},
                                 {"sys/fs/cgroup/cpu.max", "1\n"}},
                                8,
                                kMachine}),
    [](const auto& instance) { return std::string(instance.param.name); });

// In a process of its own: the pool of threads is made once.
TEST(Affinity, IsWhatLoopsFollow) {
  EXPECT_EQ(rlk::testing::join(rlk::testing::in_fork([] {
              unsetenv("RLK_NUM_THREADS");
              cpu_set_t set;
              if (sched_getaffinity(0, sizeof(set), &set) != 0) return 0;
              int first = 0;
              while (!CPU_ISSET(first, &set)) ++first;
              CPU_ZERO(&set);
              CPU_SET(first, &set);
              if (sched_setaffinity(0, sizeof(set), &set) != 0) return 2;
              return processors().count == 1 && thread_count() == 1 ? 0 : 3;
            })),
            0);
}

}  // namespace
}  // namespace rlk::loader
