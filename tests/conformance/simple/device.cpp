// Memory, streams and data errors of the simple plugin.
#include "conformance/simple/device.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "conformance/simple/mutant.hpp"

namespace rlk::simple {
namespace {
std::string g_mutant;
rlk_data_error g_told;  // for the mutant that tells errors which the host finds itself
}  // namespace

void set_mutant(std::string_view name) {
  g_mutant = name;
  g_told = {};
}
bool mutant(std::string_view name) {
  return g_mutant == name;
}

void SimpleDevice::describe(rlk_device_properties& out) {
  out.flags = RLK_DEVICE_UNIFIED_MEMORY | RLK_DEVICE_INLINE_STREAMS | RLK_DEVICE_MAPPED_PINNED;
  std::strncpy(out.name, "simple", sizeof(out.name) - 1);
}

void* SimpleDevice::allocate(int32_t, uint64_t bytes) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) throw sdk::Error(RLK_OUT_OF_MEMORY, "host memory is exhausted");
  return memory;
}
void SimpleDevice::deallocate(int32_t, void* memory) {
  std::free(memory);
}
void SimpleDevice::memory_info(uint64_t& free_bytes, uint64_t& total_bytes) {
  free_bytes = total_bytes = uint64_t{1} << 30;
}
std::unique_ptr<sdk::Stream> SimpleDevice::create_stream(int32_t) {
  return std::make_unique<SimpleStream>();
}
// Work is done at once, so any stream of the device will do; data errors go to the record that the run names.
std::unique_ptr<sdk::Stream> SimpleDevice::wrap_stream(void* native) {
  return std::make_unique<SimpleStream>(native);
}
std::unique_ptr<sdk::Event> SimpleDevice::create_event(bool) {
  return std::make_unique<SimpleEvent>();
}

rlk_status SimpleStream::query(rlk_data_error& data_error) {
  if (!mutant("stream.error_repeated") || g_told.kind == 0) return RLK_OK;
  data_error.kind = g_told.kind;
  data_error.tag = g_told.tag;
  data_error.row = g_told.row;
  data_error.value = g_told.value;
  g_told.kind = 0;
  return RLK_DATA_ERROR;
}

rlk_status SimpleStream::synchronize(uint64_t, rlk_data_error& data_error) {
  return query(data_error);
}

void SimpleStream::copy(void* destination, const void* source, uint64_t bytes, int32_t) {
  std::memmove(destination, source, bytes);
}
void SimpleStream::fill(void* memory, uint8_t value, uint64_t bytes) {
  std::memset(memory, value, bytes);
}

void SimpleStream::submit(std::function<void()> work) {
  if (capture_id_ == 0) return work();
  captured_.push_back(std::move(work));
}
void SimpleStream::begin_capture() {
  static std::atomic<uint64_t> captures{0};
  capture_id_ = ++captures;
}
namespace {
class SimpleGraph : public sdk::Graph {
public:
  explicit SimpleGraph(std::vector<std::function<void()>> work) : work_(std::move(work)) {}
  void launch(sdk::Stream&) override {
    for (const auto& work : work_) work();
    if (mutant("graph_runs_once")) work_.clear();
  }

private:
  std::vector<std::function<void()>> work_;
};
}  // namespace

std::unique_ptr<sdk::Graph> SimpleStream::end_capture() {
  capture_id_ = 0;
  return std::make_unique<SimpleGraph>(std::exchange(captured_, {}));
}

void report(const sdk::Run& run, int32_t kind, int64_t row, int64_t value) {
  rlk_data_error_record& record = *run.data_error_record();
  if (record.state != 0 || mutant("stream.error_missing")) return;
  record = {1, kind, run.tag(), 0, row, value};
  if (mutant("stream.error_wrong_row")) ++record.row;
  if (mutant("stream.error_wrong_value")) ++record.value;
  if (mutant("stream.error_wrong_tag")) record.tag = 0;
  g_told = {sizeof(g_told), record.kind, record.tag, 0, record.row, record.value};
}

}  // namespace rlk::simple
