// What the opaque handles of rlk.h are, and how every function of the C API begins and ends.
#pragma once

#include <rlk/rlk.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "core/declaration/error.hpp"
#include "core/declaration/no_cancel.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/call/dispatcher.hpp"
#include "core/dispatch/device/graph.hpp"
#include "core/dispatch/device/stream.hpp"
#include "loader/api/counters.hpp"
#include "loader/api/process.hpp"

struct rlk_runtime {
  // Starts the process: what is counted there as one more runtime is one less when this object ends.
  rlk_runtime(std::shared_ptr<rlk::loader::Process> shared, bool wait) : process(std::move(shared)) {
    process->start(wait);
  }
  ~rlk_runtime() {
    if (dispatcher != nullptr) rlk::loader::count_out(dispatcher.get());
    dispatcher.reset();
    process->release();
  }
  rlk_runtime(const rlk_runtime&) = delete;
  rlk_runtime& operator=(const rlk_runtime&) = delete;

  const std::shared_ptr<rlk::loader::Process> process;
  std::unique_ptr<rlk::core::Dispatcher> dispatcher;
};

struct rlk_stream {
  rlk_runtime* runtime = nullptr;
  std::unique_ptr<rlk::core::Stream> stream;
};

struct rlk_event {
  const rlk::core::DeviceEntry* device = nullptr;  // lives as long as the process
  rlk_plugin_event* handle = nullptr;
  const rlk_event_api& api() const { return *device->owner->api->event; }
};

struct rlk_graph {
  rlk_runtime* runtime = nullptr;
  std::unique_ptr<rlk::core::Graph> graph;
};

namespace rlk::loader {

// An rlk_op is the declaration itself.
inline const core::OpDecl* declaration_of(const rlk_op* op) {
  return reinterpret_cast<const core::OpDecl*>(op);
}

// Nothing is thrown through the C API.
template <class Body>
rlk_status guarded_call(rlk_error* error, Body&& body) noexcept {
  try {
    const rlk_status status = body();
    if (status < 0) core::make_printable(error);  // a plugin may have written it
    return status;
  } catch (const std::bad_alloc&) {
    return core::fail(error, RLK_OUT_OF_MEMORY, "host memory is exhausted");
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again)
      return core::failf(error, RLK_INTERNAL, "a defect of rlk, please report it: %s", e.what());
    return core::fail(
        error, RLK_OUT_OF_MEMORY,
        "no thread can be started; raise the limit of processes (ulimit -u, or the container's pids limit)");
  } catch (const std::exception& e) {
    return core::failf(error, RLK_INTERNAL, "a defect of rlk, please report it: %s", e.what());
  } catch (...) {
    return core::fail(error, RLK_INTERNAL, "a defect of rlk, please report it: an exception of unknown type");
  }
}

// Everything but rlk_call, for which this would be a tenth of its time: what waits or writes inside of it does the
// same.
template <class Body>
rlk_status guarded(rlk_error* error, Body&& body) noexcept {
  const core::NoCancel whole;
  return guarded_call(error, body);
}

inline rlk_status refuse_null(rlk_error* error, const char* function, const char* argument) {
  return core::failf(error, RLK_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

#define RLK_REQUIRE_ARGUMENT(argument) \
  if ((argument) == nullptr) return ::rlk::loader::refuse_null(error, __func__, #argument)

// A string that rlk_string_free ends.
rlk_status give_text(const std::string& text, char** out, rlk_error* error);

std::string changes_json(const std::vector<Registrar::Change>& changes);  // of rlk_runtime_reload
std::string explain_json(const core::Explanation& explanation);           // the document of rlk_explain_json

}  // namespace rlk::loader
