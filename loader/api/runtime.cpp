// rlk.h: runtimes and devices.
#include <cstring>

#include "loader/api/handles.hpp"
#include "loader/host/embedder_threads.hpp"
#include "loader/host/environment_policy.hpp"
#include "loader/host/services.hpp"

using rlk::core::DeviceEntry;
using rlk::core::DeviceState;
using rlk::core::failf;
using rlk::loader::guarded;
using rlk::loader::Process;

namespace {

// A struct of the caller's begins with its size; 0 means that the caller did not set it.
rlk_status require_size(const char* function, const char* argument, uint32_t seen, size_t known, rlk_error* error) {
  if (seen >= 2 * sizeof(uint32_t)) return RLK_OK;
  return failf(error, RLK_INVALID_ARGUMENT,
               "%s: %s.struct_size is %u; expected sizeof of the struct, which is %zu here", function, argument, seen,
               known);
}

constexpr size_t kMaxPlans = 1024;

template <class Allocator>
rlk_status require_functions(const char* what, const Allocator& given, rlk_error* error) {
  if (given.struct_size >= sizeof(Allocator) && given.allocate != nullptr && given.deallocate != nullptr) return RLK_OK;
  return failf(error, RLK_INVALID_ARGUMENT,
               "%s has a struct_size of %u and %s; expected %zu and both functions, allocate and deallocate", what,
               given.struct_size,
               given.struct_size < sizeof(Allocator) ? "is too short"
               : given.allocate == nullptr           ? "no allocate"
                                                     : "no deallocate",
               sizeof(Allocator));
}

rlk_status take_allocator(const rlk_device_allocator* given, rlk::core::DeviceAllocator* out, rlk_error* error) {
  if (given == nullptr) return RLK_OK;
  const rlk_status status = require_functions("rlk_runtime_create: options.device_allocator", *given, error);
  if (status == RLK_OK) *out = {given->context, given->allocate, given->deallocate};
  return status;
}

}  // namespace

extern "C" {

rlk_status rlk_set_host_allocator(const rlk_host_allocator* allocator, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    rlk::loader::HostAllocator wanted;
    if (allocator != nullptr) {
      const rlk_status status = require_functions("rlk_set_host_allocator: allocator", *allocator, error);
      if (status != RLK_OK) return status;
      wanted = {allocator->context, allocator->allocate, allocator->deallocate};
    }
    if (Process::set_host_allocator(wanted)) return RLK_OK;
    return failf(error, RLK_INVALID_ARGUMENT,
                 "rlk_set_host_allocator: a runtime was made before, and plugins hold memory of the allocator that was "
                 "set then; call this before the first rlk_runtime_create");
  });
}

rlk_status rlk_set_thread_pool(const rlk_thread_pool* pool, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    if (pool == nullptr) {
      rlk::loader::set_thread_pool(nullptr);
      return RLK_OK;
    }
    if (pool->struct_size < sizeof(*pool) || pool->thread_count == nullptr || pool->run == nullptr) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "rlk_set_thread_pool: pool (struct_size %u) %s; expected both functions and a struct_size of %zu",
                   pool->struct_size,
                   pool->struct_size < sizeof(*pool) ? "is too short"
                   : pool->thread_count == nullptr   ? "has no thread_count"
                                                     : "has no run",
                   sizeof(*pool));
    }
    const rlk::loader::ThreadPool given{pool->context, pool->thread_count, pool->run};
    rlk::loader::set_thread_pool(&given);
    return RLK_OK;
  });
}

rlk_status rlk_runtime_create(const rlk_runtime_options* options, rlk_runtime** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    rlk_runtime_options wanted = RLK_RUNTIME_OPTIONS_INIT;
    if (options != nullptr) {
      const rlk_status sized =
          require_size("rlk_runtime_create", "options", options->struct_size, sizeof(*options), error);
      if (sized != RLK_OK) return sized;
      // Whole members alone: a part of a pointer would be taken for one.
      if (options->struct_size % sizeof(void*) != 0) {
        return failf(error, RLK_INVALID_ARGUMENT,
                     "rlk_runtime_create: options.struct_size is %u; expected sizeof of the struct, which is %zu here",
                     options->struct_size, sizeof(*options));
      }
      std::memcpy(&wanted, options, std::min<size_t>(options->struct_size, sizeof(wanted)));
    }
    rlk::core::DeviceAllocator embedder;
    if (const rlk_status status = take_allocator(wanted.device_allocator, &embedder, error); status != RLK_OK)
      return status;
    std::shared_ptr<Process> process;
    if (const rlk_status status = Process::get(wanted, &process, error); status != RLK_OK) return status;
    auto runtime = std::make_unique<rlk_runtime>(std::move(process), wanted.wait_for_probes != 0);
    if (const rlk_status status = runtime->process->check_required(error); status != RLK_OK) return status;
    rlk::core::Policy policy;
    const rlk_status status = rlk::loader::policy_of_process(runtime->process->config().policy, &policy, error);
    if (status != RLK_OK) return status;
    runtime->dispatcher =
        std::make_unique<rlk::core::Dispatcher>(runtime->process->registry(), std::move(policy), kMaxPlans, embedder);
    rlk::loader::count_in(runtime->dispatcher.get());
    // Unknown names can be told from not yet known ones only when everything is loaded.
    if (wanted.wait_for_probes != 0) {
      if (const rlk_status known = runtime->dispatcher->check_wishes(error); known != RLK_OK) return known;
    }
    *out = runtime.release();
    return RLK_OK;
  });
}

