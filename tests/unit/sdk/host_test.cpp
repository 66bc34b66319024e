// Do loops of a plugin keep its exceptions out of the host's thread pool?
#include <gtest/gtest.h>
#include <rlk/sdk.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace sdk = rlk::sdk;

// A host whose pool runs every range on a thread of its own, or all on the caller's, and counts what it must never see.
struct Pool {
  bool has_threads = false;
  int ranges = 0;
  std::atomic<int> leaked{0};

  void run(int64_t n, int64_t grain, rlk_parallel_body body, void* user) {
    std::vector<std::thread> threads;
    for (int64_t begin = 0; begin < n; begin += grain) {
      ++ranges;
      const auto range = [=, this] {
        try {
          body(user, begin, std::min(begin + grain, n));
        } catch (...) {
          ++leaked;
        }
      };
      if (has_threads) {
        threads.emplace_back(range);
      } else {
        range();
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
};

const rlk_parallel_service kService = {sizeof(kService), 0,
                                       [](void* context, int64_t n, int64_t grain, rlk_parallel_body body, void* user) {
                                         static_cast<Pool*>(context)->run(n, grain, body, user);
                                       },
                                       [](void*) { return uint32_t{4}; }};

rlk_host host_of(Pool& pool) {
  rlk_host host{};
  host.struct_size = sizeof(host);
  host.context = &pool;
  host.get_service = [](void*, const char* id) -> const void* {
    return std::strcmp(id, RLK_SERVICE_PARALLEL) == 0 ? &kService : nullptr;
  };
  return host;
}

TEST(ParallelFor, CoversEveryIndexOnce) {
  Pool pool{.has_threads = true};
  const rlk_host abi = host_of(pool);
  std::vector<int> seen(10);
  sdk::Host(abi, "acme").parallel_for(10, 3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  EXPECT_EQ(seen, std::vector<int>(10, 1));
  EXPECT_EQ(pool.ranges, 4);
}

TEST(ParallelFor, WhatABodyThrowsReachesTheCallerAndNotTheHost) {
  Pool pool;
  const rlk_host abi = host_of(pool);
  int begun = 0;
  try {
    sdk::Host(abi, "acme").parallel_for(10, 1, [&](int64_t begin, int64_t) {
      ++begun;
      if (begin == 2) throw sdk::Error(RLK_OUT_OF_MEMORY, "no scratch memory");
    });
    FAIL() << "taken";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), RLK_OUT_OF_MEMORY);
    EXPECT_STREQ(error.what(), "no scratch memory");
  }
  EXPECT_EQ(pool.leaked, 0);
  EXPECT_EQ(pool.ranges, 10);
  EXPECT_EQ(begun, 3) << "ranges after the failure are not begun";
}

TEST(ParallelFor, OfSeveralThreadsThatThrowOneIsHeard) {
  for (int round = 0; round < 20; ++round) {
    Pool pool{.has_threads = true};
    const rlk_host abi = host_of(pool);
    EXPECT_THROW(
        sdk::Host(abi, "acme")
            .parallel_for(8, 1, [](int64_t begin, int64_t) { throw std::runtime_error(std::to_string(begin)); }),
        std::runtime_error);
    EXPECT_EQ(pool.leaked, 0);
  }
}

TEST(ParallelFor, AfterAFailureTheNextLoopRuns) {
  Pool pool;
  const rlk_host abi = host_of(pool);
  const sdk::Host host(abi, "acme");
  EXPECT_THROW(host.parallel_for(2, 1, [](int64_t, int64_t) { throw 7; }), int);
  int begun = 0;
  host.parallel_for(2, 1, [&](int64_t, int64_t) { ++begun; });
  EXPECT_EQ(begun, 2);
}

}  // namespace
