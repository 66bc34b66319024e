// Opening the libraries, finding every function, and what an error code means.
#include "runtime.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace rlk::ascend {
namespace {

constexpr const char* kDefaultHome = "/usr/local/Ascend/ascend-toolkit/latest";

// By name first: a process that has CANN loaded must get the same copy. Then the installation folders, for processes
// that were started without set_env.sh. `why` says what is wrong with a file that is there but does not load.
void* open(const std::string& name, std::string& why) {
  std::vector<std::string> places = {name};
  const char* const homes[] = {std::getenv("ASCEND_HOME_PATH"), std::getenv("ASCEND_TOOLKIT_HOME"), kDefaultHome};
  for (const char* home : homes) {
    if (home != nullptr && *home != '\0') places.push_back(std::string(home) + "/lib64/" + name);
  }
  for (const std::string& place : places) {
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* text = dlerror();
    const bool is_absent = text == nullptr || std::string(text).rfind(place + ": cannot open", 0) == 0;
    if (!is_absent) why = text;
  }
  return nullptr;
}

std::string path_of(void* symbol) {
  Dl_info info{};
  return symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

void* require_library(Runtime& r, const char* name) {
  std::string why;
  void* library = open(name, why);
  if (library == nullptr) append(r.missing_libraries, name + (why.empty() ? why : " (" + why + ")"));
  return library;
}

Runtime* load() {
  auto* r = new Runtime;
  void* acl = require_library(*r, "libascendcl.so");
  void* base = require_library(*r, "libnnopbase.so");
  // 8.x has one library of operators, 9.x several beside it.
  std::vector<void*> operators;
  std::string why;
  for (const char* name : {"libopapi.so", "libopapi_math.so", "libopapi_nn.so", "libopapi_transformer.so"}) {
    if (void* library = open(name, why)) operators.push_back(library);
  }
  if (operators.empty()) append(r->missing_libraries, "libopapi.so" + (why.empty() ? why : " (" + why + ")"));
  if (!r->missing_libraries.empty()) return r;

#define RLK_ASCEND_FIND(name, result, arguments) \
  find(acl, #name, r->name);                     \
  if (r->name == nullptr) append(r->missing_functions, #name);
  RLK_ASCEND_ACL_REQUIRED(RLK_ASCEND_FIND)
#undef RLK_ASCEND_FIND
#define RLK_ASCEND_FIND(name, result, arguments) find(acl, #name, r->name);
  RLK_ASCEND_ACL_OPTIONAL(RLK_ASCEND_FIND)
#undef RLK_ASCEND_FIND
#define RLK_ASCEND_FIND(name, result, arguments) \
  find(base, #name, r->name);                    \
  if (r->name == nullptr) append(r->missing_functions, #name);
  RLK_ASCEND_NNOPBASE_REQUIRED(RLK_ASCEND_FIND)
#undef RLK_ASCEND_FIND
  // An operator that is not here is declined where it is needed.
#define RLK_ASCEND_FIND(name, ...)                                      \
  for (void* library : operators) {                                     \
    find(library, "aclnn" #name "GetWorkspaceSize", r->name.workspace); \
    find(library, "aclnn" #name, r->name.run);                          \
    if (r->name.present()) break;                                       \
  }
  RLK_ASCEND_OPERATORS(RLK_ASCEND_FIND)
#undef RLK_ASCEND_FIND

  for (void* symbol : {reinterpret_cast<void*>(r->aclInit), reinterpret_cast<void*>(r->aclCreateTensor),
                       reinterpret_cast<void*>(r->Add.run)}) {
    if (const std::string path = path_of(symbol); !path.empty()) r->library_paths.push_back(path);
  }
  return r;
}

// What the documented codes mean; the runtime has no function that tells.
const char* meaning(int code) {
  switch (code) {
    case 107001:
      return "no such device";
    case 107002:
      return "no context on this thread";
    case 107003:
      return "the stream belongs to another context";
    case 161001:
      return "a required argument of an operator is null";
    case 161002:
      return "the operator rejects its arguments";
    case 200000:
    case 207001:
    case 207018:
      return "out of memory";
    case 207004:
      return "no device";
    case 507014:
      return "an AI core ran into its deadline";
    case 507015:
    case 507035:
      return "an AI core raised an exception";
    case 507018:
      return "an AI CPU raised an exception";
    case kAclStreamSyncTimeout:
    case kAclEventSyncTimeout:
      return "a deadline passed";
    case 561003:
      return "the operator has no kernel for this device";
    default:
      return "see the CANN documentation of error codes";
  }
}

rlk_status status_of(int code) {
  switch (code) {
    case 200000:
    case 207001:
    case 207018:
      return RLK_OUT_OF_MEMORY;
    case kAclStreamSyncTimeout:
    case kAclEventSyncTimeout:
      return RLK_TIMEOUT;
    default:
      return RLK_BACKEND_ERROR;
  }
}

}  // namespace

const Runtime& runtime() {
  static const Runtime* const instance = load();
  return *instance;
}

void check(int code, const char* call) {
  if (code == 0) return;
  std::string text = sdk::format("%s failed with %d (%s)", call, code, meaning(code));
  const char* details = runtime().aclGetRecentErrMsg();
  if (details != nullptr && *details != '\0') text += std::string(": ") + details;
  const bool operator_code = code == 361001 || (code >= 161000 && code < 162000) || (code >= 561000 && code < 562000);
  throw sdk::Error(status_of(code), text, code, operator_code ? "aclnn" : "acl");
}

}  // namespace rlk::ascend
