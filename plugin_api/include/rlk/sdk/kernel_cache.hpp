// Compiled kernels kept between processes. Of eight ranks that need one kernel, one compiles it; the others load what
// it stored, and until then other implementations serve their calls.
#pragma once

#include <rlk/sdk/plugin.hpp>

#include <optional>
#include <string>
#include <utility>

namespace rlk::sdk {

// The right, and the duty, to compile one kernel: stored, or abandoned when the scope ends without that.
class CompileTurn {
public:
  // After begin() of the host's cache has said yes.
  CompileTurn(const Host& host, std::string key) : host_(&host), key_(std::move(key)) {}
  CompileTurn(const CompileTurn&) = delete;
  CompileTurn& operator=(const CompileTurn&) = delete;
  ~CompileTurn() {
    if (host_ != nullptr) host_->kernel_cache()->abandon(host_->abi().context, host_->plugin_id(), key_.c_str());
  }
  // For the other processes. That it could not be kept is no failure: this process has its kernel.
  void store(const std::string& kernel) noexcept {
    const rlk_status status = host_->kernel_cache()->store(host_->abi().context, host_->plugin_id(), key_.c_str(),
                                                           kernel.data(), kernel.size());
    if (status == RLK_OK) host_ = nullptr;
  }

private:
  const Host* host_;
  std::string key_;
};

// The kernel of `key`: what was stored, or what compile() returns, which is then stored. std::nullopt: another process
// or thread compiles it; a plan() that returns nullptr then says so to the host. The key names everything that the
// kernel depends on: its source, its options, the device's architecture, the compiler's version. compile may throw.
template <class Compile>
std::optional<std::string> cached_kernel(const Host& host, const std::string& key, Compile&& compile) {
  const rlk_kernel_cache_service* cache = host.kernel_cache();
  if (cache == nullptr) return compile();
  void* const context = host.abi().context;
  const auto load = [&]() -> std::optional<std::string> {
    std::string kernel;
    uint64_t size = 0;
    // Asked again when it did not fit, and when another one of a larger size took its place in between.
    while (cache->load(context, host.plugin_id(), key.c_str(), kernel.data(), kernel.size(), &size) == RLK_OK) {
      const bool is_whole = size <= kernel.size();
      kernel.resize(size);
      if (is_whole) return kernel;
    }
    return std::nullopt;
  };
  if (std::optional<std::string> kernel = load()) return kernel;
  if (!RLK_SDK_REACHES(cache, rlk_kernel_cache_service, abandon)) return compile();
  const rlk_status turn = cache->begin(context, host.plugin_id(), key.c_str());
  if (turn == RLK_NOT_READY) return std::nullopt;
  if (turn != RLK_OK) return compile();  // nowhere to keep it
  CompileTurn mine(host, key);
  if (std::optional<std::string> kernel = load()) return kernel;  // stored since we looked
  std::string kernel = compile();
  mine.store(kernel);
  return kernel;
}

}  // namespace rlk::sdk
