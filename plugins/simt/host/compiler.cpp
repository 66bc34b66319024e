// From the embedded sources to code objects in memory.
#include "compiler.hpp"

#include <rlk/sdk/kernel_cache.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>

// The sources, embedded by the assembler. RLK_SIMT_SOURCES: the folder of this file's parent.
#define RLK_SIMT_TEXTS(X)                              \
  X(standalone, "standalone.cuh")                      \
  X(platform_plain, "platform_plain.cuh")              \
  X(platform_hip, "platform_hip.cuh")                  \
  X(platform_maca, "platform_maca.cuh")                \
  X(simt, "simt.cuh")                                  \
  X(args, "args.h")                                    \
  X(tiling, "tiling.h")                                \
  X(element, "element.cuh")                            \
  X(tokens, "tokens.cuh")                              \
  X(add, "add.cuh")                                    \
  X(logp, "logp.cuh")                                  \
  X(logp_backward, "logp_backward.cuh")                \
  X(attention, "attention.cuh")                        \
  X(attention_simt, "attention_simt.cuh")              \
  X(kernels_add, "kernels/add.cu")                     \
  X(kernels_logp, "kernels/logp.cu")                   \
  X(kernels_logp_backward, "kernels/logp_backward.cu") \
  X(kernels_attention_simt, "kernels/attention_simt.cu")

#define RLK_SIMT_EMBED(name, file)           \
  asm(".section .rodata, \"a\", @progbits\n" \
      ".hidden rlk_simt_text_" #name         \
      "\n"                                   \
      ".globl rlk_simt_text_" #name          \
      "\n"                                   \
      "rlk_simt_text_" #name                 \
      ":\n"                                  \
      ".incbin \"" RLK_SIMT_SOURCES "/" file \
      "\"\n"                                 \
      ".byte 0\n"                            \
      ".previous\n");                        \
  extern "C" const char rlk_simt_text_##name[] __attribute__((visibility("hidden")));
RLK_SIMT_TEXTS(RLK_SIMT_EMBED)
#undef RLK_SIMT_EMBED

namespace rlk::simt::host {
namespace {

const char* text_of(const std::string& file) {
#define RLK_SIMT_FIND(name, path) \
  if (file == path) return rlk_simt_text_##name;
  RLK_SIMT_TEXTS(RLK_SIMT_FIND)
#undef RLK_SIMT_FIND
  return nullptr;
}

// Appends the file, each include of ours in place of its line, and only once; the compiler's own headers are not there.
void append(const std::string& file, const std::string& platform, std::set<std::string>& seen, std::string& out) {
  const char* text = text_of(file);
  if (text == nullptr) throw sdk::Error(RLK_BACKEND_ERROR, "this plugin holds no source of " + file);
  if (!seen.insert(file).second) return;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == "#pragma once" || line.rfind("#include <", 0) == 0) continue;
    if (line == "#include RLK_SIMT_PLATFORM") {
      append(platform, platform, seen, out);
      continue;
    }
    const size_t quote = line.rfind("#include \"", 0) == 0 ? 10 : 0;
    std::string name = quote != 0 ? line.substr(quote, line.rfind('"') - quote) : "";
    if (name.rfind("../", 0) == 0) name.erase(0, 3);
    if (!name.empty() && text_of(name) != nullptr) {
      append(name, platform, seen, out);
    } else {
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

std::string kernel_source(const std::string& kernels, const std::string& platform) {
  std::string out = "#define RLK_SIMT_PLATFORM\n";
  std::set<std::string> seen;
  append("standalone.cuh", platform, seen, out);
  append("kernels/" + kernels + ".cu", platform, seen, out);
  return out;
}

const void* compiled_image(const Compiler& compiler, const std::string& kernels, const std::string& device,
                           const std::vector<std::string>& options) {
  static std::mutex mutex;
  // Never destroyed: modules may be loaded from it until the very end.
  static auto& images = *new std::map<std::string, std::unique_ptr<const std::string>>;
  const std::string source = kernel_source(kernels, compiler.platform);
  std::string all_options;
  for (const std::string& option : options) all_options += " " + option;
  const std::string key = kernels + "-" + device + "-" + compiler.version +
                          sdk::format("-%016llx", static_cast<unsigned long long>(hash_of(source + all_options)));
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = images.find(key);
  if (found != images.end()) return found->second->data();
  const auto compile = [&] { return Program(compiler, source, kernels + ".cu").compile(options); };
  const sdk::Host* const host = current_host;
  const std::optional<std::string> image =
      host != nullptr ? sdk::cached_kernel(*host, key, compile) : std::optional<std::string>(compile());
  if (!image) {
    throw sdk::Error(RLK_NOT_READY, "another process compiles the kernels of " + kernels + " now; ask again");
  }
  return images.emplace(key, std::make_unique<const std::string>(*image)).first->second->data();
}

}  // namespace rlk::simt::host
