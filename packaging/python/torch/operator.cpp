// A call: torch's tensors become rlk's, outputs come from torch's allocator, the work goes to torch's current stream.
#include "operator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "streams.hpp"

namespace rlk::torch {
namespace {

[[noreturn]] void raise(const rlk_error& error) {
  last_error() = error;
  throw std::runtime_error(error.text);  // RuntimeError in Python; rlk.torch makes rlk's own class of it
}

[[noreturn]] void refuse(const std::string& text) {
  rlk_error error = RLK_ERROR_INIT;
  error.status = RLK_INVALID_ARGUMENT;
  error.text[text.copy(error.text, sizeof(error.text) - 1)] = '\0';
  raise(error);
}

// ---- what torch gave into our hands

template <class T, int32_t (*Shim::*Delete)(T*)>
class Handle {
public:
  Handle() = default;
  explicit Handle(T* handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (handle_ != nullptr) (shim.*Delete)(handle_);
  }
  T* get() const { return handle_; }
  T* release() { return std::exchange(handle_, nullptr); }
  explicit operator bool() const { return handle_ != nullptr; }

private:
  T* handle_ = nullptr;
};
using Tensor = Handle<AtenTensorOpaque, &Shim::aoti_torch_delete_tensor_object>;
using List = Handle<StableListOpaque, &Shim::torch_delete_list>;
using Word = Handle<StringOpaque, &Shim::torch_delete_string>;

template <class T>
T* handle_of(StableIValue value) {
  return reinterpret_cast<T*>(value);
}

// An optional value lies in memory that torch took with new for us to end.
template <class T>
T* take_optional(StableIValue value) {
  auto* const inner = reinterpret_cast<StableIValue*>(value);
  if (inner == nullptr) return nullptr;
  T* const handle = handle_of<T>(*inner);
  delete inner;
  return handle;
}

struct Arguments {
  std::array<Tensor, kMaxArguments> inputs;
  List real, whole;
  int64_t wanted = 0;
  Word pin, numerics;

