// From the embedded sources to code objects in memory.
#include "compiler.hpp"

#include <rlk/sdk/kernel_cache.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>

// The sources, embedded by the assembler: texts.inc, which the build makes, has RLK_SIMT_TEXT(symbol, "name", "file")
// of each.
#define RLK_SIMT_TEXT(symbol, name, file)    \
  asm(".section .rodata, \"a\", @progbits\n" \
      ".hidden rlk_simt_text_" #symbol       \
      "\n"                                   \
      ".globl rlk_simt_text_" #symbol        \
      "\n"                                   \
      "rlk_simt_text_" #symbol               \
      ":\n"                                  \
      ".incbin \"" file                      \
      "\"\n"                                 \
      ".byte 0\n"                            \
      ".previous\n");                        \
  extern "C" const char rlk_simt_text_##symbol[] __attribute__((visibility("hidden")));
#include "texts.inc"
#undef RLK_SIMT_TEXT

namespace rlk::simt::host {
namespace {

// By its place under plugins/simt, or in the plugins' interface: "simt.cuh", "operators/silu.cuh",
// "rlk/formula/activation.hpp".
const char* text_of(const std::string& file) {
#define RLK_SIMT_TEXT(symbol, name, path) \
  if (file == name) return rlk_simt_text_##symbol;
#include "texts.inc"
#undef RLK_SIMT_TEXT
  return nullptr;
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
  return folder + name;
}

// Appends the file, each include of ours in place of its line, and only once; the compiler's own headers are not there.
void append(const std::string& file, const std::string& platform, std::set<std::string>& seen, std::string& out) {
  const char* text = text_of(file);
  if (text == nullptr) throw sdk::Error(RLK_BACKEND_ERROR, "this plugin holds no source of " + file);
  if (!seen.insert(file).second) return;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == "#pragma once") continue;
    if (line == "#include RLK_SIMT_PLATFORM") {
      append(platform, platform, seen, out);
      continue;
    }
    const std::string name = included(line, file);
    if (!name.empty() && text_of(name) != nullptr) {
      append(name, platform, seen, out);
    } else if (line.rfind("#include <", 0) != 0) {
      out += line + "\n";
    }
  }
}

uint64_t hash_of(const std::string& text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
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

}  // namespace

HostScope::HostScope(const sdk::Host& host) : host_(host) {
  current_host = &host_;
}
HostScope::~HostScope() {
  const sdk::Host* mine = &host_;
  current_host.compare_exchange_strong(mine, nullptr);
}

std::string kernel_source(const std::string& image, const std::string& platform) {
  std::string out = "#define RLK_SIMT_PLATFORM\n#define RLK_SIMT_IMAGE " + image + "\n";
  std::set<std::string> seen;
  append("standalone.cuh", platform, seen, out);
  const std::string operators = "operators/" + image + ".cuh";
  append(text_of(operators) != nullptr ? operators : "kernels/" + image + ".cu", platform, seen, out);
  return out;
}

const void* compiled_image(const Compiler& compiler, const std::string& image, const std::string& device,
                           const std::vector<std::string>& options) {
  // One lock an image: what compiles does not keep back what is there, or what another thread compiles. Never
  // destroyed: modules may be loaded from it until the very end.
  struct Compiled {
    std::mutex mutex;
    std::unique_ptr<const std::string> code;
  };
  static std::mutex mutex;
  static auto& images = *new std::map<std::string, Compiled>;
  const std::string source = kernel_source(image, compiler.platform);
  std::string all_options;
  for (const std::string& option : options) all_options += " " + option;
  const std::string key = image + "-" + device + "-" + compiler.version +
                          sdk::format("-%016llx", static_cast<unsigned long long>(hash_of(source + all_options)));
  const auto entry = [&]() -> Compiled& {
    const std::lock_guard<std::mutex> lock(mutex);
    return images[key];
  };
  Compiled& compiled = entry();
  const std::lock_guard<std::mutex> lock(compiled.mutex);
  if (compiled.code != nullptr) return compiled.code->data();
  const auto compile = [&] { return Program(compiler, source, image + ".cu").compile(options); };
  const sdk::Host* const host = current_host;
  const std::optional<std::string> code =
      host != nullptr ? sdk::cached_kernel(*host, key, compile) : std::optional<std::string>(compile());
  if (!code) {
    throw sdk::Error(RLK_NOT_READY, "another process compiles the kernels of " + image + " now; ask again");
  }
  compiled.code = std::make_unique<const std::string>(*code);
  return compiled.code->data();
}

}  // namespace rlk::simt::host
