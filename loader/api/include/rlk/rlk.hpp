// rlk for C++: the C API with destructors and exceptions. Header-only over rlk.h; needs C++17.
//
//   rlk::Runtime runtime;
//   rlk::Stream stream = runtime.stream("cuda");
//   rlk::ops::Logp logp;  // <rlk/ops/logp.hpp>
//   logp.in.logits = rlk::ConstTensor(x, rlk::kBf16, {n, v});
//   logp.in.ids = rlk::ConstTensor(ids, rlk::kI64, {n});
//   logp.out.logp = rlk::Tensor(out, rlk::kF32, {n});
//   logp.params.temperature = 0.7;
//   logp(stream);
//   stream.synchronize();
#pragma once

#include <rlk/rlk.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rlk {

// Thrown for every status but RLK_OK (and RLK_NOT_READY of query), as the class below that is the status's own. what()
// is the text of the error.
class Exception : public std::runtime_error {
public:
  Exception(rlk_status status, const rlk_error& error)
      : std::runtime_error(error.text[0] != 0 ? error.text : "rlk failed without a text"),
        status_(status),
        native_code_(error.native_code) {}
  rlk_status status() const noexcept { return status_; }
  int64_t native_code() const noexcept { return native_code_; }  // of the vendor's runtime, or 0

private:
  rlk_status status_;
  int64_t native_code_;
};

// Of one status each.
template <rlk_status Status>
class ExceptionOf : public Exception {
public:
  explicit ExceptionOf(const rlk_error& error) : Exception(Status, error) {}
};
using InvalidArgument = ExceptionOf<RLK_INVALID_ARGUMENT>;
using Unsupported = ExceptionOf<RLK_UNSUPPORTED>;
using NotFound = ExceptionOf<RLK_NOT_FOUND>;
using OutOfMemory = ExceptionOf<RLK_OUT_OF_MEMORY>;
using DataError = ExceptionOf<RLK_DATA_ERROR>;
using BackendError = ExceptionOf<RLK_BACKEND_ERROR>;
using DeviceLost = ExceptionOf<RLK_DEVICE_LOST>;
using Timeout = ExceptionOf<RLK_TIMEOUT>;
using AbiMismatch = ExceptionOf<RLK_ABI_MISMATCH>;
using Absent = ExceptionOf<RLK_ABSENT>;
using PluginException = ExceptionOf<RLK_PLUGIN_EXCEPTION>;
using CaptureForbids = ExceptionOf<RLK_CAPTURE_FORBIDS>;
using Internal = ExceptionOf<RLK_INTERNAL>;
using WrongResult = ExceptionOf<RLK_WRONG_RESULT>;

inline constexpr rlk_dtype kF32 = {RLK_DTYPE_FLOAT, 32, 1};
inline constexpr rlk_dtype kF16 = {RLK_DTYPE_FLOAT, 16, 1};
inline constexpr rlk_dtype kF64 = {RLK_DTYPE_FLOAT, 64, 1};
inline constexpr rlk_dtype kBf16 = {RLK_DTYPE_BFLOAT, 16, 1};
inline constexpr rlk_dtype kI32 = {RLK_DTYPE_INT, 32, 1};
inline constexpr rlk_dtype kI64 = {RLK_DTYPE_INT, 64, 1};
inline constexpr rlk_dtype kU8 = {RLK_DTYPE_UINT, 8, 1};

namespace detail {

[[noreturn]] inline void throw_status(rlk_status status, const rlk_error& error) {
  switch (status) {
    case RLK_INVALID_ARGUMENT:
      throw InvalidArgument(error);
    case RLK_UNSUPPORTED:
      throw Unsupported(error);
    case RLK_NOT_FOUND:
      throw NotFound(error);
    case RLK_OUT_OF_MEMORY:
      throw OutOfMemory(error);
    case RLK_DATA_ERROR:
      throw DataError(error);
    case RLK_BACKEND_ERROR:
      throw BackendError(error);
    case RLK_DEVICE_LOST:
      throw DeviceLost(error);
    case RLK_TIMEOUT:
      throw Timeout(error);
    case RLK_ABI_MISMATCH:
      throw AbiMismatch(error);
    case RLK_ABSENT:
      throw Absent(error);
    case RLK_PLUGIN_EXCEPTION:
      throw PluginException(error);
    case RLK_CAPTURE_FORBIDS:
      throw CaptureForbids(error);
    case RLK_INTERNAL:
      throw Internal(error);
    case RLK_WRONG_RESULT:
      throw WrongResult(error);
    default:  // of a library newer than this header
      throw Exception(status, error);
  }
}

// Calls a function of the C API whose last argument is the error, and throws what it says.
template <class Function, class... Arguments>
void check(Function&& function, Arguments&&... arguments) {
  rlk_error error = RLK_ERROR_INIT;
  const rlk_status status = function(std::forward<Arguments>(arguments)..., &error);
  if (status != RLK_OK) throw_status(status, error);
}

// Owns a C string of the API.
inline std::string take(char* text) {
  std::string copy(text != nullptr ? text : "");
  rlk_string_free(text);
  return copy;
}

}  // namespace detail

