// libcnnl.so without Cambricon: handles, descriptors, and what every call checks.
#include "cnnl.hpp"

#include <cstring>

namespace fake_cnnl {

FAKE_HANDLES(Context, contexts, 16, "CNNL handle")
FAKE_HANDLES(Tensor, tensors, 17, "tensor descriptor")
FAKE_HANDLES(OpTensor, op_tensors, 18, "descriptor of an elementwise operation")
FAKE_HANDLES(Reduction, reductions, 19, "descriptor of a reduction")

int64_t count(const std::vector<int>& dims) {
  int64_t elements = 1;
  for (const int dim : dims) elements *= dim;
  return elements;
}

namespace {

int width(int dtype) {
  return dtype == kFloat || dtype == kInt32 ? 4 : dtype == kInt16 || dtype == kHalf ? 2 : 1;
}

// What CNNL says of a code of the runtime.
int status_of(int code) {
  return code < 1000 ? code : code == 100100 ? 2 : kExecutionFailed;
}

std::shared_ptr<Tensor> described(void* desc, const char* call) {
  auto tensor = tensors().get(desc, call);
  if (!tensor->is_set)
    fake::violation("DESCRIPTOR_NOT_SET", std::string(call) + ": a tensor descriptor without a shape");
  return tensor;
}

}  // namespace

Call::Call(void* handle, const char* name) : name_(name), handle_(handle) {
  status_ = status_of(fake::enter(name, fake::Needs::kDevice));
  if (status_ != 0) return;
  context_ = contexts().get(handle, name);
  if (context_->device != fake::current_device())
    fake::violation("WRONG_DEVICE", std::string(name) + ": a handle of another device than the thread's");
  if (context_->busy.exchange(true))
    fake::violation("HANDLE_IN_USE", std::string(name) + ": another thread is in a call of this handle");
}

Call::~Call() {
  if (context_ != nullptr) context_->busy = false;
}

const Tensor& Call::add(void* desc, const void* data, std::initializer_list<int> dtypes, bool strides, bool output) {
  operands_.emplace_back();
  Operand& operand = operands_.back();
  operand.output = output;
  static const Tensor none;
  if (status_ != 0) return none;
  operand.view.tensor = described(desc, name_);
  const Tensor& tensor = *operand.view.tensor;
  bool known = false;
  for (const int dtype : dtypes) known = known || dtype == tensor.dtype;
  if (!known) status_ = kBadParam;
  if (!tensor.dense && !strides) status_ = kNotSupported;
  if (data == nullptr) status_ = kBadParam;
  if (status_ != 0) return tensor;
  int64_t extent = 1;
  for (size_t i = 0; i < tensor.dims.size(); ++i)
    extent += static_cast<int64_t>(tensor.dims[i] - 1) * tensor.strides[i];
  const auto bytes = static_cast<size_t>(extent) * static_cast<size_t>(width(tensor.dtype));
  const fake::Argument what(name_, "operand", static_cast<int>(operands_.size()));
  fake::require_device(data, bytes, what);
  fake::require_aligned(data, static_cast<size_t>(width(tensor.dtype)), what);
  const auto begin = reinterpret_cast<uintptr_t>(data);
  operand.range = {begin, begin + bytes};
  operand.view.address = data;
  operand.view.data = fake::bytes_at(data);
  return tensor;
}

void Call::workspace(void* data, size_t bytes) {
  if (status_ != 0) return;
  if (bytes < kWorkspace || data == nullptr)
    fake::violation("WORKSPACE_TOO_SMALL", std::string(name_) + ": the query asked for " + std::to_string(kWorkspace) +
                                               " bytes, the call got " + std::to_string(data == nullptr ? 0 : bytes));
  fake::require_device(data, kWorkspace, {name_, "the workspace"});
  scratch_ = data;
}

void Call::check_overlap(bool in_place) const {
  for (const Operand& written : operands_) {
    if (!written.output) continue;
    for (const Operand& other : operands_) {
      if (&other == &written || written.range.begin >= other.range.end || other.range.begin >= written.range.end)
        continue;
      const bool same = written.range.begin == other.range.begin && written.range.end == other.range.end;
      if (!(in_place && same && !other.output))
        fake::violation("OVERLAP", std::string(name_) + ": an output shares memory with another operand");
    }
  }
}

int Call::run(bool in_place, std::function<void(std::vector<View>&)> compute) {
  if (status_ != 0) return status_;
  if (!context_->has_queue) fake::violation("QUEUE_NOT_SET", std::string(name_) + ": the handle has no queue");
  check_overlap(in_place);
  fake::Command command;
  command.name = name_;
  command.with = handle_;
  auto views = std::make_shared<std::vector<View>>();
  views->reserve(operands_.size());
  command.uses.reserve(operands_.size() + 1);
  for (const Operand& operand : operands_) {
    views->push_back(operand.view);
    command.uses.push_back(operand.range);
  }
  if (scratch_ != nullptr) {
    const auto begin = reinterpret_cast<uintptr_t>(scratch_);
    command.uses.push_back({begin, begin + kWorkspace});
  }
  command.run = [views, scratch = scratch_, compute = std::move(compute)] {
    // The operator owns its workspace: other code that keeps something there loses it.
    if (scratch != nullptr) std::memset(fake::bytes_at(scratch), 0x5a, kWorkspace);
    return compute(*views), 0;
  };
  return status_of(fake::enqueue(context_->queue, name_, std::move(command)));
}

int answer(void* handle, const char* name, size_t* bytes, std::initializer_list<void*> descs) {
  const Call call(handle, name);
  if (call.status() != 0) return call.status();
  for (void* desc : descs) described(desc, name);
  return *bytes = kWorkspace, 0;
}

namespace {

int set_tensor(void* desc, int layout, int dtype, int n, const int* dims, const int* strides, const char* call) {
  const auto tensor = tensors().get(desc, call);
  if (tensor->is_set) fake::violation("DESCRIPTOR_SET_TWICE", std::string(call) + " without a reset between");
  if (layout != 4 || n < 1 || n > 8 ||
      (dtype != kHalf && dtype != kFloat && dtype != kInt16 && (dtype < kInt32 || dtype > kBool)))
    return kBadParam;
  tensor->dims.assign(dims, dims + n);
  tensor->strides.resize(tensor->dims.size());
  int64_t dense = 1;
  for (size_t i = tensor->dims.size(); i-- > 0;) {
    if (tensor->dims[i] < 1) return kBadParam;
    tensor->strides[i] = strides != nullptr ? strides[i] : static_cast<int>(dense);
    if (tensor->dims[i] > 1 && tensor->strides[i] != dense) tensor->dense = false;
    dense *= tensor->dims[i];
  }
  if (dense > 0x7fffffff) return kBadParam;
  tensor->dtype = dtype;
  tensor->is_set = true;
  return 0;
}

}  // namespace
}  // namespace fake_cnnl

