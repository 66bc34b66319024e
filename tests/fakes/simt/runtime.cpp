// Attributes, modules and kernels of simulated SIMT devices.
#include "runtime.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "plugins/cuda/kernels/attention_parts.h"
#include "plugins/cuda/kernels/grouped_mma.h"
#include "plugins/cuda/kernels/grouped_pairs.h"
#include "plugins/cuda/kernels/linear_logp_wgmma.h"
#include "plugins/cuda/kernels/linear_slopes_wgmma.h"
#include "plugins/simt/args.h"
#include "plugins/simt/attention_samples.h"
#include "plugins/simt/grouped.h"
#include "plugins/simt/linear_losses.h"
#include "plugins/simt/paged_attention.h"
#include "plugins/simt/products.h"
#include "plugins/simt/skeleton/groups.h"
#include "plugins/simt/skeleton/move.h"
#include "plugins/simt/skeleton/rows.h"
#include "plugins/simt/skeleton/scan.h"
#include "plugins/simt/skeleton/tokens.h"
#include "tests/fakes/cuda/clusters.hpp"

namespace fake_simt {

FAKE_HANDLES(Module, modules, 5, "module")
FAKE_HANDLES(Function, functions, 6, "kernel")
FAKE_HANDLES(std::shared_ptr<Held>, user_objects, 7, "user object")

int attribute_of(int device, int attribute, int* value) {
  if (!is_device(device)) return runtime().invalid_device;
  if (attribute == vendor().width_attribute) return *value = static_cast<int>(knob("WIDTH", RLK_EMULATED_WAVE)), 0;
  if (attribute == vendor().shared_attribute) return *value = static_cast<int>(shared_bytes()), 0;
  if (knob("ATTRIBUTES", 1) == 0) return runtime().invalid_value;
  const auto found = vendor().attributes.find(attribute);
  return found == vendor().attributes.end() ? runtime().invalid_value : (*value = found->second, 0);
}

namespace {

using namespace rlk::simt;

template <class Args>
std::function<void()> bind(const Function& function, const void* arguments) {
  const Args args = *static_cast<const Args*>(arguments);
  require_addresses(&args, sizeof(args), function.name);
  void* const entry = function.entry;
  return [entry, args] { reinterpret_cast<void (*)(Args)>(entry)(args); };
}

std::function<void()> bind(const Function& function, const void* arguments) {
  const auto starts = [&](const char* prefix) { return function.name.rfind(prefix, 0) == 0; };
  if (function.name.find("_moves_") != std::string::npos) return bind<MoveArgs>(function, arguments);
  if (starts("products_map_")) return bind<ProductsMapArgs>(function, arguments);
  if (starts("products_columns_")) return bind<ProductsColumnsArgs>(function, arguments);
  if (starts("products_rows_")) return bind<ProductsRowsArgs>(function, arguments);
  if (starts("products_largest") || starts("products_scale")) return bind<ProductsScaleArgs>(function, arguments);
  if (starts("products_errors")) return bind<ProductsErrorsArgs>(function, arguments);
  if (starts("grouped_rows_") || starts("grouped_sums_")) return bind<GroupedArgs>(function, arguments);
  if (starts("grouped_wgmma_pairs_")) return bind<rlk::cuda::GroupedPairArgs>(function, arguments);
  if (starts("grouped_mma_") || starts("grouped_wgmma_")) return bind<rlk::cuda::GroupedMmaArgs>(function, arguments);
  if (starts("linear_logp_wgmma_")) return bind<rlk::cuda::LinearLogpWgmmaArgs>(function, arguments);
  if (starts("linear_slopes_wgmma_")) return bind<rlk::cuda::LinearSlopesWgmmaArgs>(function, arguments);
  if (starts("linear_losses_")) return bind<LinearLossArgs>(function, arguments);
  if (starts("paged_attention_")) return bind<PagedAttentionArgs>(function, arguments);
  if (starts("logp_backward_")) return bind<LogpBackwardArgs>(function, arguments);
  if (starts("logp_")) return bind<LogpArgs>(function, arguments);
  if (starts("attention_parts_") || starts("attention_fixed_"))
    return bind<rlk::cuda::AttentionPartsArgs>(function, arguments);
  if (starts("attention_gradients_")) return bind<AttentionGradientArgs>(function, arguments);
  if (starts("prefix_attention_")) return bind<SampleAttentionArgs>(function, arguments);
  if (starts("attention_")) return bind<AttentionArgs>(function, arguments);
  if (function.name.find("_map_") != std::string::npos) {
    const bool is_line = function.name.size() > 5 && function.name.compare(function.name.size() - 5, 5, "_line") == 0;
    return is_line ? bind<MapLineArgs>(function, arguments) : bind<MapArgs>(function, arguments);
  }
  if (function.name.find("_rows_") != std::string::npos) return bind<RowArgs>(function, arguments);
  if (function.name.find("_groups_") != std::string::npos) return bind<GroupArgs>(function, arguments);
  if (function.name.find("_scan_") != std::string::npos) return bind<ScanArgs>(function, arguments);
  if (function.name.find("_tokens_") != std::string::npos) return bind<TokenArgs>(function, arguments);
  violation("UNKNOWN_KERNEL", function.name + ": nothing says here what its argument is");
}

thread_local const char* kernel_that_runs = "";

}  // namespace

unsigned shared_bytes() {
  return static_cast<unsigned>(knob("SHARED", vendor().shared_bytes));
}

int load_module(const void* image, void** out) {
  const std::string magic = kCodeMagic;
  if (image == nullptr) return kInvalidImage;
  // What hipcc made for a device that the test has named is not read: a kernel is found by its name alone.
  const std::string built = "__CLANG_OFFLOAD_BUNDLE__";
  if (std::strncmp(static_cast<const char*>(image), built.c_str(), built.size()) == 0) {
    *out = modules().add(std::make_shared<Module>(Module{current_device(), ""}));
    return 0;
  }
  if (std::strncmp(static_cast<const char*>(image), magic.c_str(), magic.size()) != 0) return kInvalidImage;
  std::string kernels = static_cast<const char*>(image) + magic.size();
  *out = modules().add(std::make_shared<Module>(Module{current_device(), kernels.substr(0, kernels.find('\n'))}));
  return 0;
}

int find_function(Module& module, const char* name, void** out) {
  // attention_simt holds attention_plan_packed too; a name of another file is not found.
  const std::string prefix = module.kernels == "attention_simt" ? "attention_" : module.kernels + "_";
  if (!module.kernels.empty() && std::string(name).rfind(prefix, 0) != 0) return kNotFound;
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&fake_simt::vendor), &self);
  void* const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  void* const entry = library != nullptr ? dlsym(library, name) : nullptr;
  if (entry == nullptr) return kNotFound;
  const auto* const cluster = static_cast<const unsigned*>(dlsym(library, (std::string(name) + "_cluster").c_str()));
  return *out = functions().add(std::make_shared<Function>(Function{module.device, name, entry,
                                                                    std::min(shared_bytes(), vendor().plain_shared),
                                                                    cluster != nullptr ? *cluster : 1})),
         0;
}

