// Memory by aligned allocation. Work is done when its call returns, so a stream keeps nothing.
#include "core/cpu/plugin/device.hpp"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <rlk/sdk/descriptor.hpp>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "core/cpu/simd/target.hpp"

namespace rlk::cpu {
namespace {

#if defined(__x86_64__)
constexpr const char* kArchitecture = "x86-64";
#elif defined(__aarch64__)
constexpr const char* kArchitecture = "aarch64";
#else
constexpr const char* kArchitecture = "cpu";
#endif

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

uint64_t round_up(uint64_t bytes, uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

void ask_system(uint64_t& free_bytes, uint64_t& total_bytes) {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) throw sdk::Error(RLK_BACKEND_ERROR, "sysinfo failed", errno, "errno");
  free_bytes = (info.freeram + info.bufferram) * static_cast<uint64_t>(info.mem_unit);
  total_bytes = info.totalram * static_cast<uint64_t>(info.mem_unit);
}

}  // namespace

std::string cpu_model() {
  std::istringstream cpuinfo(
      sdk::read_text("/proc/cpuinfo", size_t{64} << 10));  // the first processor's lines are enough
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.compare(0, 10, "model name") == 0 && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return kArchitecture;
}

void describe_cpu(const sdk::Host& host, rlk_device_properties& out) {
  out.flags = RLK_DEVICE_UNIFIED_MEMORY | RLK_DEVICE_INLINE_STREAMS | RLK_DEVICE_MAPPED_PINNED;
  out.compute_units = host.thread_count();
  uint64_t free_bytes = 0;
  ask_system(free_bytes, out.memory_bytes);
  const long l2_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  out.l2_bytes = l2_bytes > 0 ? static_cast<uint64_t>(l2_bytes) : 0;
  sdk::detail::copy_text(out.name, cpu_model().c_str());
  sdk::detail::copy_text(out.arch, (std::string(kArchitecture) + " " + variant_name()).c_str());
}

void* CpuDevice::allocate(int32_t /*kind*/, uint64_t bytes) {
  // The system would promise more than there is and kill the process later.
  uint64_t free_bytes = 0, total_bytes = 0;
  memory_info(free_bytes, total_bytes);
  // Fresh memory in huge pages is touched several times faster; the host keeps and reuses what it allocates here.
  const bool huge = bytes >= 2 * kHugePage;
  const uint64_t alignment = huge ? kHugePage : kAlignment;
  void* memory = bytes <= total_bytes ? std::aligned_alloc(alignment, round_up(bytes, alignment)) : nullptr;
  if (memory == nullptr) {
    throw sdk::Error(RLK_OUT_OF_MEMORY,
                     sdk::format("%llu bytes of host memory asked for; the machine has %llu, of which %llu are free: "
                                 "free some, or use a smaller batch",
                                 static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(total_bytes),
                                 static_cast<unsigned long long>(free_bytes)));
  }
  if (huge) madvise(memory, round_up(bytes, kHugePage), MADV_HUGEPAGE);  // a wish: failing changes nothing but speed
  return memory;
}

void CpuDevice::deallocate(int32_t /*kind*/, void* memory) {
  std::free(memory);
}

void CpuDevice::memory_info(uint64_t& free_bytes, uint64_t& total_bytes) {
  ask_system(free_bytes, total_bytes);
}

std::unique_ptr<sdk::Stream> CpuDevice::create_stream(int32_t /*priority*/) {
  return std::make_unique<CpuStream>();
}

std::unique_ptr<sdk::Stream> CpuDevice::wrap_stream(void* native) {
  if (native == nullptr) return std::make_unique<CpuStream>();
  throw sdk::Error(RLK_UNSUPPORTED, "the CPU has no native streams to wrap: pass NULL, or create a stream");
}

std::unique_ptr<sdk::Event> CpuDevice::create_event(bool /*timing*/) {
  return std::make_unique<CpuEvent>();
}

ParallelFor CpuDevice::parallel() const {
  const auto run = [](void* ctx, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* user) {
    static_cast<const sdk::Host*>(ctx)->parallel_for(
        n, grain, [body, user](int64_t begin, int64_t end) { body(user, begin, end); });
  };
  return {const_cast<sdk::Host*>(&host_), run, host_.thread_count()};
}

void CpuStream::copy(void* destination, const void* source, uint64_t bytes, int32_t /*kind*/) {
  if (bytes > 0) std::memmove(destination, source, bytes);
}

void CpuStream::fill(void* memory, uint8_t value, uint64_t bytes) {
  if (bytes > 0) std::memset(memory, value, bytes);
}

double CpuEvent::elapsed_ms(sdk::Event& start) {
  return std::chrono::duration<double, std::milli>(at_ - static_cast<CpuEvent&>(start).at_).count();
}

}  // namespace rlk::cpu
