// Calls, streams, captures and kernels of the simulated runtime.
#include "runtime.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugins/simt/args.h"
#include "tests/fakes/cuda/emulation.hpp"

namespace fake_simt {
namespace {

std::string variable(const char* name) {
  return std::string(vendor().variable) + name;
}

// Never destroyed, here and below: workers outlive static destructors.
struct Calls {
  std::mutex mutex;
  std::map<std::string, uint64_t> count;
  std::atomic<int> lost{0};
};
Calls& calls() {
  static auto* const only = new Calls;
  return *only;
}

// "call[:nth[:code]],...": the nth call (0: every one) of that name, or of any ("*"), returns the code.
int injected(const std::string& call, uint64_t nth, uint64_t nth_of_all) {
  const char* list = std::getenv(variable("FAIL").c_str());
  if (list == nullptr) return 0;
  std::string text = std::string(list) + ",";
  for (size_t end; (end = text.find(',')) != std::string::npos; text.erase(0, end + 1)) {
    const std::string item = text.substr(0, end);
    const size_t first = item.find(':'), second = first == std::string::npos ? first : item.find(':', first + 1);
    const std::string name = item.substr(0, first);
    if (name != call && name != "*") continue;
    const uint64_t wanted = first == std::string::npos ? 0 : std::strtoull(item.c_str() + first + 1, nullptr, 10);
    if (wanted != 0 && wanted != (name == "*" ? nth_of_all : nth)) continue;
    return second == std::string::npos ? kInvalidValue : std::atoi(item.c_str() + second + 1);
  }
  return 0;
}

// After such an error every call returns it, until the process ends.
bool is_sticky(int code) {
  return code == 46 || code == 214 || code == 700 || (code >= 714 && code <= 719);
}

}  // namespace

int64_t knob(const char* name, int64_t otherwise) {
  const char* text = std::getenv(variable(name).c_str());
  return text != nullptr && *text != '\0' ? std::atoll(text) : otherwise;
}

void violation(const char* rule, const std::string& text) {
  std::fprintf(stderr, "fake %s: violation: %s: %s\n", vendor().name, rule, text.c_str());
  std::fflush(stderr);
  std::abort();
}

int enter(const char* call, bool needs_device) {
  uint64_t nth = 0, all = 0;
  {
    const std::lock_guard lock(calls().mutex);
    nth = ++calls().count[call];
    all = ++calls().count["*"];
    if (const char* path = std::getenv(variable("LOG").c_str())) {
      static FILE* const file = std::fopen(path, "a");
      if (file != nullptr) std::fprintf(file, "%s\n", call), std::fflush(file);
    }
  }
  if (calls().lost != 0) return calls().lost;
  const int code = injected(call, nth, all);
  if (is_sticky(code)) calls().lost = code;
  if (code != 0) return code;
  return needs_device && device_count() == 0 ? kNoDevice : 0;
}

void reset_calls() {
  const std::lock_guard lock(calls().mutex);
  calls().count.clear();
  calls().lost = 0;
}

int device_count() {
  return static_cast<int>(knob("DEVICES", 1));
}
int& current_device() {
  thread_local int device = 0;
  return device;
}
int& capture_mode() {
  thread_local int mode = 0;
  return mode;
}

// --- streams ---------------------------------------------------------------------------------------------------------

#define FAKE_SIMT_TABLE(Type, function, kind, noun)           \
  Handles<Type>& function() {                                 \
    static auto* const table = new Handles<Type>(kind, noun); \
    return *table;                                            \
  }
FAKE_SIMT_TABLE(Stream, streams, 1, "stream")
FAKE_SIMT_TABLE(Event, events, 2, "event")
FAKE_SIMT_TABLE(Module, modules, 3, "module")
FAKE_SIMT_TABLE(Function, functions, 4, "kernel")
FAKE_SIMT_TABLE(Graph, graphs, 5, "graph")
FAKE_SIMT_TABLE(Graph, executables, 6, "executable graph")
FAKE_SIMT_TABLE(std::shared_ptr<Held>, user_objects, 7, "user object")

std::shared_ptr<Stream> Stream::start(int device) {
  auto stream = std::make_shared<Stream>(device);
  std::thread([stream] { stream->work(); }).detach();
  return stream;
}
void Stream::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}
void Stream::submit(Command command) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(command));
  changed_.notify_all();
}