// Sizes or strides: a list in braces, a std::vector, a std::array. Copied, as far as a tensor has dimensions.
class Extents {
public:
  Extents(std::initializer_list<int64_t> list) noexcept { copy(list.begin(), list.size()); }
  template <class Container, class = decltype(std::declval<const Container&>().data()[0] + int64_t{})>
  Extents(const Container& container) noexcept {
    copy(container.data(), container.size());
  }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  int64_t operator[](size_t i) const noexcept { return values_[i]; }

private:
  template <class Number>
  void copy(const Number* from, size_t size) noexcept {
    size_ = size;
    for (size_t i = 0; i < size && i < values_.size(); ++i) values_[i] = from[i];
  }
  std::array<int64_t, RLK_MAX_NDIM> values_{};
  size_t size_ = 0;
};

// A view of memory that the caller owns and an operator reads; a default-constructed one is an absent optional
// argument.
class ConstTensor {
public:
  ConstTensor() = default;
  // Row-major without gaps.
  ConstTensor(const void* data, rlk_dtype dtype, const Extents& shape) : ConstTensor(data, dtype, shape, Extents({})) {}
  // strides in elements; empty means row-major. Throws std::invalid_argument for more than RLK_MAX_NDIM dimensions or
  // for strides of another length.
  ConstTensor(const void* data, rlk_dtype dtype, const Extents& shape, const Extents& strides)
      : data_(const_cast<void*>(data)), dtype_(dtype), ndim_(static_cast<int32_t>(shape.size())), present_(true) {
    if (shape.size() > RLK_MAX_NDIM) throw std::invalid_argument("a tensor has at most 8 dimensions");
    if (!strides.empty() && strides.size() != shape.size()) {
      throw std::invalid_argument("a tensor has as many strides as dimensions");
    }
    uint64_t step = 1;  // unsigned: a shape that no memory holds is for the call to refuse
    for (size_t i = shape.size(); i-- > 0;) {
      shape_[i] = shape[i];
      strides_[i] = strides.empty() ? static_cast<int64_t>(step) : strides[i];
      step *= static_cast<uint64_t>(shape[i]);
    }
  }
  bool present() const noexcept { return present_; }
  // Valid while this object lives and stays where it is.
  rlk_tensor abi() const noexcept {
    const auto address = reinterpret_cast<uintptr_t>(data_);
    const uintptr_t lowest_bit = address & (~address + 1);
    const uint32_t alignment = address == 0 || lowest_bit > 4096 ? 4096 : static_cast<uint32_t>(lowest_bit);
    return {sizeof(rlk_tensor), alignment, data_, 0, shape_.data(), strides_.data(), ndim_, dtype_};
  }

private:
  void* data_ = nullptr;
  rlk_dtype dtype_ = kF32;
  int32_t ndim_ = 0;
  bool present_ = false;
  std::array<int64_t, RLK_MAX_NDIM> shape_{};
  std::array<int64_t, RLK_MAX_NDIM> strides_{};
};

// The same of memory that an operator may also write: what outputs are. An input may be one, too.
class Tensor : public ConstTensor {
public:
  Tensor() = default;
  Tensor(void* data, rlk_dtype dtype, const Extents& shape) : ConstTensor(data, dtype, shape) {}
  Tensor(void* data, rlk_dtype dtype, const Extents& shape, const Extents& strides)
      : ConstTensor(data, dtype, shape, strides) {}
};

// A point in a stream's work.
class Event {
public:
  explicit Event(rlk_event* handle) noexcept : handle_(handle) {}  // takes it over
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (handle_ != nullptr) rlk_event_destroy(handle_, nullptr);
  }

  // True when the work before the recorded point is done; throws when it failed.
  bool done() const {
    rlk_error error = RLK_ERROR_INIT;
    const rlk_status status = rlk_event_query(handle_, &error);
    if (status != RLK_OK && status != RLK_NOT_READY) throw Exception(status, error);
    return status == RLK_OK;
  }
  // Between two recorded points that are done, of events made with time.
  double milliseconds_since(const Event& start) const {
    double elapsed = 0;
    detail::check(rlk_event_elapsed_ms, start.handle_, handle_, &elapsed);
    return elapsed;
  }
  // The vendor's handle (a cudaEvent_t, say), borrowed from the event.
  void* native() const {
    void* handle = nullptr;
    detail::check(rlk_event_native, handle_, &handle);
    return handle;
  }
  rlk_event* get() const noexcept { return handle_; }

