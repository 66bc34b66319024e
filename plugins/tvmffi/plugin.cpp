// Kernels with tvm-ffi's ABI for the devices of another plugin, as a manifest or packs describe them (README.md).
// Nothing here vouches for a kernel: it is verified like every other implementation before it serves a call.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
#include <rlk/sdk.hpp>
#include <rlk/sdk/borrowed.hpp>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>

#include "plugins/tvmffi/answer.hpp"
#include "plugins/tvmffi/call.hpp"
#include "plugins/tvmffi/pack.hpp"

#define RLK_TVMFFI_ID "tvmffi_" RLK_TVMFFI_BACKEND

namespace rlk::tvmffi {
namespace {

// The manifest as it was when this process first asked: what the tables below lead to lives as long as the process.
struct Known {
  Manifest manifest;
  std::vector<std::string> refused;  // packs, and why
  std::string problem;
  bool is_set = false;
  bool has_usable() const {
    return std::any_of(manifest.kernels.begin(), manifest.kernels.end(),
                       [](const Kernel& kernel) { return kernel.problem.empty(); });
  }
  std::vector<rlk_implementation> rows;
  std::vector<const rlk_implementation*> pointers;
  // Of each kernel the sizes at which it begins and ends to be served, so that verification comes to where it is.
  std::deque<rlk_switch> switches;
  std::vector<std::vector<const rlk_switch*>> switches_of;
};

struct Loaded {
  Function call = nullptr;
  std::string problem;
  const char* code = "KERNEL_MISSING";
};

std::vector<Loaded>& loaded() {
  static std::vector<Loaded> kernels;
  return kernels;
}

// ---- device and plugin --------------------------------------------------------------------------------------------

class Device final : public sdk::BorrowedDevice {
public:
  explicit Device(const rlk_attach_info& info)
      : dl_{RLK_TVMFFI_DEVICE, info.native != nullptr ? info.native->ordinal : static_cast<int32_t>(info.ordinal)} {}
  DlDevice dl() const noexcept { return dl_; }

private:
  const DlDevice dl_;
};

size_t place_of(const rlk_implementation* row) {
  return static_cast<size_t>(reinterpret_cast<uintptr_t>(row->user));
}

Known known_now(const rlk_host* host);
// The entry, which is called first, has the host.
const Known& known(const rlk_host* host = nullptr) {
  static const Known once = known_now(host);
  return once;
}
const Kernel& kernel_of(const rlk_implementation* row) {
  return known().manifest.kernels[place_of(row)];
}

sdk::Support answer_of(const rlk_implementation* row, const rlk_call_desc& desc) {
  const Loaded& function = loaded()[place_of(row)];
  return function.call != nullptr ? answer(kernel_of(row), desc) : sdk::Support::no(function.code, function.problem);
}

rlk_status query(const rlk_implementation* row, rlk_plugin_device*, const rlk_call_desc* desc, rlk_support* out,
                 rlk_error* error) noexcept {
  return sdk::detail::guard(error, [&] {
    const sdk::Support said = answer_of(row, *desc);
    rlk_support mine = rlk_support();
    mine.level = said.level;
    mine.numerics = said.numerics;
    mine.flags = said.flags;
    mine.workspace_bound = said.workspace_bound;
    sdk::detail::copy_text(mine.variant, said.variant.c_str());
    sdk::detail::copy_text(mine.reason_code, said.reason_code.c_str());
    sdk::detail::copy_text(mine.reason, said.reason.c_str());
    sdk::detail::answer(mine, out);
    return RLK_OK;
  });
}

rlk_status plan_create(const rlk_implementation* row, rlk_plugin_device* device, const rlk_call_desc* desc,
                       rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) noexcept {
  return sdk::detail::guard(error, [&] {
    const sdk::Support said = answer_of(row, *desc);
    if (said.level == RLK_SUPPORT_NO) throw sdk::Error(RLK_UNSUPPORTED, said.reason_code + ": " + said.reason);
    const DlDevice dl = static_cast<Device*>(sdk::detail::device_of(device))->dl();
    auto plan = std::make_unique<Plan>(kernel_of(row), loaded()[place_of(row)].call, dl, *desc);
    rlk_plan_info mine = rlk_plan_info();
    mine.flags = plan->flags;
    mine.dynamic_symbols = plan->dynamic_symbols;
    mine.workspace_bound = plan->workspace_bound;
    mine.numerics = plan->numerics;
    sdk::detail::copy_text(mine.variant, plan->variant.c_str());
    sdk::detail::answer(mine, info);
    *out = reinterpret_cast<rlk_plugin_plan*>(static_cast<sdk::Plan*>(plan.release()));
    return RLK_OK;
  });
}

rlk_status plan_enqueue(rlk_plugin_plan* plan, rlk_plugin_stream* stream, const rlk_run* run,
                        rlk_error* error) noexcept {
  return sdk::detail::guard(error, [&] {
    sdk::detail::plan_of(plan)->enqueue(*sdk::detail::stream_of(stream), sdk::Run(*run));
    return RLK_OK;
  });
}

rlk_status plan_destroy(rlk_plugin_plan* plan, rlk_error* error) noexcept {
  return sdk::detail::guard(error, [&] { return delete sdk::detail::plan_of(plan), RLK_OK; });
}

// RLK_TVMFFI_MANIFEST; without it the folder of packs beside this plugin, where there is one.
std::string path_of_kernels() {
  const char* path = secure_getenv("RLK_TVMFFI_MANIFEST");
  if (path != nullptr && *path != 0) return path;
  Dl_info here = {};
  char file[PATH_MAX];
  if (dladdr(reinterpret_cast<const void*>(&path_of_kernels), &here) == 0 || realpath(here.dli_fname, file) == nullptr)
    return {};
  const std::string whole = file, packs = whole.substr(0, whole.rfind('/') + 1) + kPacksFolder;
  return access(packs.c_str(), F_OK) == 0 ? packs : std::string();
}

// Hashing half a gigabyte takes seconds, so that the host's cache keeps the SHA-256 under what changes with the file.
std::string remembered_sha256(const sdk::Host& host, const std::string& path) {
  struct stat status = {};
  constexpr time_t kSettledSeconds = 2;  // the next change might leave the same times
  if (stat(path.c_str(), &status) != 0 || time(nullptr) - status.st_ctim.tv_sec <= kSettledSeconds)
    return sha256_of_file(path);
  std::string key = "sha256 of";
  for (const auto number :
       {static_cast<int64_t>(status.st_dev), static_cast<int64_t>(status.st_ino), static_cast<int64_t>(status.st_size),
        static_cast<int64_t>(status.st_mtim.tv_sec), static_cast<int64_t>(status.st_mtim.tv_nsec),
        static_cast<int64_t>(status.st_ctim.tv_sec), static_cast<int64_t>(status.st_ctim.tv_nsec)})
    key += " " + std::to_string(number);
  const auto known = sdk::cached_kernel(host, key, [&] { return sha256_of_file(path); });
  return known ? *known : sha256_of_file(path);  // another process hashes it now
}

Known known_now(const rlk_host* host) {
  Known out;
  const std::string path = path_of_kernels();
  out.is_set = !path.empty();
  if (!out.is_set || host == nullptr) return out;
  const sdk::Host services(*host, RLK_TVMFFI_ID);
  try {
    Kernels kernels = read_kernels(path, RLK_TVMFFI_BACKEND,
                                   [&](const std::string& file) { return remembered_sha256(services, file); });
    out.manifest = std::move(kernels.manifest);
    out.refused = std::move(kernels.refused);
    for (const std::string& text : out.refused) services.log(RLK_LOG_WARN, text);
  } catch (const std::exception& error) {
    out.problem = error.what();
  }
  out.rows.reserve(out.manifest.kernels.size());
  for (const Kernel& kernel : out.manifest.kernels) {
    const Operator& op = *kernel.op;
    std::vector<const rlk_switch*>& switches = out.switches_of.emplace_back();
    const auto add_switch = [&](uint32_t symbol, int64_t at) {
      out.switches.push_back({sizeof(rlk_switch), 0, op.symbols[symbol], at});
      switches.push_back(&out.switches.back());
    };
    for (const auto& [symbol, rule] : kernel.sizes) {
      if (rule.min > 1) add_switch(symbol, rule.min);
      if (rule.max < INT64_MAX) add_switch(symbol, rule.max + 1);
    }
    rlk_implementation row = {sizeof(rlk_implementation),
                              op.revision,
                              op.name,
                              kernel.name.c_str(),
                              op.params_size,
                              op.n_inputs,
                              op.n_outputs,
                              static_cast<uint32_t>(switches.size()),
                              nullptr,
                              reinterpret_cast<void*>(out.rows.size()),
                              &query,
                              &plan_create,
                              nullptr,
                              &plan_enqueue,
                              &plan_destroy};
    out.rows.push_back(row);
  }
  for (size_t i = 0; i < out.rows.size(); ++i) {
    out.rows[i].switches = out.switches_of[i].data();
    out.pointers.push_back(&out.rows[i]);
  }
  return out;
}

Loaded load(const Kernel& kernel) {
  if (!kernel.problem.empty()) return {nullptr, kernel.problem, "PACK_REFUSED"};
  std::string file;
  try {
    file = trusted_path(kernel.library);
  } catch (const sdk::Error& error) {
    return {nullptr, error.what()};
  }
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return {nullptr, dlerror()};
  const std::string symbol = kSymbolPrefix + kernel.symbol;
  void* function = dlsym(library, symbol.c_str());
  if (function == nullptr) return {nullptr, kernel.library + " exports no " + symbol};
  return {reinterpret_cast<Function>(function), {}};
}

class Plugin final : public sdk::OperatorPlugin {
public:
  using Device = tvmffi::Device;
  using Stream = sdk::BorrowedStream;
  using Event = sdk::NoEvent;
  using Implementations = std::tuple<>;  // known at run time: see the entry

