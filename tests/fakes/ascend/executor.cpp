// How do the two phases of an aclnn call work? Phase 1 checks the arguments and makes an executor that says how much
// workspace it needs; phase 2 puts it on a stream and, unless it is repeatable, consumes it.
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "descriptors.h"

namespace fake_ascend {
namespace {

// One tensor of an executor, as it was described in phase 1.
struct Slot {
  const aclTensor* handle = nullptr;  // null: absent
  std::shared_ptr<Tensor> tensor;
  const char* name = "";
  void* bound = nullptr;  // set by aclSet*TensorAddr
  bool rebound = false;
};

// A tensor, or a list of one.
struct Operand {
  const aclTensorList* list = nullptr;
  Slot slot;
};

struct Executor {
  const char* op = "";
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  uint64_t workspace_bytes = 0;
  bool repeatable = false;
  Kernel kernel;

  template <typename Visit>
  void for_each_slot(Visit visit) {
    for (auto* arguments : {&inputs, &outputs}) {
      for (Operand& argument : *arguments) {
        if (argument.slot.handle != nullptr) visit(argument.slot);
      }
    }
  }
};

HandleTable<Executor>& executors() {
  static auto* const table = new HandleTable<Executor>(32, "aclOpExecutor");
  return *table;
}

// Executors that phase 2 consumed: their second use gets its own message.
struct Consumed {
  std::mutex mutex;
  std::set<const void*> handles;
};
Consumed& consumed() {
  static auto* const instance = new Consumed;
  return *instance;
}

const Tensor& stand_in() {
  static const Tensor* const tensor = [] {
    auto* created = new Tensor;
    created->dims = {1};
    created->strides = {1};
    created->storage_elements = 1;
    return created;
  }();
  return *tensor;
}

// A tensor argument of one phase 2.
struct Bound {
  const char* name;
  Range range;
  bool output;
  bool gapless;
};

uint64_t round_up(uint64_t bytes) {
  return (bytes + 511) / 512 * 512;
}

// Address, alignment and bounds of a slot at phase 2; fills the view and the range it uses.
int bind_slot(const char* op, const Slot& slot, View* view, Range* use) {
  const fake::Argument what(op, slot.name);
  if (tensors().find(slot.handle) == nullptr) {
    return violation("TENSOR_DESTROYED", what.text() + " was destroyed before phase 2");
  }
  const Tensor& tensor = *slot.tensor;
  view->present = true;
  view->dtype = tensor.dtype;
  view->dims = tensor.dims;
  view->strides = tensor.strides;
  if (element_count(tensor.dims) == 0) return 0;
  void* const storage = slot.rebound ? slot.bound : tensor.data;
  const auto address = reinterpret_cast<uintptr_t>(storage);
  const int64_t width = element_bytes(tensor.dtype);
  const size_t storage_bytes = static_cast<size_t>(tensor.storage_elements * width);
  if (const int code = check_device_range(storage, storage_bytes, what)) return code;
  if (address % 32 != 0) {
    return violation("MISALIGNED_TENSOR",
                     what.text() + " data is at " + std::to_string(address % 32) + " bytes past a 32-byte boundary");
  }
  view->data = device_bytes(storage) + tensor.offset * width;
  int64_t extent = 1;
  for (size_t i = 0; i < tensor.dims.size(); ++i) extent += (tensor.dims[i] - 1) * tensor.strides[i];
  const uintptr_t begin = address + static_cast<uintptr_t>(tensor.offset * width);
  *use = {begin, begin + static_cast<uintptr_t>(extent * width)};
  return 0;
}

// An output may be exactly an input's memory, never part of it, and outputs never share memory. Views with gaps may
// interleave, so only gapless ones are judged.
int check_overlap(const char* op, const std::vector<Bound>& bound) {
  for (const Bound& written : bound) {
    if (!written.output || !written.gapless) continue;
    for (const Bound& other : bound) {
      if (&other == &written || !other.gapless || !written.range.overlaps(other.range)) continue;
      const bool same = written.range.begin == other.range.begin && written.range.end == other.range.end;
      if (same && !other.output) continue;
      return violation("OVERLAP", std::string(op) + ": " + written.name + " overlaps " + other.name);
    }
  }
  return 0;
}

int check_workspace(const Executor& executor, void* workspace, uint64_t bytes) {
  if (executor.workspace_bytes == 0) return 0;
  if (bytes < executor.workspace_bytes || workspace == nullptr) {
    return violation("WORKSPACE_TOO_SMALL", std::string(executor.op) + ": phase 1 asked for " +
                                                std::to_string(executor.workspace_bytes) + " bytes, phase 2 got " +
                                                (workspace == nullptr ? "null" : std::to_string(bytes)));
  }
  if (reinterpret_cast<uintptr_t>(workspace) % 32 != 0) {
    return violation("MISALIGNED_TENSOR", std::string(executor.op) + ": workspace is not 32-byte aligned");
  }
  return check_device_range(workspace, bytes, {executor.op, "workspace"});
}

// Phase 2 rebinding: `tensor` must be what phase 1 was given at that place.
int rebind(aclOpExecutor* handle, size_t index, const aclTensor* tensor, void* address, int direction,
           const char* call) {
  const auto executor = executors().get(handle, call);
  if (executor == nullptr) return ACLNN_ERR_PARAM_INVALID;
  if (!executor->repeatable) {
    return violation("NOT_REPEATABLE", std::string(call) + " on an executor of " + executor->op +
                                           " without aclSetAclOpExecutorRepeatable");
  }
  std::vector<Operand>& inputs = executor->inputs;
  std::vector<Operand>& outputs = executor->outputs;
  const size_t n_inputs = direction != 1 ? inputs.size() : 0, n_outputs = direction != 0 ? outputs.size() : 0;
  Operand* const argument = index < n_inputs               ? &inputs[index]
                            : index < n_inputs + n_outputs ? &outputs[index - n_inputs]
                                                           : nullptr;
  if (argument == nullptr || argument->list != nullptr || argument->slot.handle != tensor) {
    return violation("WRONG_BINDING", std::string(call) + ": index " + std::to_string(index) + " of " + executor->op +
                                          " is not the tensor that phase 1 was given there");
  }
  Slot& slot = argument->slot;
  slot.bound = address;
  slot.rebound = true;
  return ACL_SUCCESS;
}

[[maybe_unused]] const bool hooks_registered = [] {
  set_nnopbase_hooks({live_descriptor_count, [] { return executors().size(); }});
  return true;
}();

}  // namespace

struct Phase1::Build {
  std::shared_ptr<Executor> executor = std::make_shared<Executor>();
  uint64_t* workspace_bytes = nullptr;
  aclOpExecutor** handle = nullptr;
};

Phase1::Phase1(const char* op, uint64_t* workspace_bytes, aclOpExecutor** executor) : build_(new Build) {
  code_ = begin((std::string("phase1 ") + op).c_str(), Needs::kDevice);
  build_->executor->op = op;
  build_->workspace_bytes = workspace_bytes;
  build_->handle = executor;
  if (code_ == 0 && (workspace_bytes == nullptr || executor == nullptr)) {
    code_ = fail(ACLNN_ERR_PARAM_NULLPTR, std::string(op) + ": null workspaceSize or executor");
  }
}

Phase1::~Phase1() {
  delete build_;
}

const Tensor& Phase1::add(const char* name, const aclTensor* tensor, Dtypes dtypes, bool output) {
  auto& arguments = output ? build_->executor->outputs : build_->executor->inputs;
  arguments.emplace_back();
  if (failed()) return stand_in();
  const char* const op = build_->executor->op;
  if (tensor == nullptr) {
    code_ = fail(ACLNN_ERR_PARAM_NULLPTR, std::string(op) + ": " + name + " is null");
    return stand_in();
  }
  const auto found = tensors().get(tensor, op);
  if (found == nullptr) {
    code_ = ACLNN_ERR_PARAM_INVALID;
    return stand_in();
  }
  bool known = false;
  for (const int32_t dtype : dtypes) known = known || dtype == found->dtype;
  if (!known) {
    code_ = violation("UNSUPPORTED_DTYPE", std::string(op) + ": " + name + " is " + dtype_name(found->dtype));
    return stand_in();
  }
  arguments.back().slot = {tensor, found, name, nullptr, false};
  return *found;
}

const Tensor& Phase1::in(const char* name, const aclTensor* tensor, Dtypes dtypes) {
  return add(name, tensor, dtypes, false);
}
const Tensor& Phase1::in_out(const char* name, const aclTensor* tensor, Dtypes dtypes) {
  return add(name, tensor, dtypes, false);
}
const Tensor& Phase1::out(const char* name, const aclTensor* tensor, Dtypes dtypes) {
  return add(name, tensor, dtypes, true);
}

const Tensor* Phase1::optional_in(const char* name, const aclTensor* tensor, Dtypes dtypes) {
  if (tensor != nullptr) return &add(name, tensor, dtypes, false);
  build_->executor->inputs.emplace_back();
  return nullptr;
}

const Tensor& Phase1::in_list(const char* name, const aclTensorList* list, Dtypes dtypes) {
  const auto found = failed() || list == nullptr ? nullptr : tensor_lists().get(list, build_->executor->op);
  require(found != nullptr && found->members.size() == 1, std::string(name) + " is a list of exactly one tensor");
  const Tensor& tensor = add(name, found == nullptr ? nullptr : found->members.front(), dtypes, false);
  build_->executor->inputs.back().list = list;
  return tensor;
}

Scalar Phase1::scalar(const char* name, const aclScalar* scalar) {
  if (failed()) return {};
  if (scalar == nullptr) {
    code_ = fail(ACLNN_ERR_PARAM_NULLPTR, std::string(build_->executor->op) + ": " + name + " is null");
    return {};
  }
  const auto found = scalars().get(scalar, build_->executor->op);
  if (found == nullptr) {
    code_ = ACLNN_ERR_PARAM_INVALID;
    return {};
  }
  return *found;
}

std::vector<int64_t> Phase1::ints(const char* name, const aclIntArray* array) {
  require(array != nullptr, std::string(name) + " is given");
  return optional_ints(array);
}

std::vector<int64_t> Phase1::optional_ints(const aclIntArray* array) {
  if (failed() || array == nullptr) return {};
  const auto found = int_arrays().get(array, build_->executor->op);
  if (found == nullptr) {
    code_ = ACLNN_ERR_PARAM_INVALID;
    return {};
  }
  return found->values;
}

void Phase1::require(bool holds, const std::string& text) {
  if (failed() || holds) return;
  code_ = fail(ACLNN_ERR_PARAM_INVALID, std::string(build_->executor->op) + ": expected: " + text);
}

aclnnStatus Phase1::finish(Kernel kernel) {
  if (failed()) return code_;
  Executor& executor = *build_->executor;
  executor.kernel = std::move(kernel);
  // As the vendor's do, operators ask for room to make views contiguous, and always for a little.
  executor.workspace_bytes = 512 + static_cast<uint64_t>(knob("MORE_WORKSPACE", 0));
  executor.for_each_slot([&](const Slot& slot) {
    const auto bytes = static_cast<uint64_t>(element_count(slot.tensor->dims) * element_bytes(slot.tensor->dtype));
    if (!is_contiguous(*slot.tensor)) executor.workspace_bytes += round_up(bytes);
  });
  *build_->workspace_bytes = executor.workspace_bytes;
  *build_->handle = static_cast<aclOpExecutor*>(executors().add(build_->executor));
  return ACL_SUCCESS;
}

namespace {

void consume(aclOpExecutor* handle) {
  const std::lock_guard lock(consumed().mutex);
  consumed().handles.insert(handle);
  executors().remove(handle);
}

}  // namespace

aclnnStatus phase2(const char* op, void* workspace, uint64_t workspace_bytes, aclOpExecutor* handle,
                   aclrtStream stream) {
  const std::string call = std::string("phase2 ") + op;
  if (const int code = begin(call.c_str(), Needs::kDevice)) {
    const auto failed = executors().find(handle);
    if (failed != nullptr && !failed->repeatable) consume(handle);
    return code;
  }
  {
    const std::lock_guard lock(consumed().mutex);
    if (consumed().handles.count(handle) != 0) {
      return violation("EXECUTOR_REUSED", call +
                                              " with an executor that an earlier phase 2 consumed; "
                                              "aclSetAclOpExecutorRepeatable allows more than one");
    }
  }
  const auto executor = executors().get(handle, call.c_str());
  if (executor == nullptr) return ACLNN_ERR_PARAM_INVALID;
  if (std::strcmp(executor->op, op) != 0) {
    return violation("WRONG_EXECUTOR", call + " with an executor made by " + executor->op);
  }
  int code = check_stream(stream, call.c_str());
  if (code != 0) return code;
  if ((code = check_workspace(*executor, workspace, workspace_bytes)) != 0) return code;

  auto operands = std::make_shared<Operands>();
  std::vector<Bound> bound;
  bound.reserve(executor->inputs.size() + executor->outputs.size());
  for (auto* arguments : {&executor->inputs, &executor->outputs}) {
    const bool output = arguments == &executor->outputs;
    auto& views = output ? operands->out : operands->in;
    views.reserve(arguments->size());
    for (const Operand& argument : *arguments) {
      const Slot& slot = argument.slot;
      views.emplace_back();
      if (slot.handle == nullptr) continue;
      Range range;
      if ((code = bind_slot(op, slot, &views.back(), &range)) != 0) return code;
      if (range.begin != range.end) bound.push_back({slot.name, range, output, is_contiguous(*slot.tensor)});
    }
  }
  if ((code = check_overlap(op, bound)) != 0) return code;
  std::vector<Range> uses;
  uses.reserve(bound.size() + 1);
  for (const Bound& argument : bound) uses.push_back(argument.range);
  std::byte* const scratch = executor->workspace_bytes == 0 ? nullptr : device_bytes(workspace);
  const uint64_t scratch_bytes = executor->workspace_bytes;
  if (scratch != nullptr) {
    const auto begin = reinterpret_cast<uintptr_t>(workspace);
    uses.push_back({begin, begin + scratch_bytes});
  }
  const auto run = [kernel = executor->kernel, operands, scratch, scratch_bytes] {
    // The operator owns its workspace: other code that keeps something there loses it.
    if (scratch != nullptr) std::memset(scratch, 0x5a, scratch_bytes);
    return kernel(*operands);
  };
  code = submit(stream, call.c_str(), {op, run, std::move(uses)});
  if (!executor->repeatable) consume(handle);  // a launch that fails consumes it too
  if (code == 0) return ACL_SUCCESS;
  return fail(ACLNN_ERR_RUNTIME_ERROR, call + ": AscendCL returned " + std::to_string(code));
}

}  // namespace fake_ascend

