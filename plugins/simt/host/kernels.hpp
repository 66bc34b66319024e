// The kernels of a device: images from the vendor's table, loaded when the first plan needs one, and their launches.
#pragma once

#include "calls.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

namespace rlk::simt::host {

class Kernels {
public:
  explicit Kernels(int device) : device_(device) {}
  ~Kernels();  // with the device current
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  // In a RelaxedScope: loading may allocate. dynamic_shared: bytes that launches will ask for. Throws RLK_NOT_READY
  // while the image is compiled. [thread-safe]
  FunctionHandle get(const char* image, const std::string& name, int dynamic_shared = 0);

private:
  // Compiling and loading take their time: what needs one image does not wait for another.
  struct Image {
    std::mutex mutex;  // held while it is loaded
    ModuleHandle module = nullptr;
  };
  ModuleHandle module_of(const char* image);

  const int device_;
  std::mutex mutex_;                     // of the maps
  std::map<std::string, Image> images_;  // an entry stays where it is
  std::map<std::string, FunctionHandle> functions_;
};

// The most blocks of that many threads that one launch may have.
inline int64_t grid_limit(int threads) noexcept {
  constexpr int64_t kMostBlocks = 0x7fffffff;
  return std::clamp<int64_t>(driver().grid_threads / threads, 1, kMostBlocks);
}

// When a kernel may begin: when those ahead of it in its stream are done, or before, where it waits for them itself
// (wait_for_earlier() of ../simt.cuh).
enum class Start { after, early };

// One argument struct, a one-dimensional grid within its limit.
template <class Args>
void launch_grid(FunctionHandle function, int64_t blocks, int threads, int shared_bytes, StreamHandle stream,
                 const Args& args, Start start = Start::after) {
  void* parameters[] = {const_cast<Args*>(&args)};
  if (start == Start::early) {
    check(driver().launch_early(function, static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
                                static_cast<unsigned>(shared_bytes), stream, parameters),
          "launching a kernel");
    return;
  }
  check(driver().launch_kernel(function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1, 1,
                               static_cast<unsigned>(shared_bytes), stream, parameters, nullptr),
        "launching a kernel");
}

// A kernel whose blocks walk on by the size of the grid until nothing is left: any number of blocks will do.
template <class Args>
void launch_walking(FunctionHandle function, int64_t blocks, int threads, int shared_bytes, StreamHandle stream,
                    const Args& args, Start start = Start::after) {
  if (blocks <= 0) return;
  launch_grid(function, std::min(blocks, grid_limit(threads)), threads, shared_bytes, stream, args, start);
}

// A kernel whose blocks do one piece each. What one grid cannot hold is launched in parts; args.first_block tells the
// kernel which one it is.
template <class Args>
void launch(FunctionHandle function, int64_t blocks, int threads, int shared_bytes, StreamHandle stream, Args args,
            Start start = Start::after) {
  const int64_t limit = grid_limit(threads);
  for (int64_t first = 0; first < blocks; first += limit) {
    args.first_block = first;
    launch_grid(function, std::min(blocks - first, limit), threads, shared_bytes, stream, args, start);
  }
}

}  // namespace rlk::simt::host
