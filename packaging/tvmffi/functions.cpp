// The exported functions, and on which runtime and stream a call goes.
#include <rlk/tvmffi.h>
#include <rlk/sdk/error.hpp>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <tuple>

#include "packaging/tvmffi/arguments.hpp"

namespace rlk::tvmffi {
namespace {

rlk_error fresh_error() {
  return RLK_ERROR_INIT;
}

// tvm-ffi's library once it has been found; nullptr, with the reason, until then.
const Library* library(std::string* why) {
  static std::mutex mutex;
  static Library found;
  static bool is_found = false;
  const std::lock_guard lock(mutex);
  if (!is_found) is_found = find_library(&found, why);
  return is_found ? &found : nullptr;
}

// Made by its first use and never destroyed: other threads may be in a call when the process ends.
rlk_runtime* runtime() {
  static rlk_runtime* const made = [] {
    rlk_runtime* out = nullptr;
    rlk_error error = fresh_error();
    check(rlk_runtime_create(nullptr, &out, &error), error);
    return out;
  }();
  return made;
}

// The calling thread's streams: a stream is used by one thread at a time.
class Streams {
public:
  Streams() = default;
  ~Streams() {
    for (const auto& [key, stream] : streams_) rlk_stream_destroy(stream, nullptr);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // `data` is of one of the call's tensors.
  rlk_stream* of(DlDevice device, const void* data, void* native) {
    rlk_stream*& stream = streams_[{device.type, device.id, native}];
    if (stream != nullptr) return stream;
    const char* backend = nullptr;
    rlk_error error = fresh_error();
    check(rlk_device_find(runtime(), device.type, device.id, data, &backend, &error), error);
    const auto ordinal = static_cast<uint32_t>(device.id);
    check(device.type == kDlCpu ? rlk_stream_create(runtime(), backend, 0, 0, &stream, &error)
                                : rlk_stream_wrap(runtime(), backend, ordinal, native, &stream, &error),
          error);
    return stream;
  }

private:
  std::map<std::tuple<int32_t, int32_t, void*>, rlk_stream*> streams_;
};

void run(const Library& tvm, const Operator& op, const Any* arguments, int32_t count) {
  const Arguments call(op, arguments, count);
  thread_local Streams streams;
  const DlDevice device = call.device();
  const bool is_host = device.type == kDlCpu;
  rlk_stream* stream = streams.of(device, call.data(), is_host ? nullptr : tvm.get_stream(device.type, device.id));
  const rlk_op* found = nullptr;
  rlk_error error = fresh_error();
  check(rlk_op_find(op.name, &found, &error), error);
  check(
      rlk_call(stream, found, call.params(), call.inputs(), op.n_inputs, call.outputs(), op.n_outputs, nullptr, &error),
      error);
  if (is_host) check(rlk_stream_query(stream, &error), error);  // the work is done: the stream reports bad values now
}

// Runs body(library); what it throws is raised in tvm-ffi. Nothing is thrown on.
template <class Body>
int guarded(Body&& body) noexcept {
  const Library* tvm = nullptr;
  try {
    std::string why;
    tvm = library(&why);
    if (tvm == nullptr) return -1;  // without tvm-ffi the error has no receiver: rlk_tvmffi_register has the text
    body(*tvm);
    return 0;
  } catch (const Raised& raised) {
    tvm->set_error(raised.kind, raised.text.c_str());
  } catch (const std::bad_alloc&) {
    if (tvm != nullptr) tvm->set_error("MemoryError", "host memory is exhausted");
  } catch (const std::exception& error) {
    if (tvm != nullptr) tvm->set_error("RuntimeError", error.what());
  }
  return -1;
}

const Operator& operator_named(const Any* arguments, int32_t count) {
  std::string_view name;
  if (count == 1 && arguments->type_index == kRawStr) name = arguments->text;
  if (count == 1 && arguments->type_index == kSmallStr) name = {arguments->bytes, arguments->small_length};
  if (count == 1 && arguments->type_index == kStr) {
    const Bytes& bytes = *behind<const Bytes>(arguments->object);
    name = {bytes.data, bytes.size};
  }
  for (const Operator& op : kOperators) {
    if (name == op.name) return op;
  }
  throw Raised{"ValueError", "rlk.arguments: expected the name of an operator, as rlk-plugins ops lists them"};
}

}  // namespace
}  // namespace rlk::tvmffi

using rlk::tvmffi::Any;

// NOLINTBEGIN(bugprone-reserved-identifier): the names are tvm-ffi's
#define RLK_TVMFFI_EXPORT extern "C" __attribute__((visibility("default"))) int

#define X(index, name)                                                                            \
  RLK_TVMFFI_EXPORT __tvm_ffi_##name(void*, const Any* arguments, int32_t count, Any*) noexcept { \
    return rlk::tvmffi::guarded([&](const rlk::tvmffi::Library& tvm) {                            \
      rlk::tvmffi::run(tvm, rlk::tvmffi::kOperators[index], arguments, count);                    \
    });                                                                                           \
  }
#include "functions.inc"
#undef X

RLK_TVMFFI_EXPORT __tvm_ffi_arguments(void*, const Any* arguments, int32_t count, Any* result) noexcept {
  return rlk::tvmffi::guarded([&](const rlk::tvmffi::Library& tvm) {
    const std::string text = rlk::tvmffi::signature(rlk::tvmffi::operator_named(arguments, count));
    const rlk::tvmffi::Bytes bytes = {text.data(), text.size()};
    if (tvm.make_string(&bytes, result) != 0) throw std::bad_alloc();
  });
}

RLK_TVMFFI_EXPORT __tvm_ffi_register_globals(void*, const Any*, int32_t, Any*) noexcept {
  return rlk::tvmffi::guarded([&](const rlk::tvmffi::Library&) {
    rlk_error error = rlk::tvmffi::fresh_error();
    rlk::tvmffi::check(rlk_tvmffi_register(&error), error);
  });
}
// NOLINTEND(bugprone-reserved-identifier)

extern "C" rlk_status rlk_tvmffi_register(rlk_error* error) {
  using namespace rlk::tvmffi;
  const auto fail = [error](rlk_status status, const std::string& text) {
    return rlk::sdk::detail::fail(error, status, text.c_str());
  };
  static const struct {
    const char* name;
    Function call;
  } kFunctions[] = {
#define X(index, name) {#name, &__tvm_ffi_##name},
#include "functions.inc"
#undef X
      {"arguments", &__tvm_ffi_arguments}};
  try {
    std::string why;
    const Library* tvm = library(&why);
    if (tvm == nullptr) return fail(RLK_NOT_FOUND, why);
    for (const auto& [name, call] : kFunctions) {
      const std::string full = std::string("rlk.") + name;
      const Bytes bytes = {full.data(), full.size()};
      void* function = nullptr;
      bool is_done = tvm->make_function(nullptr, call, nullptr, &function) == 0;
      is_done = is_done && tvm->set_global(&bytes, function, 1) == 0;
      if (function != nullptr) tvm->release(function);
      if (!is_done) return fail(RLK_INTERNAL, "tvm-ffi refuses the global function " + full);
    }
    return RLK_OK;
  } catch (const std::bad_alloc&) {
    return fail(RLK_OUT_OF_MEMORY, "host memory is exhausted");
  }
}