  explicit Plugin(const sdk::Host&) {
    const Manifest& manifest = known().manifest;
    if (!known().problem.empty()) throw sdk::Error(RLK_INVALID_ARGUMENT, known().problem);
    if (!known().has_usable()) return;  // probe() says why
    std::string why;
    if (!find_library(&tvm(), &why) && !manifest.runtime.empty()) {
      const std::string runtime = trusted_path(manifest.runtime);
      // With global symbols, as Python loads it: kernels of some compilers name its functions and not the library.
      if (dlopen(runtime.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE) == nullptr)
        throw sdk::Error(RLK_NOT_FOUND, std::string("runtime of the manifest: ") + dlerror());
    }
    loaded().clear();
    for (const Kernel& kernel : manifest.kernels) loaded().push_back(load(kernel));
    if (!find_library(&tvm(), &why))
      throw sdk::Error(RLK_NOT_FOUND,
                       why + ", or name it in the manifest: runtime = \"/.../libtvm_ffi.so\"; first kernel: " +
                           (loaded().front().problem.empty() ? "loaded" : loaded().front().problem));
  }

  sdk::Verdict probe(sdk::Evidence& evidence) override {
    if (!known().is_set)
      return sdk::Verdict::absent(
          "NO_MANIFEST", "RLK_TVMFFI_MANIFEST is not set, and no packs are beside the plugin",
          "rlk-plugins pack add takes a pack of kernels with tvm-ffi's ABI; or set the variable "
          "to a file that describes such kernels");
    const std::vector<Kernel>& kernels = known().manifest.kernels;
    std::string refused;
    for (const std::string& text : known().refused) {
      evidence.contradicts("pack", text);
      refused += (refused.empty() ? "" : "; ") + text;
    }
    if (!refused.empty() && !known().has_usable())
      return sdk::Verdict::broken("PACK_REFUSED", refused, "rlk-plugins pack ls says what differs from the lock");
    if (kernels.empty())
      return sdk::Verdict::absent(
          "NO_KERNELS", "the manifest has no kernel for the backend " RLK_TVMFFI_BACKEND,
          "nothing, unless there are such kernels: a [[kernel]] with device = \"" RLK_TVMFFI_BACKEND "\"");
    for (size_t i = 0; i < kernels.size(); ++i) {
      const std::string what = std::string(kernels[i].op->name) + " " + kernels[i].name + ": ";
      if (loaded()[i].call != nullptr) {
        evidence.supports("kernel", what + kernels[i].symbol + " of " + kernels[i].library);
      } else {
        evidence.contradicts("kernel", what + loaded()[i].problem);
      }
    }
    return sdk::Verdict::mine("");
  }