rlk_status rlk_runtime_require(rlk_runtime* runtime, const char* wanted, double seconds, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(wanted);
  return guarded(error, [&]() -> rlk_status {
    if (!(seconds >= 0)) {
      return failf(error, RLK_INVALID_ARGUMENT, "rlk_runtime_require: seconds is %g; expected 0 (no limit) or more",
                   seconds);
    }
    return runtime->process->require(wanted, std::string("rlk_runtime_require(\"") + wanted + "\")", seconds, error);
  });
}

rlk_status rlk_runtime_destroy(rlk_runtime* runtime, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    if (runtime == nullptr) return RLK_OK;
    if (const uint32_t streams = runtime->dispatcher->live_streams(); streams != 0) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "rlk_runtime_destroy: %u streams of the runtime are still alive; destroy them first", streams);
    }
    if (const uint32_t graphs = runtime->dispatcher->live_graphs(); graphs != 0) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "rlk_runtime_destroy: %u graphs of the runtime are still alive; destroy them first", graphs);
    }
    delete runtime;
    return RLK_OK;
  });
}

rlk_status rlk_runtime_reload(rlk_runtime* runtime, char** report, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  return guarded(error, [&]() -> rlk_status {
    if (report != nullptr) *report = nullptr;
    std::vector<rlk::loader::Registrar::Change> changes;
    if (const rlk_status status = runtime->process->reload(&changes, error); status != RLK_OK) return status;
    runtime->dispatcher->drain(*runtime->dispatcher->snapshot());
    return report != nullptr ? rlk::loader::give_text(rlk::loader::changes_json(changes), report, error) : RLK_OK;
  });
}

rlk_status rlk_device_count(rlk_runtime* runtime, const char* backend, uint32_t* out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(backend);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = 0;
    const auto now = runtime->dispatcher->snapshot();
    for (const rlk::core::DeviceEntry* device : now->devices) {
      if (device->backend == backend) ++*out;
    }
    return RLK_OK;
  });
}

rlk_status rlk_device_describe(rlk_runtime* runtime, const char* backend, uint32_t ordinal, rlk_device_properties* out,
                               rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(backend);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    const uint32_t size = out->struct_size;
    if (const rlk_status sized = require_size("rlk_device_describe", "out", size, sizeof(*out), error); sized != RLK_OK)
      return sized;
    const DeviceEntry* device = nullptr;
    const rlk_status status = runtime->dispatcher->describe_device(backend, ordinal, &device, error);
    if (status != RLK_OK) return status;
    std::memcpy(out, &device->properties(), std::min<size_t>(size, sizeof(*out)));
    out->struct_size = size;
    return RLK_OK;
  });
}

rlk_status rlk_memory_statistics_get(rlk_runtime* runtime, const char* backend, uint32_t ordinal,
                                     rlk_memory_statistics* out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(backend);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    const rlk_status sized = require_size("rlk_memory_statistics_get", "out", out->struct_size, sizeof(*out), error);
    if (sized != RLK_OK) return sized;
    const DeviceEntry* device = nullptr;
    const rlk_status status = runtime->dispatcher->describe_device(backend, ordinal, &device, error);
    if (status != RLK_OK) return status;
    const DeviceState* open = runtime->dispatcher->open_device(*device);
    const rlk::core::MemoryStatistics found =
        open != nullptr ? open->memory.statistics() : rlk::core::MemoryStatistics();
    const rlk_memory_statistics mine = {
        out->struct_size,   0,
        found.in_use_bytes, found.cached_bytes,
        found.peak_bytes,   found.allocations,
        found.cache_hits,   found.out_of_memory_retries,
    };
    std::memcpy(out, &mine, std::min<size_t>(out->struct_size, sizeof(mine)));
    return RLK_OK;
  });
}

}  // extern "C"
