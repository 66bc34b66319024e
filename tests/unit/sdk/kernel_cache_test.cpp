// Is a kernel compiled once, by one process, and by every process where there is no cache?
#include <gtest/gtest.h>
#include <rlk/sdk.hpp>

#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

namespace {

namespace sdk = rlk::sdk;

// A host's cache, as its services see it.
struct Cache {
  std::map<std::string, std::string> entries;
  std::set<std::string> compiled_elsewhere, turns;
  rlk_status storing = RLK_OK;
  bool has_folder = true;
  bool knows_turns = true;

  static Cache& of(void* context) { return *static_cast<Cache*>(context); }
  static rlk_status load(void* context, const char*, const char* key, void* memory, uint64_t capacity, uint64_t* size) {
    const auto found = of(context).entries.find(key);
    if (found == of(context).entries.end()) return RLK_NOT_FOUND;
    *size = found->second.size();
    if (*size <= capacity) std::memcpy(memory, found->second.data(), *size);
    return RLK_OK;
  }
  static rlk_status store(void* context, const char*, const char* key, const void* memory, uint64_t size) {
    if (of(context).storing != RLK_OK) return of(context).storing;
    of(context).turns.erase(key);
    of(context).entries[key] = std::string(static_cast<const char*>(memory), size);
    return RLK_OK;
  }
  static rlk_status begin(void* context, const char*, const char* key) {
    if (!of(context).has_folder) return RLK_UNSUPPORTED;
    if (of(context).compiled_elsewhere.count(key) != 0) return RLK_NOT_READY;
    of(context).turns.insert(key);
    return RLK_OK;
  }
  static void abandon(void* context, const char*, const char* key) { of(context).turns.erase(key); }
};

class KernelCache : public testing::Test {
protected:
  std::optional<std::string> get(const char* key) {
    service_.struct_size = cache_.knows_turns ? sizeof(service_) : offsetof(rlk_kernel_cache_service, begin);
    current_ = &service_;
    const sdk::Host host(host_, "acme");
    return sdk::cached_kernel(host, key, [&] { return ++compiled_, std::string("machine code"); });
  }
  static inline const rlk_kernel_cache_service* current_ = nullptr;
  Cache cache_;
  rlk_kernel_cache_service service_ = {sizeof(service_), 0, &Cache::load, &Cache::store, &Cache::begin,
                                       &Cache::abandon};
  rlk_host host_ = {sizeof(host_), 0, 0, 0, 0, 0, "test", "1", &cache_, [](void*, const char* id) -> const void* {
                      return std::string(id) == RLK_SERVICE_KERNEL_CACHE ? current_ : nullptr;
                    }};
  int compiled_ = 0;
};

TEST_F(KernelCache, CompilesOnceAndStores) {
  EXPECT_EQ(get("k"), "machine code");
  EXPECT_EQ(get("k"), "machine code");
  EXPECT_EQ(compiled_, 1);
  EXPECT_EQ(cache_.entries["k"], "machine code");
  EXPECT_TRUE(cache_.turns.empty());
}

TEST_F(KernelCache, IsNotReadyWhileAnotherProcessCompiles) {
  cache_.compiled_elsewhere = {"k"};
  EXPECT_EQ(get("k"), std::nullopt);
  EXPECT_EQ(compiled_, 0);
  cache_.entries["k"] = "theirs";
  EXPECT_EQ(get("k"), "theirs");
}

TEST_F(KernelCache, AFailedCompilationLetsOthersTry) {
  current_ = &service_;
  const sdk::Host host(host_, "acme");
  EXPECT_THROW(sdk::cached_kernel(host, "k", []() -> std::string { throw std::runtime_error("the compiler crashed"); }),
               std::runtime_error);
  EXPECT_TRUE(cache_.turns.empty());
}

TEST_F(KernelCache, WhatCannotBeStoredServesThisProcess) {
  cache_.storing = RLK_UNSUPPORTED;
  EXPECT_EQ(get("k"), "machine code");
  EXPECT_TRUE(cache_.turns.empty());  // others need not wait for it
}

TEST_F(KernelCache, EverybodyCompilesWithoutAFolderOrWithAHostThatKnowsNoTurns) {
  cache_.has_folder = false;
  EXPECT_EQ(get("k"), "machine code");
  cache_.knows_turns = false;
  EXPECT_EQ(get("k"), "machine code");
  EXPECT_EQ(compiled_, 2);
}

TEST_F(KernelCache, WithoutTheServiceItCompiles) {
  rlk_host bare = host_;
  bare.get_service = [](void*, const char*) -> const void* { return nullptr; };
  const sdk::Host host(bare, "acme");
  EXPECT_EQ(sdk::cached_kernel(host, "k", [] { return std::string("x"); }), "x");
}

}  // namespace
