// Kernels compiled on the machine that runs them: the sources travel inside the plugin, one text per file of kernels,
// and go through a run-time compiler of NVRTC's shape (hipRTC, MACA's). The host keeps what comes out.
#pragma once

#include "calls.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace rlk::simt::host {

using ProgramHandle = struct ProgramTag*;

// member, function without the vendor's prefix, parameters; all return 0 for success
#define RLK_SIMT_COMPILER_FUNCTIONS(X)                                                                  \
  X(create, CreateProgram,                                                                              \
    (ProgramHandle * out, const char* source, const char* name, int headers, const char** header_texts, \
     const char** header_names))                                                                        \
  X(compile, CompileProgram, (ProgramHandle program, int options, const char** option))                 \
  X(log_size, GetProgramLogSize, (ProgramHandle program, size_t * bytes))                               \
  X(log, GetProgramLog, (ProgramHandle program, char* text))                                            \
  X(destroy, DestroyProgram, (ProgramHandle * program))

// Sources that only one vendor has.
struct OwnTexts {
  const char* folder = "";                                 // from plugins/simt: "../rocm/kernels/"
  const char* (*text)(const std::string& file) = nullptr;  // of a file there; nullptr when there is none
};

struct Compiler {
#define RLK_SIMT_MEMBER(member, function, parameters) int(*member) parameters = nullptr;
  RLK_SIMT_COMPILER_FUNCTIONS(RLK_SIMT_MEMBER)
#undef RLK_SIMT_MEMBER
  // Vendors name their result differently: code, bitcode.
  int (*code_size)(ProgramHandle program, size_t* bytes) = nullptr;
  int (*code)(ProgramHandle program, char* bytes) = nullptr;

  const char* name = "";      // in texts: "hipRTC"
  const char* platform = "";  // the file that answers simt.cuh: "platform_hip.cuh"
  OwnTexts own;
  std::string version;  // of the compiler: another one makes other kernels
  sdk::Symbols symbols;

  bool usable() const {
    return symbols.complete();
  }
};

// The whole text of operators/<image>.cuh, of kernels/<image>.cu or of the vendor's own <image>.cu, with everything
// that it includes.
std::string kernel_source(const std::string& image, const std::string& platform, const OwnTexts& own = {});

// The compiled kernels of a device, valid until the process ends. device: what names it to the cache. place: what is
// current on the thread that compiles; nullptr: nothing. Each key (source, options, device) is compiled once, on a
// thread of its own, and no key waits for another. The first caller waits for a while (set_first_wait). Throws
// RLK_NOT_READY while this or another process compiles them, and with the compiler's log when they do not compile.
// [thread-safe]
const void* compiled_image(const Compiler& compiler, const std::string& image, const std::string& device,
                           const std::vector<std::string>& options, const Place* place = nullptr);
// How long the caller that begins a compilation waits for its end before it is told that it is not ready. For tests.
void set_first_wait(std::chrono::milliseconds longest);

// The host in whose cache compiled kernels are kept: that of the plugin which lives, and holds this.
class HostScope {
public:
  explicit HostScope(const sdk::Host& host);
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

private:
  const sdk::Host host_;
};

}  // namespace rlk::simt::host