  Arguments(const Operator& op, const StableIValue* stack) {
    const auto n = static_cast<size_t>(op.n_inputs), required = static_cast<size_t>(op.n_required);
    for (size_t i = 0; i < n; ++i) {
      inputs[i] =
          Tensor(i < required ? handle_of<AtenTensorOpaque>(stack[i]) : take_optional<AtenTensorOpaque>(stack[i]));
    }
    real = List(handle_of<StableListOpaque>(stack[n]));
    whole = List(handle_of<StableListOpaque>(stack[n + 1]));
    wanted = static_cast<int64_t>(stack[n + 2]);
    pin = Word(take_optional<StringOpaque>(stack[n + 3]));
    numerics = Word(take_optional<StringOpaque>(stack[n + 4]));
  }
};

std::string text_of(const Word& word) {
  if (!word) return {};
  size_t length = 0;
  const char* text = nullptr;
  RLK_TORCH(torch_string_length, word.get(), &length);
  RLK_TORCH(torch_string_c_str, word.get(), &text);
  return {text, length};
}

// ---- parameters

struct Params {
  uint32_t size = 0, reserved = 0;
  std::array<uint64_t, kMaxParams> values;
};

// Lists that end early leave the rest at its defaults.
void fill_params(const Operator& op, const Arguments& given, Params* out) {
  size_t n_real = 0, n_whole = 0, real = 0, whole = 0;
  RLK_TORCH(torch_list_size, given.real.get(), &n_real);
  RLK_TORCH(torch_list_size, given.whole.get(), &n_whole);
  const size_t n = op.param_kinds.size();
  out->size = static_cast<uint32_t>(8 + 8 * n);
  for (size_t i = 0; i < n; ++i) {
    const bool is_real = op.param_kinds[i] == 'f';
    size_t& next = is_real ? real : whole;
    if (next < (is_real ? n_real : n_whole)) {
      RLK_TORCH(torch_list_get_item, (is_real ? given.real : given.whole).get(), next++, &out->values[i]);
    } else {
      out->values[i] = op.defaults[i];
    }
  }
  if (real != n_real || whole != n_whole) {
    refuse(op.name + ": real has " + std::to_string(n_real) + " and whole " + std::to_string(n_whole) +
           " parameters; expected at most " +
           std::to_string(std::count(op.param_kinds.begin(), op.param_kinds.end(), 'f')) + " and " +
           std::to_string(std::count(op.param_kinds.begin(), op.param_kinds.end(), 'i')));
  }
}

uint32_t numerics_of(const Operator& op, const std::string& words) {
  static constexpr std::pair<const char*, uint32_t> kKnown[] = {{"tolerance", RLK_NUMERICS_TOLERANCE},
                                                                {"accurate", RLK_NUMERICS_ACCURATE},
                                                                {"deterministic", RLK_NUMERICS_DETERMINISTIC},
                                                                {"batch_invariant", RLK_NUMERICS_BATCH_INVARIANT},
                                                                {"portable", RLK_NUMERICS_PORTABLE}};
  uint32_t classes = 0;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    const auto* const found =
        std::find_if(std::begin(kKnown), std::end(kKnown), [&](const auto& known) { return word == known.first; });
    if (found == std::end(kKnown)) {
      refuse(op.name + ": numerics names '" + word +
             "'; there are tolerance, accurate, deterministic, batch_invariant, portable");
    }
    classes |= found->second;
    begin = end + 1;
  }
  return classes;
}

// ---- dtypes

struct DtypePair {
  int32_t torch;
  rlk_dtype rlk;
};

const std::array<DtypePair, 15>& dtypes() {
  static const std::array<DtypePair, 15> all = {
      {{shim.aoti_torch_dtype_float32(), {RLK_DTYPE_FLOAT, 32, 1}},
       {shim.aoti_torch_dtype_bfloat16(), {RLK_DTYPE_BFLOAT, 16, 1}},
       {shim.aoti_torch_dtype_float16(), {RLK_DTYPE_FLOAT, 16, 1}},
       {shim.aoti_torch_dtype_int64(), {RLK_DTYPE_INT, 64, 1}},
       {shim.aoti_torch_dtype_int32(), {RLK_DTYPE_INT, 32, 1}},
       {shim.aoti_torch_dtype_float64(), {RLK_DTYPE_FLOAT, 64, 1}},
       {shim.aoti_torch_dtype_uint8(), {RLK_DTYPE_UINT, 8, 1}},
       {shim.aoti_torch_dtype_bool(), {RLK_DTYPE_BOOL, 8, 1}},
       {shim.aoti_torch_dtype_int8(), {RLK_DTYPE_INT, 8, 1}},
       {shim.aoti_torch_dtype_int16(), {RLK_DTYPE_INT, 16, 1}},
       {shim.aoti_torch_dtype_uint16(), {RLK_DTYPE_UINT, 16, 1}},
       {shim.aoti_torch_dtype_uint32(), {RLK_DTYPE_UINT, 32, 1}},
       {shim.aoti_torch_dtype_uint64(), {RLK_DTYPE_UINT, 64, 1}},
       {shim.aoti_torch_dtype_float8_e4m3fn(), {RLK_DTYPE_FLOAT8_E4M3FN, 8, 1}},
       {shim.aoti_torch_dtype_float8_e5m2(), {RLK_DTYPE_FLOAT8_E5M2, 8, 1}}}};
  return all;
}

rlk_dtype from_torch(const Operator& op, size_t input, int32_t dtype) {
  for (const DtypePair& pair : dtypes()) {
    if (pair.torch != dtype) continue;
    if (pair.rlk.code == RLK_DTYPE_BOOL && (op.bytes_as_u8 >> input & 1) != 0) return {RLK_DTYPE_UINT, 8, 1};
    return pair.rlk;
  }
  refuse(op.name + ": input " + std::to_string(input) + " has a dtype (torch's number " + std::to_string(dtype) +
         ") that no operator takes. Convert it (x.to)");
}

int32_t to_torch(rlk_dtype dtype) {
  for (const DtypePair& pair : dtypes()) {
    if (pair.rlk.code == dtype.code && pair.rlk.bits == dtype.bits) return pair.torch;
  }
  throw std::runtime_error("rlk gives a dtype that torch does not have");
}

// ---- tensors

void set_data(rlk_tensor* out, void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  out->data = data;
  out->alignment = static_cast<uint32_t>(address == 0 ? 4096 : std::min<uintptr_t>(address & -address, 4096));
}

struct Call {
  explicit Call(const Operator& o) : op(o) {}

