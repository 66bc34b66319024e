// From the embedded sources to code objects in memory.
#include "compiler.hpp"

#include "embedded_text.hpp"

#include <rlk/sdk/kernel_cache.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>

// The sources, embedded by the assembler: texts.inc, which the build makes, has RLK_SIMT_TEXT(symbol, "name", "file")
// of each.
#define RLK_SIMT_TEXT(symbol, name, file) RLK_SIMT_EMBED_TEXT(symbol, file)
#include "texts.inc"
#undef RLK_SIMT_TEXT

namespace rlk::simt::host {
namespace {

// By its place under plugins/simt, or in the plugins' interface: "simt.cuh", "operators/silu.cuh",
// "rlk/formula/activation.hpp"; a vendor's own beside it: "../rocm/kernels/attention_mfma.cu".
const char* text_of(const std::string& file, const OwnTexts& own) {
#define RLK_SIMT_TEXT(symbol, name, path) \
  if (file == name) return rlk_simt_text_##symbol;
#include "texts.inc"
#undef RLK_SIMT_TEXT
  const std::string folder = own.folder;
  const bool is_own = own.text != nullptr && file.rfind(folder, 0) == 0;
  return is_own ? own.text(file.substr(folder.size())) : nullptr;
}

// What the line includes, by the name that text_of knows, when it includes anything.
std::string included(const std::string& line, const std::string& by) {
  const bool quoted = line.rfind("#include \"", 0) == 0;
  if (!quoted && line.rfind("#include <", 0) != 0) return {};
  std::string name = line.substr(10, line.find_last_of("\">") - 10);
  if (!quoted) return name;
  std::string folder = by.substr(0, by.rfind('/') + 1);
  for (; name.rfind("../", 0) == 0; name.erase(0, 3)) {
    folder.erase(folder.size() < 2 ? 0 : folder.rfind('/', folder.size() - 2) + 1);
  }
  const std::string whole = folder + name;
  return whole.rfind("../simt/", 0) == 0 ? whole.substr(8) : whole;
}

// Appends the file, each include of ours in place of its line, and only once; the compiler's own headers are not there.
void append(const std::string& file, const std::string& platform, const OwnTexts& own, std::set<std::string>& seen,
            std::string& out) {
  const char* text = text_of(file, own);
  if (text == nullptr) throw sdk::Error(RLK_BACKEND_ERROR, "this plugin holds no source of " + file);
  if (!seen.insert(file).second) return;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == "#pragma once") continue;
    if (line == "#include RLK_SIMT_PLATFORM") {
      append(platform, platform, own, seen, out);
      continue;
    }
    const std::string name = included(line, file);
    if (!name.empty() && text_of(name, own) != nullptr) {
      append(name, platform, own, seen, out);
    } else if (line.rfind("#include <", 0) != 0) {
      out += line + "\n";
    }
  }
}