using namespace fake_ascend;

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* handle) {
  FAKE_ASCEND_ENTER(kNothing);
  const auto executor = executors().get(handle, __func__);
  if (executor == nullptr) return ACLNN_ERR_PARAM_INVALID;
  // Not every operator can be repeated: RLK_FAKE_ASCEND_FAIL="repeatable aclnnXxx" makes one refuse.
  if (const int code = begin((std::string("repeatable ") + executor->op).c_str(), Needs::kNothing)) return code;
  if (executor->repeatable) return ACL_SUCCESS;
  executor->repeatable = true;
  executor->for_each_slot([](const Slot& slot) { ++slot.tensor->held; });
  return ACL_SUCCESS;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* handle) {
  FAKE_ASCEND_ENTER(kNothing);
  const auto executor = executors().get(handle, __func__);
  if (executor == nullptr) return ACLNN_ERR_PARAM_INVALID;
  executors().remove(handle);
  if (!executor->repeatable) return ACL_SUCCESS;
  executor->for_each_slot([](const Slot& slot) {
    if (--slot.tensor->held == 0) tensors().remove(slot.handle);
  });
  for (const Operand& argument : executor->inputs) {
    if (argument.list != nullptr) tensor_lists().remove(argument.list);
  }
  return ACL_SUCCESS;
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* address) {
  FAKE_ASCEND_ENTER(kNothing);
  return rebind(executor, index, tensor, address, 0, __func__);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* address) {
  FAKE_ASCEND_ENTER(kNothing);
  return rebind(executor, index, tensor, address, 1, __func__);
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* address) {
  FAKE_ASCEND_ENTER(kNothing);
  return rebind(executor, index, tensor, address, 2, __func__);
}

aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* handle, size_t ir_index, const size_t relative_index,
                                         aclTensorList* list, void* address) {
  FAKE_ASCEND_ENTER(kNothing);
  const auto executor = executors().get(handle, __func__);
  if (executor == nullptr) return ACLNN_ERR_PARAM_INVALID;
  if (!executor->repeatable) {
    return violation("NOT_REPEATABLE", std::string("aclSetDynamicInputTensorAddr on an executor of ") + executor->op +
                                           " without aclSetAclOpExecutorRepeatable");
  }
  if (ir_index >= executor->inputs.size() || executor->inputs[ir_index].list != list || list == nullptr ||
      relative_index > 0) {
    return violation("WRONG_BINDING", "aclSetDynamicInputTensorAddr: index " + std::to_string(ir_index) + " of " +
                                          executor->op + " is not the list that phase 1 was given there");
  }
  Slot& slot = executor->inputs[ir_index].slot;
  slot.bound = address;
  slot.rebound = true;
  return ACL_SUCCESS;
}
