// Finding the functions, and what a status means.
#include "library.hpp"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <vector>

namespace rlk::cudnn {
namespace {

void append_matches(std::vector<std::string>* folders, const std::string& pattern) {
  glob_t found = {};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) folders->emplace_back(found.gl_pathv[i]);
  }
  globfree(&found);
}

// What torch in this environment would load, and what the user names: a process has one cuDNN, and the prober's child,
// where no framework has loaded it yet, should try the same one.
std::vector<std::string> own_folders() {
  std::vector<std::string> all;
  if (const char* root = std::getenv("CUDNN_HOME")) {
    all.push_back(std::string(root) + "/lib");
    all.push_back(std::string(root) + "/lib64");
  }
  if (const char* root = std::getenv("VIRTUAL_ENV")) {
    append_matches(&all, std::string(root) + "/lib/python3*/site-packages/nvidia/cudnn/lib");
  }
  // Where pip installed the package rlk, it puts NVIDIA's packages beside it: in a folder above this file.
  Dl_info here = {};
  if (dladdr(reinterpret_cast<void*>(&append_matches), &here) != 0 && here.dli_fname != nullptr) {
    std::string folder = here.dli_fname;
    while (folder.find('/') != std::string::npos) {
      folder.erase(folder.rfind('/'));
      if (folder.ends_with("site-packages")) all.push_back(folder + "/nvidia/cudnn/lib");
    }
  }
  return all;
}

// Where toolkits put it, for processes whose loader does not know.
std::vector<std::string> toolkit_folders() {
  std::vector<std::string> all;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* root = std::getenv(variable);
    if (root == nullptr) continue;
    all.push_back(std::string(root) + "/lib");
    all.push_back(std::string(root) + "/lib64");
  }
  all.emplace_back("/usr/local/cuda/lib64");
  return all;
}

// In the order in which they are tried, the last one by the loader's own rules.
std::vector<std::string> names() {
  constexpr const char* kName = "libcudnn.so.9";
  std::vector<std::string> all;
  void* const loaded = dlopen(kName, RTLD_NOW | RTLD_NOLOAD);
  if (loaded != nullptr) {
    dlclose(loaded);  // the code that loaded it keeps it
    return {kName};
  }
  for (const std::string& folder : own_folders()) append_matches(&all, folder + "/" + kName);
  all.emplace_back(kName);
  return all;
}

Library open() {
  Library made;
  sdk::Symbols& symbols = made.symbols;
  void* cudnn = symbols.require_library(names(), toolkit_folders());
#define RLK_CUDNN_NEED(result, member, symbol, parameters) symbols.require(cudnn, symbol, made.member);
  RLK_CUDNN_FUNCTIONS(RLK_CUDNN_NEED)
#undef RLK_CUDNN_NEED
  void* driver = symbols.require_library({"libcuda.so.1"});
  symbols.require(driver, "cuCtxGetCurrent", made.context_current);
  symbols.require(driver, "cuCtxPushCurrent_v2", made.context_push);
  symbols.require(driver, "cuCtxPopCurrent_v2", made.context_pop);
  return made;
}

}  // namespace

const Library& library() {
  static const Library* const instance = new Library(open());
  return *instance;
}

std::string version_text(size_t version) {
  return sdk::format("%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

void check(Status status, const char* attempt) {
  if (status == status::kSuccess) return;
  throw sdk::Error(is_unsupported(status) ? RLK_UNSUPPORTED : RLK_BACKEND_ERROR,
                   sdk::format("%s failed with %d (%s)", attempt, status, library().error_string(status)), status,
                   "cudnn");
}

void* ContextStack::current() {
  void* context = nullptr;
  const int code = library().context_current(&context);
  if (code != 0) throw sdk::Error(RLK_BACKEND_ERROR, "asking for the current context failed", code, "cuda");
  return context;
}

void ContextStack::enter(void* wanted) {
  const int code = library().context_push(wanted);
  if (code != 0) throw sdk::Error(RLK_BACKEND_ERROR, "making the device's context current failed", code, "cuda");
}

void ContextStack::leave(void*) noexcept {
  void* popped = nullptr;
  library().context_pop(&popped);
}

}  // namespace rlk::cudnn