private:
  rlk_event* handle_;
};

class Stream {
public:
  explicit Stream(rlk_stream* handle) noexcept : handle_(handle) {}  // takes it over
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (handle_ != nullptr) rlk_stream_destroy(handle_, nullptr);
  }

  // True when all work is done; throws for a data error or a failure of that work.
  bool done() const {
    rlk_error error = RLK_ERROR_INIT;
    const rlk_status status = rlk_stream_query(handle_, &error);
    if (status != RLK_OK && status != RLK_NOT_READY) throw Exception(status, error);
    return status == RLK_OK;
  }
  void synchronize(uint64_t timeout_ns = UINT64_MAX) const {
    detail::check(rlk_stream_synchronize, handle_, timeout_ns);
  }
  // The event is the point after all that was enqueued until now.
  void record(const Event& event) const { detail::check(rlk_event_record, event.get(), handle_); }
  // What is enqueued from now on waits for the event.
  void wait(const Event& event) const { detail::check(rlk_stream_wait_event, handle_, event.get()); }
  // The vendor's handle (a cudaStream_t, say), borrowed from the stream.
  void* native() const {
    void* handle = nullptr;
    detail::check(rlk_stream_native, handle_, &handle);
    return handle;
  }
  void* allocate(uint64_t bytes, int32_t kind = RLK_MEMORY_DEVICE) const {
    void* memory = nullptr;
    detail::check(rlk_allocate, handle_, kind, bytes, &memory);
    return memory;
  }
  void deallocate(void* memory) const { detail::check(rlk_deallocate, handle_, memory); }
  void copy(void* destination, const void* source, uint64_t bytes, int32_t kind) const {
    detail::check(rlk_copy, handle_, destination, source, bytes, kind);
  }
  rlk_stream* get() const noexcept { return handle_; }

private:
  rlk_stream* handle_;
};

// A captured graph. It may outlive the stream that captured it; destroyed before its runtime.
class Graph {
public:
  explicit Graph(rlk_graph* handle) noexcept : handle_(handle) {}  // takes it over
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (handle_ != nullptr) rlk_graph_destroy(handle_, nullptr);
  }
  void launch(const Stream& stream) const { detail::check(rlk_graph_launch, handle_, stream.get()); }

private:
  rlk_graph* handle_;
};

// Captures what body(stream) calls. When it throws, the capture is ended and dropped.
template <class Body>
Graph capture(const Stream& stream, Body&& body) {
  detail::check(rlk_graph_begin, stream.get());
  rlk_graph* handle = nullptr;
  try {
    body(stream);
  } catch (...) {
    if (rlk_graph_end(stream.get(), &handle, nullptr) == RLK_OK) rlk_graph_destroy(handle, nullptr);
    throw;
  }
  detail::check(rlk_graph_end, stream.get(), &handle);
  return Graph(handle);
}