int launch(Function& function, const unsigned grid[3], const unsigned block[3], unsigned shared, void* stream,
           void** parameters, const char* call, bool is_early) {
  const uint64_t threads = uint64_t{grid[0]} * block[0];
  if (grid[0] == 0 || grid[1] != 1 || grid[2] != 1 || block[0] == 0 || block[0] > 1024 || block[1] != 1 ||
      block[2] != 1 || threads >= vendor().grid_threads || shared > function.shared_limit ||
      grid[0] % function.cluster != 0) {
    return runtime().invalid_value;
  }
  if (function.device != current_device()) {
    violation("WRONG_DEVICE", function.name + " was loaded on device " + std::to_string(function.device));
  }
  Command command;
  command.name = function.name;
  const std::function<void()> thread = bind(function, parameters[0]);
  const rlk::emulation::Dim blocks{grid[0], 1, 1}, size{block[0], 1, 1};
  command.run = [=, name = function.name, cluster = function.cluster] {
    const OpenMemory open;
    kernel_that_runs = name.c_str();
    const uint64_t waits = rlk::emulation::run_clusters(cluster, blocks, size, shared, thread);
    if (is_early && waits < threads) {
      violation("EARLY", name + " may begin before the kernels ahead of it are done, and " +
                             std::to_string(threads - waits) + " of its " + std::to_string(threads) +
                             " threads do not wait for them");
    }
    return 0;
  };
  // What a kernel uses is not known in detail: everything, until it has run.
  command.uses = {{0, UINTPTR_MAX}};
  return enqueue(stream, call, std::move(command));
}

int create_user_object(void** out, void* user, void (*destroy)(void*), unsigned references, unsigned flags) {
  if (references != 1 || flags != 1) return runtime().invalid_value;
  const auto held = std::shared_ptr<Held>(new Held{user, destroy});
  return *out = user_objects().add(std::make_shared<std::shared_ptr<Held>>(held)), 0;
}

int retain_user_object(void* graph, void* object, unsigned count, unsigned flags, const char* call) {
  if (count != 1 || flags != 1) return runtime().invalid_value;
  const auto kept = graphs().get(graph, call);
  return kept->held.push_back(*user_objects().take(object, call)), 0;
}

}  // namespace fake_simt

// The kernels are compiled to ask about every address that they follow whether it fits the type: a device faults there,
// a CPU would not.
namespace {

struct TypeMismatch {  // what GCC and clang pass
  struct {
    const char* file;
    uint32_t line, column;
  } location;
  const void* type;
  unsigned char log_alignment;
  unsigned char kind;
};

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1_abort(const TypeMismatch* seen,
                                                                                            uintptr_t address) {
  fake::violation(address == 0 ? "NULL_ADDRESS" : "MISALIGNED",
                  std::string(fake_simt::kernel_that_runs) + ": " + seen->location.file + ":" +
                      std::to_string(seen->location.line) + " reads or writes at an address that is no multiple of " +
                      std::to_string(1u << seen->log_alignment) + " bytes");
}
