// What each value may be, and what is said of one that may not.
#include "packaging/tvmffi/arguments.hpp"

#include <cstdio>
#include <cstring>
#include <string_view>

namespace rlk::tvmffi {
namespace {

const char* kind_of(rlk_status status) {
  switch (status) {
    case RLK_INVALID_ARGUMENT:
    case RLK_DATA_ERROR:
      return "ValueError";
    case RLK_UNSUPPORTED:
      return "NotImplementedError";
    case RLK_OUT_OF_MEMORY:
      return "MemoryError";
    default:
      return "RuntimeError";
  }
}

// What a value is, for people.
std::string text_of(const Any& value) {
  switch (value.type_index) {
    case kNone:
      return "None";
    case kInt:
      return std::to_string(value.i64);
    case kBool:
      return value.i64 != 0 ? "True" : "False";
    case kFloat:
      return std::to_string(value.f64);
    case kDlTensorPtr:
    case kTensor:
      return "a tensor";
    case kRawStr:
    case kSmallStr:
    case kStr:
      return "a str";
    default:
      return "a value of tvm-ffi's type " + std::to_string(value.type_index);
  }
}

bool is_text(const Any& value, std::string_view* out) {
  if (value.type_index == kRawStr) {
    *out = value.text;
  } else if (value.type_index == kSmallStr) {
    *out = {value.bytes, value.small_length};
  } else if (value.type_index == kStr) {
    const Bytes& bytes = *behind<const Bytes>(value.object);
    *out = {bytes.data, bytes.size};
  } else {
    return false;
  }
  return true;
}

std::string words_of(const Parameter& parameter) {
  std::string out;
  for (uint32_t i = 0; i < parameter.n_words; ++i) out += (i == 0 ? "" : ", ") + std::string(parameter.words[i]);
  return out;
}

// An output in the memory of an input has no place of its own.
uint32_t places_of_outputs(const Operator& op) {
  uint32_t places = 0;
  for (uint32_t i = 0; i < op.n_outputs; ++i) places += op.outputs[i].alias < 0;
  return places;
}

}  // namespace

void check(rlk_status status, const rlk_error& error) {
  if (status < 0) throw Raised{kind_of(status), error.text};
}

std::string signature(const Operator& op) {
  std::string out;
  const auto add = [&out](const char* name, const std::string& otherwise) {
    out += (out.empty() ? "" : ", ") + std::string(name) + (otherwise.empty() ? "" : "=" + otherwise);
  };
  for (uint32_t i = 0; i < op.n_inputs; ++i) add(op.inputs[i].name, op.inputs[i].is_optional ? "None" : "");
  for (uint32_t i = 0; i < op.n_outputs; ++i) {
    if (op.outputs[i].alias < 0) add(op.outputs[i].name, op.outputs[i].is_optional ? "None" : "");
  }
  for (uint32_t i = 0; i < op.n_params; ++i) {
    const Parameter& parameter = op.params[i];
    char number[40];
    std::snprintf(number, sizeof(number), "%.17g", parameter.f64);
    if (parameter.type == 'f') add(parameter.name, number);
    if (parameter.type == 'i') add(parameter.name, std::to_string(parameter.i64));
    if (parameter.type == 'e') add(parameter.name, std::string("'") + parameter.words[parameter.i64] + "'");
  }
  return out;
}

Arguments::Arguments(const Operator& op, const Any* arguments, int32_t count) : op_(op) {
  const uint32_t most = op.n_inputs + places_of_outputs(op) + op.n_params;
  if (count > static_cast<int64_t>(most)) {
    throw Raised{"TypeError", "rlk." + std::string(op.name) + " takes at most " + std::to_string(most) +
                                  " arguments, got " + std::to_string(count) + ": " + signature(op)};
  }
  constexpr Any kAbsent = {kNone, 0, {0}};
  int32_t place = 0;
  const auto next = [&]() -> const Any& { return place < count ? arguments[place++] : kAbsent; };
  for (uint32_t i = 0; i < op.n_inputs; ++i) inputs_[i] = tensor(op.inputs[i], next());
  for (uint32_t i = 0; i < op.n_outputs; ++i) {
    const Argument& output = op.outputs[i];
    outputs_[i] = output.alias >= 0 ? inputs_[static_cast<size_t>(output.alias)] : tensor(output, next());
  }
  std::memcpy(params_.data(), op.defaults, op.params_size);
  for (uint32_t i = 0; i < op.n_params; ++i) parameter(op.params[i], next());
}

void Arguments::fail(const char* kind, const char* argument, const std::string& text) const {
  throw Raised{kind, "rlk." + std::string(op_.name) + ": " + argument + " " + text};
}

const rlk_tensor* Arguments::tensor(const Argument& argument, const Any& value) {
  if (value.type_index == kNone) {
    if (argument.is_optional) return nullptr;
    fail("TypeError", argument.name, "is required, got None. The arguments: " + signature(op_));
  }
  const bool is_object = value.type_index == kTensor;
  if (!is_object && value.type_index != kDlTensorPtr)
    fail("TypeError", argument.name, "is " + text_of(value) + ", expected a tensor. The arguments: " + signature(op_));
  const DlTensor& given = is_object ? *behind<const DlTensor>(value.object) : *static_cast<DlTensor*>(value.pointer);
  if (given.ndim < 0 || given.ndim > RLK_MAX_NDIM)
    fail(
        "ValueError", argument.name,
        "has " + std::to_string(given.ndim) + " dimensions, at most " + std::to_string(RLK_MAX_NDIM) + " are possible");
  DlDevice device = given.device;
  if (device.type == kDlCudaHost || device.type == kDlRocmHost || device.type == kDlCpu) device = {kDlCpu, 0};
  if (device.type == kDlCudaManaged) device.type = kDlCuda;
  if (device_.type == 0) device_ = device;
  if (data_ == nullptr) data_ = given.data;
  if (device.type != device_.type || device.id != device_.id)
    fail("ValueError", argument.name,
         "is on device " + std::to_string(device.type) + ":" + std::to_string(device.id) +
             " (DLPack's numbers), other " + "arguments on " + std::to_string(device_.type) + ":" +
             std::to_string(device_.id) + ". All of them must be on one device");

  rlk_tensor& out = tensors_[used_];
  int64_t* strides = strides_[used_++].data();
  if (given.strides == nullptr) {
    uint64_t step = 1;  // unsigned: a shape that no memory holds is for the call to refuse
    for (int32_t i = given.ndim - 1; i >= 0; --i) {
      strides[i] = static_cast<int64_t>(step);
      step *= static_cast<uint64_t>(given.shape[i]);
    }
  }
  const auto address = reinterpret_cast<uintptr_t>(given.data) + given.byte_offset;
  out = {};
  out.struct_size = sizeof(out);
  constexpr uintptr_t kMostAlignment = 4096;
  const uintptr_t aligned = address & (~address + 1);
  out.alignment = static_cast<uint32_t>(given.data == nullptr || aligned > kMostAlignment ? kMostAlignment : aligned);
  out.data = given.data;
  out.byte_offset = given.byte_offset;
  out.shape = given.shape;
  out.strides = given.strides != nullptr ? given.strides : strides;
  out.ndim = given.ndim;
  out.dtype = {given.dtype.code, given.dtype.bits, given.dtype.lanes};
  if (argument.is_byte && out.dtype.code == RLK_DTYPE_BOOL) out.dtype.code = RLK_DTYPE_UINT;  // the same byte
  return &out;
}

void Arguments::parameter(const Parameter& parameter, const Any& value) {
  if (value.type_index == kNone) return;  // its default is there
  void* const place = params_.data() + parameter.offset;
  const bool is_integer = value.type_index == kInt || value.type_index == kBool;
  if (parameter.type == 'f') {
    if (!is_integer && value.type_index != kFloat)
      fail("TypeError", parameter.name, "is " + text_of(value) + ", expected a number");
    const double number = is_integer ? static_cast<double>(value.i64) : value.f64;
    std::memcpy(place, &number, sizeof(number));
    return;
  }
  int64_t number = value.i64;
  std::string_view word;
  if (parameter.type == 'e' && is_text(value, &word)) {
    for (number = 0; number < parameter.n_words && word != parameter.words[number];) ++number;
    if (number == parameter.n_words)
      fail("ValueError", parameter.name, "is '" + std::string(word) + "', expected one of " + words_of(parameter));
  } else if (!is_integer) {
    fail("TypeError", parameter.name,
         "is " + text_of(value) + ", expected " +
             (parameter.type == 'e' ? "one of " + words_of(parameter) : std::string("an integer")));
  } else if (parameter.type == 'e' && (number < 0 || number >= parameter.n_words)) {
    fail("ValueError", parameter.name,
         "is " + std::to_string(number) + ", expected 0 to " + std::to_string(parameter.n_words - 1) + ": " +
             words_of(parameter));
  }
  std::memcpy(place, &number, sizeof(number));
}

}  // namespace rlk::tvmffi
