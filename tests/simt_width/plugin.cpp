// The shared SIMT operators on a CUDA card in waves of RLK_LOGICAL_WIDTH lanes: CUDA's table of functions, a device
// that says that width, and kernels compiled for it. Not for use: it takes any card for its own, and 64 lanes are slow.
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "lanes.h"
#include "plugins/cuda/driver.hpp"
#include "plugins/cuda/images.hpp"
#include "plugins/simt/host/plugin.hpp"

namespace rlk::cuda {

bool images_built() noexcept {
  return true;
}

// <folder of this library>/width<lanes>/<name>.fatbin
const void* image_of(const char* name, int) {
  static std::mutex mutex;
  static std::map<std::string, std::string> images;
  const std::lock_guard<std::mutex> lock(mutex);
  std::string& image = images[name];
  if (image.empty()) {
    Dl_info self;
    dladdr(reinterpret_cast<void*>(&images_built), &self);
    const std::string path(self.dli_fname);
    std::ifstream file(path.substr(0, path.rfind('/') + 1) + sdk::format("width%d/%s.fatbin", RLK_LOGICAL_WIDTH, name),
                       std::ios::binary);
    image.assign(std::istreambuf_iterator<char>(file), {});
  }
  return image.empty() ? nullptr : image.data();
}

}  // namespace rlk::cuda

namespace rlk::simt_width {
namespace {

using namespace simt::host;

constexpr int kWidth = RLK_LOGICAL_WIDTH;
constexpr int kSlotBytes = kWidth == 32 ? 0 : 256 * 8;  // of shared memory that the exchanges of a block take

decltype(Driver::device_attribute) real_attribute = nullptr;

Driver open_driver() {
  Driver table = cuda::open_driver();
  real_attribute = table.device_attribute;
  table.device_attribute = [](int* value, int which, int device) {
    const Result code = real_attribute(value, which, device);
    if (code != kSuccess) return code;
    if (which == driver().attributes.warp_size) *value = kWidth;
    if (which == driver().attributes.shared_bytes) *value -= kSlotBytes;
    return code;
  };
  table.plain_shared_bytes -= kSlotBytes;
  return table;
}

std::string wrong_lane(const simt::LanesResult* results) {
  uint64_t every3rd = 0;
  for (int lane = 0; lane < kWidth; lane += 3) every3rd |= uint64_t{1} << lane;
  for (int thread = 0; thread < simt::kLanesThreads; ++thread) {
    const int lane = thread % kWidth, first = thread - lane;
    const simt::LanesResult& seen = results[thread];
    const simt::LanesResult due{first + (lane ^ kWidth / 2), first + (7 * lane + 3) % kWidth, every3rd,
                                kWidth * (first + (kWidth - 1) / 2.0)};
    if (seen.far == due.far && seen.read == due.read && seen.every3rd == due.every3rd && seen.sum == due.sum) continue;
    return sdk::format("thread %d: far %d, read %d, ballot %llx, sum %g; expected %d, %d, %llx, %g", thread, seen.far,
                       seen.read, static_cast<unsigned long long>(seen.every3rd), seen.sum, due.far, due.read,
                       static_cast<unsigned long long>(due.every3rd), due.sum);
  }
  return {};
}

std::string run_lanes() {
  Device device(0);
  const FunctionHandle kernel = device.kernel("lanes", "lanes");
  const RelaxedScope scope(device.place());
  void* const memory = allocate_pinned(simt::kLanesThreads * sizeof(simt::LanesResult));
  std::memset(memory, 0xff, simt::kLanesThreads * sizeof(simt::LanesResult));
  const simt::LanesArgs args{static_cast<simt::LanesResult*>(memory)};
  const StreamHandle stream = create_stream(0);
  launch_grid(kernel, 1, simt::kLanesThreads, 0, stream, args);
  check(driver().stream_synchronize(stream), "waiting for the lanes");
  std::string wrong = wrong_lane(args.result);
  check(driver().stream_destroy(stream), "destroying a stream");
  check(driver().host_free(memory), "freeing pinned memory");
  return wrong;
}

// Extension "rlk.test.lanes": what is wrong with the lanes, nullptr when nothing is.
const char* check_lanes() {
  static std::string wrong;
  try {
    wrong = run_lanes();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  return wrong.empty() ? nullptr : wrong.c_str();
}

class Plugin final : public simt::host::Plugin {
public:
  using Implementations = simt::host::SharedOperators;
  explicit Plugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence&) override {
    if (!driver().usable()) return sdk::Verdict::absent("RUNTIME_LIBRARY_MISSING", driver().problem(), "");
    const int count = simt::host::device_count();
    if (count == 0) return sdk::Verdict::absent("NO_DEVICE", "the driver shows no device", "");
    return sdk::Verdict::mine(std::to_string(count));
  }
  const void* extension(const char* id) override {
    if (std::strcmp(id, "rlk.test.lanes") == 0) return reinterpret_cast<const void*>(&check_lanes);
    return simt::host::Plugin::extension(id);
  }
};

}  // namespace
}  // namespace rlk::simt_width

const rlk::simt::host::Driver& rlk::simt::host::driver() {
  static const Driver table = simt_width::open_driver();
  return table;
}

RLK_PLUGIN(rlk::simt_width::Plugin, "simt_width", "cuda", "0.1.0", "the shared SIMT operators at a width of one's own")
