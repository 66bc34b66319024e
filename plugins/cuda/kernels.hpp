// The compiled kernels inside this plugin: one image per file of kernels/, loaded into a device's context when the
// first plan needs it.
#pragma once

#include "driver.hpp"

#include <map>
#include <mutex>
#include <string>

namespace rlk::cuda {

enum class Image { add, attention_mma, attention_simt, logp, logp_backward, count };

// Whether the kernels were compiled when this plugin was built.
bool kernels_built() noexcept;

class Kernels {
public:
  ~Kernels();  // with the context current
  // In a RelaxedScope: loading may allocate. dynamic_shared: bytes that launches will ask for. [thread-safe]
  FunctionHandle get(Image image, const std::string& name, int dynamic_shared = 0);

private:
  std::mutex mutex_;
  ModuleHandle modules_[static_cast<int>(Image::count)] = {};
  std::map<std::string, FunctionHandle> functions_;
};

// One argument struct, a one-dimensional grid.
template <class Args>
void launch(FunctionHandle function, int64_t blocks, int threads, int shared_bytes, StreamHandle stream,
            const Args& args) {
  if (blocks <= 0) return;
  constexpr int64_t kMaxBlocks = 0x7fffffff;
  if (blocks > kMaxBlocks) {
    throw sdk::Error(RLK_UNSUPPORTED,
                     "the call needs " + std::to_string(blocks) + " blocks, a grid has at most 2^31 - 1");
  }
  void* parameters[] = {const_cast<Args*>(&args)};
  check(driver().launch_kernel(function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1, 1,
                               static_cast<unsigned>(shared_bytes), stream, parameters, nullptr),
        "launching a kernel");
}

}  // namespace rlk::cuda
