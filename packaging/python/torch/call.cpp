// torch's tensors become rlk's, outputs come from torch's allocator, the work goes to torch's current stream.
#include "call.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

namespace rlk::torch {
namespace {

[[noreturn]] void raise(const rlk_error& error) {
  last_error() = error;
  throw std::runtime_error(error.text);  // RuntimeError in Python; rlk.torch makes rlk's own class of it
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

Device device_of(AtenTensorOpaque* tensor) {
  Device device;
  RLK_TORCH(aoti_torch_get_device_type, tensor, &device.type);
  RLK_TORCH(aoti_torch_get_device_index, tensor, &device.index);
  return device;
}

// Outputs follow from parameters, shapes and dtypes alone. A thread keeps those of each operator's last call: the next
// is mostly of the same.
struct Inferred {
  std::vector<uint64_t> from;
  std::array<rlk_output_shape, kMaxArguments> shapes;
};

void describe(const Operator& op, const void* params, uint64_t wanted,
              const std::array<const rlk_tensor*, kMaxArguments>& inputs, std::vector<uint64_t>* out) {
  const auto* const words = static_cast<const uint64_t*>(params);
  out->assign(words, words + 1 + op.param_kinds.size());
  out->push_back(wanted);
  for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
    const rlk_tensor* const x = inputs[i];
    if (x == nullptr) {
      out->push_back(~uint64_t{0});
      continue;
    }
    out->push_back(static_cast<uint64_t>(x->ndim) << 32 | static_cast<uint64_t>(x->dtype.code) << 16 | x->dtype.bits);
    out->insert(out->end(), x->shape, x->shape + x->ndim);
  }
}

const rlk_output_shape* shapes_of(const Operator& op, const void* params, uint64_t wanted,
                                  const std::array<const rlk_tensor*, kMaxArguments>& inputs) {
  thread_local std::vector<std::unique_ptr<Inferred>> known;
  thread_local std::vector<uint64_t> from;
  if (known.size() <= op.place) known.resize(op.place + 1);
  std::unique_ptr<Inferred>& last = known[op.place];
  if (!last) last = std::make_unique<Inferred>();
  describe(op, params, wanted, inputs, &from);
  if (from == last->from) return last->shapes.data();
  last->from.clear();
  std::array<rlk_output_shape*, kMaxArguments> asked{};
  for (size_t i = 0; i < static_cast<size_t>(op.n_outputs); ++i) {
    last->shapes[i].struct_size = sizeof(rlk_output_shape);
    if ((wanted >> i & 1) != 0) asked[i] = &last->shapes[i];
  }
  rlk_error error = RLK_ERROR_INIT;
  if (rlk_infer_outputs(op.op, params, inputs.data(), static_cast<uint32_t>(op.n_inputs), asked.data(),
                        static_cast<uint32_t>(op.n_outputs), &error) != RLK_OK) {
    raise(error);
  }
  last->from = from;
  return last->shapes.data();
}

}  // namespace

rlk_error& last_error() {
  thread_local rlk_error error = RLK_ERROR_INIT;
  return error;
}

void refuse(const std::string& text) {
  rlk_error error = RLK_ERROR_INIT;
  error.status = RLK_INVALID_ARGUMENT;
  error.text[text.copy(error.text, sizeof(error.text) - 1)] = '\0';
  raise(error);
}

Call::Call(const Operator& op, const Tensors& given) : op_(op) {
  bool first = true;
  for (size_t i = 0; i < static_cast<size_t>(op.n_inputs); ++i) {
    AtenTensorOpaque* const tensor = given[i].get();
    if (tensor == nullptr) continue;
    const Device where = device_of(tensor);
    if (first) device_ = where;
    first = false;
    if (!(where == device_)) {
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
    tensors_[i] = {sizeof(rlk_tensor),      0, nullptr, 0, sizes, steps, static_cast<int32_t>(ndim),
                   from_torch(op, i, dtype)};
    set_data(&tensors_[i], data);
    inputs_[i] = &tensors_[i];
  }
  if (first) refuse(op.name + ": every input is absent");
}

void Call::make_outputs(const void* params, uint64_t wanted) {
  const auto n = static_cast<size_t>(op_.n_outputs);
  for (size_t i = 0; i < n; ++i) {
    if (op_.must_alias[i] >= 0) {
      outputs_[i] = inputs_[static_cast<size_t>(op_.must_alias[i])];
      wanted &= ~(uint64_t{1} << i);
    }
  }
  const rlk_output_shape* const shapes = shapes_of(op_, params, wanted, inputs_);
  for (size_t i = 0; i < n; ++i) {
    if ((wanted >> i & 1) == 0 || shapes[i].ndim < 0) continue;
    const rlk_output_shape& shape = shapes[i];
    int64_t step = 1;
    for (int d = shape.ndim - 1; d >= 0; --d) {
      strides_[i][static_cast<size_t>(d)] = step;
      step *= std::max<int64_t>(shape.shape[d], 1);
    }
    AtenTensorOpaque* tensor = nullptr;
    RLK_TORCH(aoti_torch_empty_strided, shape.ndim, shape.shape, strides_[i].data(), to_torch(shape.dtype),
              device_.type, device_.index, &tensor);
    made_[i] = Tensor(tensor);
    void* data = nullptr;
    RLK_TORCH(torch_get_mutable_data_ptr, tensor, &data);
    rlk_tensor& out = tensors_[kMaxArguments + i];
    out = {sizeof(rlk_tensor), 0, nullptr, 0, shape.shape, strides_[i].data(), shape.ndim, shape.dtype};
    set_data(&out, data);
    outputs_[i] = &out;
  }
}

Tensors& Call::run(const void* params, uint64_t wanted, const rlk_call_options& options) {
  make_outputs(params, wanted);
  rlk_error error = RLK_ERROR_INIT;
  rlk_stream* const stream = current_stream(device_, &error);
  if (stream == nullptr) raise(error);
  rlk_status status = rlk_call(stream, op_.op, params, inputs_.data(), static_cast<uint32_t>(op_.n_inputs),
                               outputs_.data(), static_cast<uint32_t>(op_.n_outputs), &options, &error);
  if (status == RLK_OK && device_.type == shim.aoti_torch_device_type_cpu()) {
    status = rlk_stream_query(stream, &error);  // the work is done: the stream reports bad values now
  }
  if (status < 0) raise(error);
  return made_;
}

}  // namespace rlk::torch
