// Extensions: a pointer that a plugin answers is checked before rlk follows it.
#include <fmt/core.h>
#include <rlk/abi/ext/draft/graph.h>
#include <rlk/sdk/descriptor.hpp>

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <sstream>
#include <string>

#include "core/conformance/device_checks.hpp"

namespace rlk::core::conformance {
namespace {

constexpr uint32_t kLargestTable = 64 * 1024;
constexpr size_t kMostMaps = size_t{64} << 20;

// Whether the address lies in a mapping that the process may run; true when the mappings cannot be read.
bool is_code(const void* address) {
  std::istringstream maps(sdk::read_text("/proc/self/maps", kMostMaps));
  const auto at = reinterpret_cast<uintptr_t>(address);
  bool any = false;
  for (std::string line; std::getline(maps, line); any = true) {
    uintptr_t begin = 0, end = 0;
    char rights[8] = {};
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %7s", &begin, &end, rights) != 3) continue;
    if (at >= begin && at < end) return rights[2] == 'x';
  }
  return !any;
}

// Copies what can be read, without ever touching what cannot; false: it cannot be read.
bool peek(const void* from, void* to, uint64_t bytes) {
  const iovec local{to, bytes}, remote{const_cast<void*>(from), bytes};
  const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  if (got == static_cast<ssize_t>(bytes)) return true;
  if (got < 0 && errno != EFAULT && errno != EIO) {  // a sandbox: the pipe tells as well
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return std::memcpy(to, from, bytes) != nullptr;
    for (int& end : ends) end = sdk::above_standard(end);
    const bool readable = write(ends[1], from, bytes) == static_cast<ssize_t>(bytes);
    close(ends[0]);
    close(ends[1]);
    return readable && std::memcpy(to, from, bytes) != nullptr;
  }
  return false;
}

void expect_table(const void* table, const char* id, uint32_t known_bytes, const char* const* slots) {
  char text[192];
  uint32_t head[2] = {};
  const auto refuse = [&](const std::string& why) {
    std::snprintf(text, sizeof(text), "extension %s is at %p: ", id, table);
    broken("EXTENSION", text + why);
  };
  if (reinterpret_cast<uintptr_t>(table) % alignof(void*) != 0) refuse("not aligned as a table of functions must be");
  if (!peek(table, head, sizeof(head))) refuse("the address cannot be read");
  if (head[0] < sizeof(head) + sizeof(void*) || head[0] > kLargestTable || head[0] % sizeof(void*) != 0) {
    refuse(fmt::format("its struct_size is {}, expected {}", head[0], known_bytes));
  }
  const uint32_t bytes = std::min(head[0], known_bytes);
  for (uint32_t at = sizeof(head); at < bytes; at += sizeof(void*), ++slots) {
    const void* function = nullptr;
    if (!peek(static_cast<const std::byte*>(table) + at, &function, sizeof(function))) {
      refuse("its struct_size goes beyond memory that can be read");
    }
    if (function == nullptr || !is_code(function)) {
      refuse(fmt::format("its slot {} {}", *slots, function == nullptr ? "is NULL" : "does not point to code"));
    }
  }
}

}  // namespace

bool is_readable(const void* memory, uint64_t bytes) {
  if (bytes == 0) return true;
  const auto* first = static_cast<const std::byte*>(memory);
  std::byte ignored{};
  for (uint64_t at = 0; at < bytes; at += 4096) {
    if (!peek(first + at, &ignored, 1)) return false;
  }
  return peek(first + bytes - 1, &ignored, 1);
}

void check_extension(const Target& target) {
  const rlk_plugin& owner = *target.owner;
  if (target.owner_instance == nullptr || owner.get_extension == nullptr) return;
  if (call_plugin(owner.get_extension, target.owner_instance, "rlk.nobody_has_this/1") != nullptr) {
    broken("EXTENSION", "get_extension answers an id that does not exist; expected NULL");
  }
  static constexpr const char* kSlots[] = {"begin_capture", "end_capture", "launch", "destroy"};
  static_assert(sizeof(rlk_graph_api) == 8 + sizeof(kSlots));
  const void* graph = call_plugin(owner.get_extension, target.owner_instance, RLK_EXT_GRAPH);
  if (graph == nullptr) return;
  expect_table(graph, RLK_EXT_GRAPH, sizeof(rlk_graph_api), kSlots);
  if (owner.stream->capture_id == nullptr) {
    broken("EXTENSION", "the plugin has " RLK_EXT_GRAPH ", but no rlk_stream_api.capture_id to tell who captures");
  }
}

}  // namespace rlk::core::conformance