int Stream::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty(); });
  return error_;
}
int Stream::state() {
  const std::lock_guard lock(mutex_);
  return error_ != 0 ? error_ : queue_.empty() ? 0 : kNotReady;
}
bool Stream::uses(const Range& range, std::string* by) {
  const std::lock_guard lock(mutex_);
  for (const Command& command : queue_) {
    for (const Range& use : command.uses) {
      if (use.begin < range.end && range.begin < use.end) return *by = command.name, true;
    }
  }
  return false;
}

void Stream::work() {
  const auto delay = std::chrono::microseconds(knob("DELAY_US", 0));
  for (;;) {
    std::function<int()> run;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
      if (queue_.empty()) return;
      run = queue_.front().run;  // stays in the queue while it runs: its memory is in use
    }
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    const int code = calls().lost != 0 ? calls().lost.load() : run();
    const std::lock_guard lock(mutex_);
    if (error_ == 0) error_ = code;
    queue_.pop_front();
    changed_.notify_all();
  }
}

namespace {

std::vector<std::shared_ptr<Stream>>& default_streams() {
  static auto* const only = new std::vector<std::shared_ptr<Stream>>(64);
  return *only;
}

struct Captures {
  std::mutex mutex;
  std::vector<std::weak_ptr<Capture>> all;
};
Captures& captures() {
  static auto* const only = new Captures;
  return *only;
}

}  // namespace

std::shared_ptr<Stream> stream_of(void* handle, const char* call) {
  if (handle == nullptr) {
    static auto* const mutex = new std::mutex;
    const std::lock_guard lock(*mutex);
    auto& slot = default_streams()[static_cast<size_t>(current_device())];
    if (slot == nullptr) slot = Stream::start(current_device());
    return slot;
  }
  std::shared_ptr<Stream> stream = streams().get(handle, call);
  if (stream->device != current_device()) {
    violation("WRONG_DEVICE", std::string(call) + ": a stream of device " + std::to_string(stream->device) +
                                  " while device " + std::to_string(current_device()) + " is current");
  }
  return stream;
}

std::string pending_use(const Range& range) {
  std::string by;
  for (const auto& stream : streams().all()) {
    if (stream->uses(range, &by)) return by;
  }
  for (const auto& stream : default_streams()) {
    if (stream != nullptr && stream->uses(range, &by)) return by;
  }
  return {};
}

int enqueue(void* handle, const char* call, Command command) {
  const auto stream = stream_of(handle, call);
  if (stream->capture != nullptr) {
    if (stream->capture->broken) return kCaptureBroken;
    stream->capture->graph->work.push_back(std::move(command));
    return 0;
  }
  stream->submit(std::move(command));
  return 0;
}

bool is_safe() {
  if (capture_mode() == 2) return true;
  const std::lock_guard lock(captures().mutex);
  bool safe = true;
  for (const auto& weak : captures().all) {
    const auto capture = weak.lock();
    if (capture == nullptr || capture->mode == 2) continue;
    if (capture->thread != std::this_thread::get_id() && (capture->mode == 1 || capture_mode() == 1)) continue;
    capture->broken = true;
    safe = false;
  }
  return safe;
}

void begin_capture(Stream& stream, int mode) {
  static uint64_t ids = 0;
  const std::lock_guard lock(captures().mutex);
  stream.capture = std::make_shared<Capture>();
  stream.capture->id = ++ids;
  stream.capture->mode = mode;
  stream.capture->thread = std::this_thread::get_id();
  captures().all.push_back(stream.capture);
}

