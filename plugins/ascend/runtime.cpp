// Opening the libraries, finding every function, and what an error code means.
#include "runtime.hpp"

#include <cstdlib>

namespace rlk::ascend {
namespace {

constexpr const char* kDefaultHome = "/usr/local/Ascend/ascend-toolkit/latest";

// Where to look after the loader's own places, for processes that were started without set_env.sh. The name alone comes
// first: a process that has CANN loaded must get the same copy.
std::vector<std::string> installations() {
  std::vector<std::string> folders;
  const char* const homes[] = {std::getenv("ASCEND_HOME_PATH"), std::getenv("ASCEND_TOOLKIT_HOME"), kDefaultHome};
  for (const char* home : homes) {
    if (home != nullptr && *home != '\0') folders.push_back(std::string(home) + "/lib64");
  }
  return folders;
}

Runtime* load() {
  auto* r = new Runtime;
  sdk::Symbols& symbols = r->symbols;
  const std::vector<std::string> aside = installations();
  void* acl = symbols.require_library({"libascendcl.so"}, aside);
  void* base = symbols.require_library({"libnnopbase.so"}, aside);
  // 8.x has one library of operators, 9.x several beside it.
  std::vector<void*> operators = {symbols.require_library({"libopapi.so", "libopapi_math.so"}, aside)};
  for (const char* name : {"libopapi_math.so", "libopapi_nn.so", "libopapi_transformer.so"}) {
    if (void* library = symbols.find_library({name}, aside)) operators.push_back(library);
  }
  if (!symbols.missing_libraries().empty()) return r;

#define RLK_ASCEND_REQUIRE(name, result, arguments) symbols.require(acl, #name, r->name);
#define RLK_ASCEND_FIND(name, result, arguments) symbols.find(acl, #name, r->name);
#define RLK_ASCEND_REQUIRE_BASE(name, result, arguments) symbols.require(base, #name, r->name);
  RLK_ASCEND_ACL_REQUIRED(RLK_ASCEND_REQUIRE)
  RLK_ASCEND_ACL_OPTIONAL(RLK_ASCEND_FIND)
  RLK_ASCEND_ACL_CAPTURE(RLK_ASCEND_FIND)
  RLK_ASCEND_NNOPBASE_REQUIRED(RLK_ASCEND_REQUIRE_BASE)
#undef RLK_ASCEND_REQUIRE
#undef RLK_ASCEND_FIND
#undef RLK_ASCEND_REQUIRE_BASE
  // An operator that is not here is declined where it is needed.
#define RLK_ASCEND_FIND(name, ...)                                              \
  for (void* library : operators) {                                             \
    symbols.find(library, "aclnn" #name "GetWorkspaceSize", r->name.workspace); \
    symbols.find(library, "aclnn" #name, r->name.run);                          \
    if (r->name.present()) break;                                               \
  }
  RLK_ASCEND_OPERATORS(RLK_ASCEND_FIND)
  RLK_ASCEND_LATER_OPERATORS(RLK_ASCEND_FIND)
#undef RLK_ASCEND_FIND

  for (const std::string& path : {sdk::Symbols::path_of(r->aclInit), sdk::Symbols::path_of(r->aclCreateTensor),
                                  sdk::Symbols::path_of(r->Add.run)}) {
    if (!path.empty()) r->library_paths.push_back(path);
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
    case 107024:
      return "an event of outside the capture";
    case 107025:
      return "a stream that joined the capture has not come back";
    case 107026:
      return "the graph is still being captured";
    case 107027:
      return "the stream is part of a capture";
    case 107028:
      return "the event is part of a capture";
    case 107029:
    case 107036:
      return "the stream has begun no capture";
    case 107030:
    case 107041:
      return "a capture forbids the call";
    case 107031:
      return "the default stream is never captured";
    case 107032:
      return "the event is part of another capture";
    case 107037:
      return "the graph still runs";
    case 107038:
      return "the capture was begun by another thread";
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
    case 507010:
      return "the device has stopped answering";
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
    case 507903:
      return "an earlier call has broken the capture";
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
    case 507010:
      return RLK_DEVICE_LOST;
    // What a capture forbids, and what is left of one that it broke.
    case 107024:
    case 107025:
    case 107026:
    case 107027:
    case 107028:
    case 107029:
    case 107030:
    case 107031:
    case 107032:
    case 107036:
    case 107038:
    case 107041:
    case 507903:
      return RLK_CAPTURE_FORBIDS;
    default:
      return RLK_BACKEND_ERROR;
  }
}

// ": " and what the runtime says of the thread's last failure, if it says anything.
std::string details() {
  const char* text = runtime().aclGetRecentErrMsg();
  return text != nullptr && *text != '\0' ? std::string(": ") + text : std::string();
}

}  // namespace

const Runtime& runtime() {
  static const Runtime* const instance = load();
  return *instance;
}

Family family_of(const std::string& soc) {
  const auto begins = [&](const std::string& with) { return soc.rfind(with, 0) == 0; };
  const std::string a2 = "Ascend910B";
  if (begins(a2) && soc.size() > a2.size() && soc[a2.size()] >= '0' && soc[a2.size()] <= '9') return Family::atlas_a2;
  if (begins("Ascend910_93")) return Family::atlas_a3;
  return begins("Ascend950") ? Family::ascend_950 : Family::other;
}

std::string soc_name() {
  const char* name = runtime().aclrtGetSocName();
  return name != nullptr ? name : "";
}

void check(int code, const char* call) {
  if (code == 0) return;
  const std::string text = sdk::format("%s failed with %d (%s)", call, code, meaning(code)) + details();
  const bool operator_code = code == 361001 || (code >= 161000 && code < 162000) || (code >= 561000 && code < 562000);
  throw sdk::Error(status_of(code), text, code, operator_code ? "aclnn" : "acl");
}

void check_created(const void* made, const char* call) {
  // No code comes with it: only the runtime's text tells what it was.
  if (made == nullptr)
    throw sdk::Error(RLK_BACKEND_ERROR, std::string(call) + " returned NULL" + details(), 0, "aclnn");
}

}  // namespace rlk::ascend