  const Operator& op;
  Device device;
  std::array<rlk_tensor, 2 * kMaxArguments> tensors;
  std::array<const rlk_tensor*, kMaxArguments> inputs{}, outputs{};
  std::array<rlk_output_shape, kMaxArguments> shapes;
  std::array<std::array<int64_t, RLK_MAX_NDIM>, kMaxArguments> strides;
  std::array<Tensor, kMaxArguments> made;

  void take_inputs(const Arguments& given);
  void make_outputs(const Params& params, uint64_t wanted);
};

Device device_of(AtenTensorOpaque* tensor) {
  Device device;
  RLK_TORCH(aoti_torch_get_device_type, tensor, &device.type);
  RLK_TORCH(aoti_torch_get_device_index, tensor, &device.index);
  return device;
}

void Call::take_inputs(const Arguments& given) {
  bool first = true;
  for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
    AtenTensorOpaque* const tensor = given.inputs[i].get();
    if (tensor == nullptr) continue;
    const Device where = device_of(tensor);
    if (first) device = where;
    first = false;
    if (!(where == device)) {
      refuse(op.name + ": input " + std::to_string(i) +
             " is on another device than those before it. All of them must be on "
             "one device");
    }
    int32_t layout = 0, dtype = 0;
    RLK_TORCH(aoti_torch_get_layout, tensor, &layout);
    if (layout != shim.aoti_torch_layout_strided()) {
      refuse(op.name + ": input " + std::to_string(i) +
             " has another layout than torch.strided. Pass a strided tensor "
             "(x.to_dense())");
    }
    int64_t ndim = 0;
    int64_t *sizes = nullptr, *steps = nullptr;
    RLK_TORCH(aoti_torch_get_dim, tensor, &ndim);
    if (ndim > RLK_MAX_NDIM) {
      refuse(op.name + ": a tensor of " + std::to_string(ndim) + " dimensions; at most " +
             std::to_string(RLK_MAX_NDIM) + " are possible");
    }
    RLK_TORCH(aoti_torch_get_sizes, tensor, &sizes);
    RLK_TORCH(aoti_torch_get_strides, tensor, &steps);
    RLK_TORCH(aoti_torch_get_dtype, tensor, &dtype);
    void* data = nullptr;
    if ((op.changed >> i & 1) != 0) {
      RLK_TORCH(torch_get_mutable_data_ptr, tensor, &data);
    } else {
      const void* read = nullptr;
      RLK_TORCH(torch_get_const_data_ptr, tensor, &read);
      data = const_cast<void*>(read);
    }
    tensors[i] = {sizeof(rlk_tensor),      0, nullptr, 0, sizes, steps, static_cast<int32_t>(ndim),
                  from_torch(op, i, dtype)};
    set_data(&tensors[i], data);
    inputs[i] = &tensors[i];
  }
  if (first) refuse(op.name + ": every input is absent");
}