uint64_t hash_of(const std::string& text, uint64_t hash = 0xcbf29ce484222325u) {  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

class Program {
public:
  Program(const Compiler& compiler, const std::string& source, const std::string& name) : compiler_(compiler) {
    check(compiler_.create(&handle_, source.c_str(), name.c_str(), 0, nullptr, nullptr), "beginning a program");
  }
  ~Program() { compiler_.destroy(&handle_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::string compile(const std::vector<std::string>& options) {
    std::vector<const char*> words;
    for (const std::string& option : options) words.push_back(option.c_str());
    check(compiler_.compile(handle_, static_cast<int>(words.size()), words.data()), "compiling");
    size_t bytes = 0;
    check(compiler_.code_size(handle_, &bytes), "asking for the size of the code");
    std::string code(bytes, '\0');
    check(compiler_.code(handle_, code.data()), "reading the code");
    return code;
  }

private:
  void check(int code, const char* attempt) {
    if (code == 0) return;
    std::string text = sdk::format("%s with %s failed with code %d", attempt, compiler_.name, code);
    size_t bytes = 0;
    if (handle_ != nullptr && compiler_.log_size(handle_, &bytes) == 0 && bytes > 1) {
      std::string log(bytes, '\0');
      if (compiler_.log(handle_, log.data()) == 0) text += ": " + log.substr(0, 600);
    }
    throw sdk::Error(RLK_BACKEND_ERROR, text, code, compiler_.name);
  }

  const Compiler& compiler_;
  ProgramHandle handle_ = nullptr;
};

std::atomic<const sdk::Host*> current_host{nullptr};

// The thread that begins a compilation waits so long for its end: most calls then need no other implementation.
constexpr std::chrono::milliseconds kFirstWait{10'000};
std::atomic<std::chrono::milliseconds> first_wait{kFirstWait};
// The end of the process and of the plugin wait so long for what is being compiled: the compiler's library and the
// host's cache must not go away underneath. A compiler that hangs may not hold them for ever.
constexpr std::chrono::seconds kLongestEnd{60};

struct Compilation {
  enum class State { running, done, elsewhere, failed } state = State::running;
  std::string image;
  std::exception_ptr failure;
};

// Every kernel that this process compiles or has compiled. Never destroyed: modules are loaded from the images until
// the very end.
struct Compilations {
  std::mutex mutex;  // of what follows; never held while something is compiled
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Compilation>> by_key;
  // Texts and their hashes, by platform and name: a caller that waits asks often.
  std::map<std::pair<std::string, std::string>, std::pair<std::string, uint64_t>> sources;
  int running = 0;
  pid_t pid = getpid();  // whose threads compile

  // A forked process has what its parent began and none of the threads that would end it.
  void forget_the_parents() {
    if (pid == getpid()) return;
    pid = getpid();
    running = 0;
    for (auto one = by_key.begin(); one != by_key.end();)
      one = one->second->state == Compilation::State::running ? by_key.erase(one) : std::next(one);
  }
  void wait_for_all() {
    std::unique_lock<std::mutex> lock(mutex);
    forget_the_parents();
    changed.wait_for(lock, kLongestEnd, [this] { return running == 0; });
  }
};
Compilations& compilations() {
  static auto& all = []() -> Compilations& {
    auto* made = new Compilations;
    // Runs before the destructors of what was loaded before: the compiler's library among it.
    std::atexit([] { compilations().wait_for_all(); });
    return *made;
  }();
  return all;
}

struct Order {
  const Compiler& compiler;
  std::string key, source, kernels;
  std::vector<std::string> options;
  std::optional<sdk::Host> host;  // in whose cache the kernels are kept
  std::optional<Place> place;     // current on the thread that compiles
};

void compile_now(const Order& order, Compilation* one) {
  std::optional<std::string> image;
  std::exception_ptr failure;
  try {
    std::optional<PlaceScope> scope;
    if (order.place) scope.emplace(*order.place);
    const auto compile = [&] {
      return Program(order.compiler, order.source, order.kernels + ".cu").compile(order.options);
    };
    image = order.host ? sdk::cached_kernel(*order.host, order.key, compile) : std::optional<std::string>(compile());
  } catch (...) {
    failure = std::current_exception();
  }
  Compilations& all = compilations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  one->failure = failure;
  one->state = failure != nullptr ? Compilation::State::failed
               : image            ? Compilation::State::done
                                  : Compilation::State::elsewhere;
  if (image) one->image = std::move(*image);
  --all.running;
  all.changed.notify_all();
}

}  // namespace

HostScope::HostScope(const sdk::Host& host) : host_(host) {
  current_host = &host_;
}
HostScope::~HostScope() {
  const sdk::Host* mine = &host_;
  current_host.compare_exchange_strong(mine, nullptr);
  compilations().wait_for_all();
}

void set_first_wait(std::chrono::milliseconds longest) {
  first_wait = longest;
}

std::string kernel_source(const std::string& image, const std::string& platform, const OwnTexts& own) {
  std::string out = "#define RLK_SIMT_PLATFORM\n#define RLK_SIMT_IMAGE " + image + "\n";
  std::set<std::string> seen;
  append("standalone.cuh", platform, own, seen, out);
  std::string file = "operators/" + image + ".cuh";
  if (text_of(file, own) == nullptr) file = "kernels/" + image + ".cu";
  if (text_of(file, own) == nullptr && own.text != nullptr) file = own.folder + image + ".cu";
  append(file, platform, own, seen, out);
  return out;
}

const void* compiled_image(const Compiler& compiler, const std::string& image, const std::string& device,
                           const std::vector<std::string>& options, const Place* place) {
  std::string all_options;
  for (const std::string& option : options) all_options += " " + option;
  Compilations& all = compilations();
  std::unique_lock<std::mutex> lock(all.mutex);
  all.forget_the_parents();
  auto& [source, hash] = all.sources[{compiler.platform, image}];
  if (source.empty()) {
    source = kernel_source(image, compiler.platform, compiler.own);
    hash = hash_of(source);
  }
  const std::string key = image + "-" + device + "-" + compiler.version +
                          sdk::format("-%016llx", static_cast<unsigned long long>(hash_of(all_options, hash)));
  std::shared_ptr<Compilation> one = all.by_key[key];
  if (one == nullptr) {
    const sdk::Host* const host = current_host;
    const auto order = std::make_shared<const Order>(
        Order{compiler, key, source, image, options, host != nullptr ? std::optional<sdk::Host>(*host) : std::nullopt,
              place != nullptr ? std::optional<Place>(*place) : std::nullopt});
    one = all.by_key[key] = std::make_shared<Compilation>();
    ++all.running;
    lock.unlock();
    try {
      std::thread([order, one] { compile_now(*order, one.get()); }).detach();
    } catch (const std::system_error&) {  // no thread is to be had
      compile_now(*order, one.get());
    }
    lock.lock();
    all.changed.wait_for(lock, first_wait.load(), [&] { return one->state != Compilation::State::running; });
  }
  switch (one->state) {
    case Compilation::State::done:
      return one->image.data();
    case Compilation::State::running:
      throw sdk::Error(RLK_NOT_READY, "the kernels of " + image + " are being compiled; ask again");
    default:
      break;
  }
  // The next caller begins anew.
  const auto known = all.by_key.find(key);
  if (known != all.by_key.end() && known->second == one) all.by_key.erase(known);
  if (one->failure != nullptr) std::rethrow_exception(one->failure);
  throw sdk::Error(RLK_NOT_READY, "another process compiles the kernels of " + image + " now; ask again");
}

}  // namespace rlk::simt::host
