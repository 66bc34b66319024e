// A run-time compiler that compiles nothing: it looks at the text as a compiler would at its first tokens, and what it
// returns names the kernels that the simulated runtime has on fibers. RLK_RTC_HIP or RLK_RTC_MACA: whose names.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "runtime.hpp"

#define API FAKE_EXPORT int
#if defined(RLK_RTC_HIP)
#define P(name) hiprtc##name
#define CODE_SIZE hiprtcGetCodeSize
#define CODE hiprtcGetCode
constexpr const char* kLanes = "__shfl_xor(value, lanes, kWave)";
#else
#define P(name) mcrtc##name
#define CODE_SIZE mcrtcGetBitcodeSize
#define CODE mcrtcGetBitcode
constexpr const char* kLanes = "__shfl_xor_sync(kAllLanes";
#endif

namespace {

struct Program {
  std::string source, name, log, code;
};
constexpr int kCompilation = 6;

// A compiler that takes as long as a test wants.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
  int inside = 0, programs = 0;

  void pass() {
    std::unique_lock<std::mutex> lock(mutex);
    ++inside;
    ++programs;
    changed.wait(lock, [this] { return !held; });
    --inside;
  }
};
Gate gate;

}  // namespace

FAKE_EXPORT void fakeCompilerHold(int held) {
  const std::lock_guard<std::mutex> lock(gate.mutex);
  gate.held = held != 0;
  gate.changed.notify_all();
}
FAKE_EXPORT int fakeCompilerInside() {
  const std::lock_guard<std::mutex> lock(gate.mutex);
  return gate.inside;
}
FAKE_EXPORT int fakeCompilerPrograms() {
  const std::lock_guard<std::mutex> lock(gate.mutex);
  return gate.programs;
}

API P(CreateProgram)(Program** out, const char* source, const char* name, int headers, const char**, const char**) {
  if (source == nullptr || headers != 0) return 1;
  return *out = new Program{source, name, "", ""}, 0;
}
API P(CompileProgram)(Program* program, int options, const char** option) {
  for (int i = 0; i < options; ++i) {
    if (option[i][0] != '-') return 5;
  }
  gate.pass();
  const std::string kernels = program->name.substr(0, program->name.find('.'));
  for (const char* needed : {"#define RLK_SIMT_PLATFORM\n", kLanes}) {
    if (program->source.find(needed) != std::string::npos) continue;
    program->log = std::string("error: the source lacks ") + needed;
    return kCompilation;
  }
  if (program->source.find("#include <") != std::string::npos) {
    program->log = "error: there are no standard headers";
    return kCompilation;
  }
  program->code = fake_simt::kCodeMagic + kernels + "\n";
  return 0;
}
API P(GetProgramLogSize)(Program* program, size_t* bytes) {
  return *bytes = program->log.size() + 1, 0;
}
API P(GetProgramLog)(Program* program, char* text) {
  return std::strcpy(text, program->log.c_str()), 0;
}
API CODE_SIZE(Program* program, size_t* bytes) {
  return *bytes = program->code.size() + 1, 0;
}
API CODE(Program* program, char* code) {
  return std::memcpy(code, program->code.c_str(), program->code.size() + 1), 0;
}
API P(DestroyProgram)(Program** program) {
  return delete *program, *program = nullptr, 0;
}
