// Opening the libraries, finding every function, and what an error code means.
#include "runtime.hpp"

#include <cstdlib>

namespace rlk::cambricon {
namespace {

constexpr int kOldestCnrt = 5;  // before it queues, notifiers and memory have other names and arguments

// Where to look after the loader's own places, for processes that were started without Neuware's environment.
std::vector<std::string> installations() {
  std::vector<std::string> folders;
  const char* home = std::getenv("NEUWARE_HOME");
  if (home != nullptr && *home != '\0') folders.push_back(std::string(home) + "/lib64");
  folders.emplace_back("/usr/local/neuware/lib64");
  return folders;
}

template <class Function>
std::string version_of(Function* ask, int* major = nullptr) {
  int x = 0, y = 0, z = 0;
  if (ask == nullptr) return {};
  ask(&x, &y, &z);
  if (major != nullptr) *major = x;
  return sdk::format("%d.%d.%d", x, y, z);
}

std::string missing_of_captures(const Runtime& r) {
  std::string names;
#define RLK_CAMBRICON_NAMED(name, arguments) \
  if (r.name == nullptr) names += (names.empty() ? "" : ", ") + std::string(#name);
  RLK_CNRT_CAPTURE(RLK_CAMBRICON_NAMED)
#undef RLK_CAMBRICON_NAMED
  return names.empty() ? names : "this CNRT (" + r.cnrt_version + ") captures no graphs: it lacks " + names;
}

void bind(Runtime& r, const std::vector<std::string>& aside) {
  sdk::Symbols& symbols = r.symbols;
  void* cnrt = symbols.require_library({"libcnrt.so"}, aside);
  void* cndrv = symbols.require_library({"libcndrv.so"}, aside);
  void* cnnl = symbols.require_library({"libcnnl.so"}, aside);
  if (!symbols.missing_libraries().empty()) {
    r.reason_code = "RUNTIME_LIBRARY_MISSING";
    r.reason = "cannot open " + symbols.missing_libraries() + "; looked where the loader looks";
    for (const std::string& folder : aside) r.reason += ", in " + folder;
    return;
  }
  for (void* found : {dlsym(cnrt, "cnrtGetDeviceCount"), dlsym(cndrv, "cnInit"), dlsym(cnnl, "cnnlCreate")}) {
    const std::string path = sdk::Symbols::path_of(reinterpret_cast<void (*)()>(found));
    if (!path.empty()) r.library_paths.push_back(path);
  }

  symbols.find(cnrt, "cnrtGetLibVersion", r.cnrtGetLibVersion);
  symbols.find(cnnl, "cnnlGetLibVersion", r.cnnlGetLibVersion);
  int major = 0;
  r.cnrt_version = version_of(r.cnrtGetLibVersion, &major);
  r.cnnl_version = version_of(r.cnnlGetLibVersion);
  if (major < kOldestCnrt) {
    r.reason_code = "RUNTIME_TOO_OLD";
    r.reason =
        (r.cnrt_version.empty() ? "libcnrt.so has no cnrtGetLibVersion" : "libcnrt.so is CNRT " + r.cnrt_version) +
        std::string("; 5.0 is the oldest that this plugin knows");
    return;
  }

  if (!symbols.find(cnrt, "cnrtMemcpyAsync_V3", r.cnrtMemcpyAsync))
    symbols.require(cnrt, "cnrtMemcpyAsync", r.cnrtMemcpyAsync);
#define RLK_CAMBRICON_CNRT(name, arguments) symbols.require(cnrt, #name, r.name);
#define RLK_CAMBRICON_CNDRV(name, arguments) symbols.require(cndrv, #name, r.name);
#define RLK_CAMBRICON_CNNL(name, arguments) symbols.require(cnnl, #name, r.name);
  RLK_CNRT_REQUIRED(RLK_CAMBRICON_CNRT)
  RLK_CNDRV_REQUIRED(RLK_CAMBRICON_CNDRV)
  RLK_CNNL_REQUIRED(RLK_CAMBRICON_CNNL)
#undef RLK_CAMBRICON_CNRT
#undef RLK_CAMBRICON_CNDRV
#undef RLK_CAMBRICON_CNNL
#define RLK_CAMBRICON_CNRT(name, arguments) symbols.find(cnrt, #name, r.name);
#define RLK_CAMBRICON_CNDRV(name, arguments) symbols.find(cndrv, #name, r.name);
#define RLK_CAMBRICON_CNNL(name, arguments) symbols.find(cnnl, #name, r.name);
  RLK_CNRT_OPTIONAL(RLK_CAMBRICON_CNRT)
  RLK_CNRT_CAPTURE(RLK_CAMBRICON_CNRT)
  RLK_CNDRV_OPTIONAL(RLK_CAMBRICON_CNDRV)
  RLK_CNNL_OPTIONAL(RLK_CAMBRICON_CNNL)
#undef RLK_CAMBRICON_CNRT
#undef RLK_CAMBRICON_CNDRV
#undef RLK_CAMBRICON_CNNL
  r.no_captures = missing_of_captures(r);
  symbols.find(cnrt, "cnrtGetErrorStr", r.cnrtGetErrorStr);
  symbols.find(cnnl, "cnnlGetErrorString", r.cnnlGetErrorString);
  if (symbols.missing_functions().empty()) return;
  r.reason_code = "RUNTIME_SYMBOL_MISSING";
  r.reason =
      "this Neuware (CNRT " + r.cnrt_version + ", CNNL " + r.cnnl_version + ") lacks " + symbols.missing_functions();
  for (const std::string& path : r.library_paths)
    r.reason += (&path == &r.library_paths.front() ? "; tried " : ", ") + path;
}

rlk_status status_of(int code) {
  if (code >= kCaptureUnsupported && code <= kCaptureUnmatched) return RLK_CAPTURE_FORBIDS;
  switch (code) {
    case kHostMemory:
    case kDeviceMemory:
      return RLK_OUT_OF_MEMORY;
    case kNoDevice:
    case kQueueFailed:
    case kAssert:
    case kKernelTrap:
      return RLK_DEVICE_LOST;
    default:
      return RLK_BACKEND_ERROR;
  }
}

[[noreturn]] void fail(rlk_status status, int code, const char* call, const char* text, const char* domain) {
  throw sdk::Error(status, sdk::format("%s failed with %d (%s)", call, code, text != nullptr ? text : "no text"), code,
                   domain);
}

}  // namespace

const Runtime& runtime() {
  static const Runtime* const instance = [] {
    auto* r = new Runtime;
    bind(*r, installations());
    return r;
  }();
  return *instance;
}

int initialize() {
  static const int code = runtime().cnInit(0);
  return code;
}

void check(int code, const char* call) {
  if (code == 0) return;
  const auto text = runtime().cnrtGetErrorStr;
  fail(status_of(code), code, call, text != nullptr ? text(code) : nullptr, "cnrt");
}

bool is_done(int code, const char* call) {
  if (code == kNotReady || code == kBusy) return false;
  check(code, call);
  return true;
}

void check_cnnl(int status, const char* call) {
  if (status == 0) return;
  // CNNL does not say that the device is lost; the runtime below it does.
  const auto last_error = runtime().cnrtPeekAtLastError;
  if ((status == kCnnlInternalError || status == kCnnlExecutionFailed) && last_error != nullptr) {
    if (const int code = last_error(); status_of(code) == RLK_DEVICE_LOST) check(code, call);
  }
  const auto text = runtime().cnnlGetErrorString;
  fail(status == kCnnlAllocFailed    ? RLK_OUT_OF_MEMORY
       : status == kCnnlNotSupported ? RLK_UNSUPPORTED
                                     : RLK_BACKEND_ERROR,
       status, call, text != nullptr ? text(status) : nullptr, "cnnl");
}

}  // namespace rlk::cambricon