int copy(void* to, const void* from, size_t bytes, int kind, void* handle, const char* call) {
  if (kind < 1 || kind > 3) return kInvalidValue;
  if (bytes == 0) return 0;
  const std::string name = call;
  const bool to_device = kind != 2, from_device = kind != 1;
  if (to_device) require_device(to, bytes, name + ": the destination");
  if (from_device) require_device(from, bytes, name + ": the source");
  if (!to_device && kind_of(to) == 2) violation("NOT_HOST_MEMORY", name + ": the destination is device memory");
  if (!from_device && kind_of(from) == 2) violation("NOT_HOST_MEMORY", name + ": the source is device memory");
  Command command;
  command.name = name;
  const auto begin_to = reinterpret_cast<uintptr_t>(to), begin_from = reinterpret_cast<uintptr_t>(from);
  command.uses = {{begin_to, begin_to + bytes}, {begin_from, begin_from + bytes}};
  // Memory that is not pinned is copied away at once, or waited for.
  const auto stream = stream_of(handle, call);
  const bool pageable_from = !from_device && kind_of(from) == 0, pageable_to = !to_device && kind_of(to) == 0;
  if ((pageable_from || pageable_to) && stream->capture != nullptr) {
    violation("PAGEABLE_IN_CAPTURE", name + " of host memory that is not pinned while the stream captures");
  }
  auto staged = std::make_shared<std::vector<std::byte>>();
  if (pageable_from) {
    const auto* first = static_cast<const std::byte*>(from);
    staged->assign(first, first + bytes);
  }
  command.run = [=] {
    std::memmove(bytes_at(to), staged->empty() ? bytes_at(from) : staged->data(), bytes);
    return 0;
  };
  if (const int code = enqueue(handle, call, std::move(command))) return code;
  return pageable_to ? stream->wait() : 0;
}

// --- kernels ---------------------------------------------------------------------------------------------------------

namespace {

using namespace rlk::simt;

template <class Args>
std::function<void()> bind(const Function& function, const void* arguments) {
  const Args args = *static_cast<const Args*>(arguments);
  require_addresses(&args, sizeof(args), function.name);
  void* const entry = function.entry;
  return [entry, args] { reinterpret_cast<void (*)(Args)>(entry)(args); };
}

std::function<void()> bind(const Function& function, const void* arguments) {
  const auto starts = [&](const char* prefix) { return function.name.rfind(prefix, 0) == 0; };
  if (starts("logp_backward_")) return bind<LogpBackwardArgs>(function, arguments);
  if (starts("logp_")) return bind<LogpArgs>(function, arguments);
  if (starts("attention_")) return bind<AttentionArgs>(function, arguments);
  return bind<AddArgs>(function, arguments);
}

}  // namespace

int load_module(const void* image, void** out) {
  const std::string magic = kCodeMagic;
  if (image == nullptr || std::strncmp(static_cast<const char*>(image), magic.c_str(), magic.size()) != 0) {
    return kInvalidImage;
  }
  std::string kernels = static_cast<const char*>(image) + magic.size();
  *out = modules().add(std::make_shared<Module>(Module{current_device(), kernels.substr(0, kernels.find('\n'))}));
  return 0;
}

int find_function(Module& module, const char* name, void** out) {
  // attention_simt holds attention_plan_packed too; a name of another file is not found.
  const std::string prefix = module.kernels == "attention_simt" ? "attention_" : module.kernels + "_";
  if (std::string(name).rfind(prefix, 0) != 0) return kNotFound;
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&fake_simt::vendor), &self);
  void* const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  void* const entry = library != nullptr ? dlsym(library, name) : nullptr;
  if (entry == nullptr) return kNotFound;
  return *out = functions().add(std::make_shared<Function>(Function{module.device, name, entry})), 0;
}

int launch(Function& function, const unsigned grid[3], const unsigned block[3], unsigned shared, void* stream,
           void** parameters, const char* call) {
  const uint64_t threads = uint64_t{grid[0]} * block[0];
  if (grid[0] == 0 || grid[1] != 1 || grid[2] != 1 || block[0] == 0 || block[0] > 1024 || block[1] != 1 ||
      block[2] != 1 || threads >= uint64_t{1} << 32 || shared > static_cast<unsigned>(knob("SHARED", 65536))) {
    return kInvalidValue;
  }
  if (function.device != current_device()) {
    violation("WRONG_DEVICE", function.name + " was loaded on device " + std::to_string(function.device));
  }
  Command command;
  command.name = function.name;
  const std::function<void()> thread = bind(function, parameters[0]);
  const rlk::emulation::Dim blocks{grid[0], 1, 1}, size{block[0], 1, 1};
  command.run = [=] {
    const OpenMemory open;
    rlk::emulation::run_grid(blocks, size, shared, thread);
    return 0;
  };
  // What a kernel uses is not known in detail: everything, until it has run.
  command.uses = {{0, UINTPTR_MAX}};
  return enqueue(stream, call, std::move(command));
}

}  // namespace fake_simt