  std::unique_ptr<sdk::Device> attach_device(const rlk_attach_info& info) override {
    return std::make_unique<Device>(info);
  }
};

}  // namespace
}  // namespace rlk::tvmffi

RLK_SDK_NOTE(RLK_SDK_NOTE_TEXT(RLK_TVMFFI_ID, RLK_TVMFFI_BACKEND,
                               "0.1.0") ";env=RLK_TVMFFI_MANIFEST;files=packs,$RLK_TVMFFI_MANIFEST")

extern "C" __attribute__((visibility("default"))) const rlk_plugin* rlk_plugin_entry_v1(const rlk_host* host,
                                                                                        rlk_error* error) {
  using namespace rlk::tvmffi;
  const rlk_plugin* fixed = rlk::sdk::detail::PluginThunks<Plugin>::entry(
      host, error, RLK_TVMFFI_ID, RLK_TVMFFI_BACKEND, "0.1.0", "kernels with tvm-ffi's ABI");
  if (fixed == nullptr) return nullptr;
  static rlk_plugin whole;
  const rlk_status status = rlk::sdk::detail::guard(error, [&] {
    whole = *fixed;
    known(host);
    whole.n_implementations = static_cast<uint32_t>(known().pointers.size());
    whole.implementations = known().pointers.data();
    return RLK_OK;
  });
  return status == RLK_OK ? &whole : nullptr;
}