using namespace fake_cnnl;

#define API FAKE_EXPORT int

FAKE_EXPORT void cnnlGetLibVersion(int* major, int* minor, int* patch) {
  *major = 1, *minor = 27, *patch = 0;
}
FAKE_EXPORT const char* cnnlGetErrorString(int status) {
  return status == 3   ? "CNNL_STATUS_BAD_PARAM"
         : status == 2 ? "CNNL_STATUS_ALLOC_FAILED"
         : status == 6 ? "CNNL_STATUS_EXECUTION_FAILED"
         : status == 7 ? "CNNL_STATUS_NOT_SUPPORTED"
                       : "CNNL_STATUS_INTERNAL_ERROR";
}
API cnnlCreate(void** handle) {
  if (const int code = status_of(fake::enter("cnnlCreate", fake::Needs::kDevice))) return code;
  auto context = std::make_shared<Context>();
  context->device = fake::current_device();
  return *handle = contexts().add(context), 0;
}
API cnnlDestroy(void* handle) {
  const int code = status_of(fake::enter("cnnlDestroy", fake::Needs::kNothing));
  contexts().take(handle, "cnnlDestroy");
  if (const std::string call = fake::recorded_with(handle); !call.empty())
    fake::violation("HANDLE_IN_GRAPH", "cnnlDestroy of the handle with which a live graph has " + call);
  return code;
}
API cnnlSetQueue(void* handle, void* queue) {
  const Call call(handle, "cnnlSetQueue");
  if (call.status() != 0) return call.status();
  const auto context = contexts().get(handle, "cnnlSetQueue");
  context->queue = queue;
  context->has_queue = true;
  return 0;
}

// Creating and destroying, for each kind of descriptor. They go also when the device is lost.
#define DESCRIPTOR(name, Type, table)                                                                                 \
  API cnnlCreate##name##Descriptor(void** desc) {                                                                     \
    if (const int code = status_of(fake::enter("cnnlCreate" #name "Descriptor", fake::Needs::kNothing))) return code; \
    return *desc = table().add(std::make_shared<Type>()), 0;                                                          \
  }                                                                                                                   \
  API cnnlDestroy##name##Descriptor(void* desc) {                                                                     \
    const int code = status_of(fake::enter("cnnlDestroy" #name "Descriptor", fake::Needs::kNothing));                 \
    table().take(desc, "cnnlDestroy" #name "Descriptor");                                                             \
    return code;                                                                                                      \
  }
DESCRIPTOR(Tensor, Tensor, tensors)
DESCRIPTOR(OpTensor, OpTensor, op_tensors)
DESCRIPTOR(Reduce, Reduction, reductions)

API cnnlSetTensorDescriptor(void* desc, int layout, int dtype, int n, const int* dims) {
  if (const int code = status_of(fake::enter("cnnlSetTensorDescriptor", fake::Needs::kNothing))) return code;
  return set_tensor(desc, layout, dtype, n, dims, nullptr, "cnnlSetTensorDescriptor");
}
API cnnlSetTensorDescriptorEx(void* desc, int layout, int dtype, int n, const int* dims, const int* strides) {
  if (const int code = status_of(fake::enter("cnnlSetTensorDescriptorEx", fake::Needs::kNothing))) return code;
  return set_tensor(desc, layout, dtype, n, dims, strides, "cnnlSetTensorDescriptorEx");
}
API cnnlSetOpTensorDescriptor(void* desc, int operation, int dtype, int nan) {
  if (const int code = status_of(fake::enter("cnnlSetOpTensorDescriptor", fake::Needs::kNothing))) return code;
  if (operation < 0 || operation > 2 || dtype != kFloat || nan < 0 || nan > 1) return kBadParam;
  return op_tensors().get(desc, "cnnlSetOpTensorDescriptor")->operation = operation, 0;
}
API cnnlSetReduceDescriptor_v2(void* desc, int* axes, int n, int operation, int dtype, int nan, int indices, int type,
                               float) {
  if (const int code = status_of(fake::enter("cnnlSetReduceDescriptor_v2", fake::Needs::kNothing))) return code;
  if (n != 1 || dtype != kFloat || (operation != 0 && operation != 3) || indices < 0 || indices > 1 || type != 0)
    return kBadParam;
  *reductions().get(desc, "cnnlSetReduceDescriptor_v2") = {axes[0], operation, nan, indices};
  return 0;
}