class Runtime {
public:
  Runtime() { detail::check(rlk_runtime_create, nullptr, &handle_); }
  explicit Runtime(const rlk_runtime_options& options) { detail::check(rlk_runtime_create, &options, &handle_); }
  Runtime(Runtime&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Runtime& operator=(Runtime&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    if (handle_ != nullptr) rlk_runtime_destroy(handle_, nullptr);
  }

  uint32_t device_count(const char* backend) const {
    uint32_t count = 0;
    detail::check(rlk_device_count, handle_, backend, &count);
    return count;
  }
  // The backend of memory that a framework passes with DLPack's device (type, id); it throws where there is none.
  const char* backend_of(int32_t dlpack_device_type, int32_t dlpack_device_id, const void* data) const {
    const char* backend = nullptr;
    detail::check(rlk_device_find, handle_, dlpack_device_type, dlpack_device_id, data, &backend);
    return backend;
  }
  Stream stream(const char* backend = "cpu", uint32_t ordinal = 0, int32_t priority = 0) const {
    rlk_stream* handle = nullptr;
    detail::check(rlk_stream_create, handle_, backend, ordinal, priority, &handle);
    return Stream(handle);
  }
  // Borrows the vendor's stream, which outlives the result.
  Stream wrap(const char* backend, uint32_t ordinal, void* native) const {
    rlk_stream* handle = nullptr;
    detail::check(rlk_stream_wrap, handle_, backend, ordinal, native, &handle);
    return Stream(handle);
  }
  // On a device; with RLK_EVENT_TIMING it measures time.
  Event event(const char* backend = "cpu", uint32_t ordinal = 0, uint32_t flags = 0) const {
    rlk_event* handle = nullptr;
    detail::check(rlk_event_create, handle_, backend, ordinal, flags, &handle);
    return Event(handle);
  }
  // Borrows the vendor's event, which outlives the result.
  Event wrap_event(const char* backend, uint32_t ordinal, void* native) const {
    rlk_event* handle = nullptr;
    detail::check(rlk_event_wrap, handle_, backend, ordinal, native, &handle);
    return Event(handle);
  }
  // Waits until "cuda:logp,attention" can be used, as rlk_runtime_require says; seconds 0 is no limit.
  void require(const char* wanted, double seconds = 0) const {
    detail::check(rlk_runtime_require, handle_, wanted, seconds);
  }
  // Takes files of plugins that were replaced into use, as rlk_runtime_reload says; the report is JSON.
  std::string reload() const {
    char* report = nullptr;
    detail::check(rlk_runtime_reload, handle_, &report);
    return detail::take(report);
  }
  std::string list_json() const {
    char* text = nullptr;
    detail::check(rlk_list_json, handle_, &text);
    return detail::take(text);
  }
  std::string counters_json() const {
    char* text = nullptr;
    detail::check(rlk_counters_json, handle_, &text);
    return detail::take(text);
  }
  // The same for Prometheus, in its text format.
  std::string counters_prometheus() const {
    char* text = nullptr;
    detail::check(rlk_counters_prometheus, handle_, &text);
    return detail::take(text);
  }
  rlk_runtime* get() const noexcept { return handle_; }

private:
  rlk_runtime* handle_ = nullptr;
};

// The operator of that name; lives as long as the library. Throws when there is none.
inline const rlk_op* find_op(const char* name) {
  const rlk_op* op = nullptr;
  detail::check(rlk_op_find, name, &op);
  return op;
}

namespace detail {

// Tensors as the C API takes them; an absent one is a null pointer.
template <size_t Count>
class Described {
public:
  explicit Described(const std::array<const ConstTensor*, Count>& list) {
    for (size_t i = 0; i < Count; ++i) {
      if (list[i]->present()) tensors_[i] = list[i]->abi();
      pointers_[i] = list[i]->present() ? &tensors_[i] : nullptr;
    }
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
  const rlk_tensor* const* data() const { return pointers_.data(); }
  static constexpr uint32_t size() { return static_cast<uint32_t>(Count); }

private:
  std::array<rlk_tensor, Count> tensors_;
  std::array<const rlk_tensor*, Count> pointers_;
};

}  // namespace detail

// Enqueues an operator with all its arguments in declared order, absent ones too. What <rlk/ops/NAME.hpp> calls.
template <size_t Inputs, size_t Outputs>
void call(const Stream& stream, const rlk_op* op, const void* params,
          const std::array<const ConstTensor*, Inputs>& inputs, const std::array<const ConstTensor*, Outputs>& outputs,
          const rlk_call_options* options = nullptr) {
  const detail::Described<Inputs> in(inputs);
  const detail::Described<Outputs> out(outputs);
  detail::check(rlk_call, stream.get(), op, params, in.data(), in.size(), out.data(), out.size(), options);
}

// Where that call would go, and why: the document of rlk_explain_json.
template <size_t Inputs, size_t Outputs>
std::string explain(const Stream& stream, const rlk_op* op, const void* params,
                    const std::array<const ConstTensor*, Inputs>& inputs,
                    const std::array<const ConstTensor*, Outputs>& outputs, const rlk_call_options* options = nullptr) {
  const detail::Described<Inputs> in(inputs);
  const detail::Described<Outputs> out(outputs);
  char* text = nullptr;
  detail::check(rlk_explain_json, stream.get(), op, params, in.data(), in.size(), out.data(), out.size(), options,
                &text);
  return detail::take(text);
}

// Enqueues an operator that is known by name only at run time, with arguments in declared order; those left out at the
// end are absent. It looks the name up every time.
inline void call(const Stream& stream, const char* op, const void* params, const std::vector<ConstTensor>& inputs,
                 const std::vector<Tensor>& outputs, const rlk_call_options* options = nullptr) {
  std::vector<rlk_tensor> tensors;
  std::vector<const rlk_tensor*> pointers;
  tensors.reserve(inputs.size() + outputs.size());  // the pointers stay valid
  const auto add = [&](const ConstTensor& tensor) {
    if (tensor.present()) tensors.push_back(tensor.abi());
    pointers.push_back(tensor.present() ? &tensors.back() : nullptr);
  };
  for (const ConstTensor& input : inputs) add(input);
  for (const Tensor& output : outputs) add(output);
  detail::check(rlk_call, stream.get(), find_op(op), params, pointers.data(), static_cast<uint32_t>(inputs.size()),
                pointers.data() + inputs.size(), static_cast<uint32_t>(outputs.size()), options);
}

}  // namespace rlk