void Call::make_outputs(const Params& params, uint64_t wanted) {
  const auto n = static_cast<size_t>(op.n_outputs);
  std::array<rlk_output_shape*, kMaxArguments> asked{};
  for (size_t i = 0; i < n; ++i) {
    if (op.must_alias[i] >= 0) {
      outputs[i] = inputs[static_cast<size_t>(op.must_alias[i])];
    } else if ((wanted >> i & 1) != 0) {
      shapes[i].struct_size = sizeof(rlk_output_shape);
      asked[i] = &shapes[i];
    }
  }
  rlk_error error = RLK_ERROR_INIT;
  if (rlk_infer_outputs(op.op, &params, inputs.data(), static_cast<uint32_t>(op.n_inputs), asked.data(),
                        static_cast<uint32_t>(n), &error) != RLK_OK) {
    raise(error);
  }
  for (size_t i = 0; i < n; ++i) {
    if (asked[i] == nullptr || shapes[i].ndim < 0) continue;
    const rlk_output_shape& shape = shapes[i];
    int64_t step = 1;
    for (int d = shape.ndim - 1; d >= 0; --d) {
      strides[i][static_cast<size_t>(d)] = step;
      step *= std::max<int64_t>(shape.shape[d], 1);
    }
    AtenTensorOpaque* tensor = nullptr;
    RLK_TORCH(aoti_torch_empty_strided, shape.ndim, shape.shape, strides[i].data(), to_torch(shape.dtype), device.type,
              device.index, &tensor);
    made[i] = Tensor(tensor);
    void* data = nullptr;
    RLK_TORCH(torch_get_mutable_data_ptr, tensor, &data);
    rlk_tensor& out = tensors[kMaxArguments + i];
    out = {sizeof(rlk_tensor), 0, nullptr, 0, shape.shape, strides[i].data(), shape.ndim, shape.dtype};
    set_data(&out, data);
    outputs[i] = &out;
  }
}

StableIValue give(std::array<Tensor, kMaxArguments>& made) {
  StableListOpaque* handle = nullptr;
  RLK_TORCH(torch_new_list_reserve_size, made.size(), &handle);
  List list(handle);
  for (Tensor& tensor : made) {
    if (tensor) RLK_TORCH(torch_list_push_back, list.get(), reinterpret_cast<StableIValue>(tensor.release()));
  }
  return reinterpret_cast<StableIValue>(list.release());
}

}  // namespace

rlk_error& last_error() {
  thread_local rlk_error error = RLK_ERROR_INIT;
  return error;
}

void run(const Operator& op, StableIValue* stack, uint64_t n_arguments, uint64_t n_results) {
  if (n_arguments != static_cast<uint64_t>(op.n_inputs) + 5 || n_results != (op.gives_list ? 1 : 0)) {
    throw std::runtime_error(op.name + ": the schema is not the one that was registered");
  }
  const Arguments given(op, stack);
  Params params;
  fill_params(op, given, &params);
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  const std::string pin = text_of(given.pin);
  options.pin = given.pin ? pin.c_str() : nullptr;
  options.numerics = numerics_of(op, text_of(given.numerics));

  Call call(op);
  call.take_inputs(given);
  call.make_outputs(params, given.wanted != 0 ? static_cast<uint64_t>(given.wanted) : op.required_outputs);

  rlk_error error = RLK_ERROR_INIT;
  rlk_stream* const stream = current_stream(call.device, &error);
  if (stream == nullptr) raise(error);
  rlk_status status = rlk_call(stream, op.op, &params, call.inputs.data(), static_cast<uint32_t>(op.n_inputs),
                               call.outputs.data(), static_cast<uint32_t>(op.n_outputs), &options, &error);
  if (status == RLK_OK && call.device.type == shim.aoti_torch_device_type_cpu()) {
    status = rlk_stream_query(stream, &error);  // the work is done: the stream reports bad values now
  }
  if (status < 0) raise(error);
  if (op.gives_list) stack[0] = give(call.made);
}

}  // namespace rlk::torch
