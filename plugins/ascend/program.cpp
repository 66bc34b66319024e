// Descriptors from operands and addresses, and the two phases of every step.
#include "program.hpp"

#include <algorithm>

namespace rlk::ascend {
namespace {

constexpr int64_t kScratchAlignment = 512;

int64_t round_up(int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// An address as aclnn wants it: an aligned storage and the view's offset into it, in elements.
struct Storage {
  void* address;
  int64_t offset;
};

Storage storage_at(uintptr_t first_element, int64_t width) {
  const uintptr_t misalignment = first_element % kTensorAlignment;
  return {reinterpret_cast<void*>(first_element - misalignment), static_cast<int64_t>(misalignment) / width};
}

AclTensor* describe(const Operand& operand, const Storage& storage) {
  int64_t elements = storage.offset + 1;
  for (size_t i = 0; i < operand.dims.size(); ++i) elements += (operand.dims[i] - 1) * operand.strides[i];
  AclTensor* tensor =
      runtime().aclCreateTensor(operand.dims.data(), operand.dims.size(), operand.dtype, operand.strides.data(),
                                storage.offset, kAclFormatNd, &elements, 1, storage.address);
  check_created(tensor, "aclCreateTensor");
  return tensor;
}

void describe_all(const std::vector<Operand>& operands, std::vector<AclTensor*>& to, std::vector<AclTensorList*>& lists,
                  const Addresses& addresses) {
  for (const Operand& operand : operands) {
    to.push_back(nullptr);
    if (!operand.present) continue;
    AclTensor* tensor = describe(operand, storage_at(addresses.first_element(operand), element_bytes(operand.dtype)));
    to.back() = tensor;
    if (!operand.in_list) continue;
    AclTensorList* list = runtime().aclCreateTensorList(&tensor, 1);
    check_created(list, "aclCreateTensorList");
    lists.push_back(list);
    to.back() = nullptr;
  }
}

Descriptors describe_step(const Step& step, const Addresses& addresses) {
  Descriptors tensors;
  describe_all(step.inputs, tensors.in, tensors.lists, addresses);
  describe_all(step.outputs, tensors.out, tensors.lists, addresses);
  return tensors;
}

// The addresses that a step's descriptors would have.
std::vector<uintptr_t> addresses_of(const Step& step, const Addresses& addresses) {
  std::vector<uintptr_t> result;
  for (const auto* side : {&step.inputs, &step.outputs}) {
    for (const Operand& operand : *side) result.push_back(operand.present ? addresses.first_element(operand) : 0);
  }
  return result;
}

// Whether plan_prepare knows every address.
bool final_in_prepare(const Step& step) {
  for (const auto* side : {&step.inputs, &step.outputs}) {
    for (const Operand& operand : *side) {
      if (operand.present && (operand.place == Place::workspace || operand.place == Place::record)) return false;
    }
  }
  return true;
}

}  // namespace

Descriptors::Descriptors(Descriptors&& other) noexcept
    : in(std::exchange(other.in, {})),
      out(std::exchange(other.out, {})),
      lists(std::exchange(other.lists, {})),
      scalars(std::exchange(other.scalars, {})) {}

Descriptors& Descriptors::operator=(Descriptors&& other) noexcept {
  destroy();
  in = std::exchange(other.in, {});
  out = std::exchange(other.out, {});
  lists = std::exchange(other.lists, {});
  scalars = std::exchange(other.scalars, {});
  return *this;
}

void Descriptors::destroy() {
  for (const auto* side : {&in, &out}) {
    for (const AclTensor* tensor : *side) {
      if (tensor != nullptr) runtime().aclDestroyTensor(tensor);
    }
  }
  for (const AclTensorList* list : lists) runtime().aclDestroyTensorList(list);
  for (const AclScalar* scalar : scalars) runtime().aclDestroyScalar(scalar);
  scalars.clear();
  forget();
}

void Descriptors::forget() {
  in.clear();
  out.clear();
  lists.clear();
}

int64_t element_bytes(int32_t dtype) {
  switch (dtype) {
    case kAclFloat16:
    case kAclBf16:
      return 2;
    case kAclFloat:
    case kAclInt32:
      return 4;
    case kAclDouble:
    case kAclInt64:
      return 8;
    default:
      return 1;
  }
}

int64_t element_count(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

Dims contiguous_strides(const Dims& dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return strides;
}

Operand reshaped(Operand operand, Dims dims) {
  operand.strides = contiguous_strides(dims);
  operand.dims = std::move(dims);
  return operand;
}

Operand rows(Operand operand, int64_t first, int64_t count) {
  const int64_t row_bytes = operand.strides[0] * element_bytes(operand.dtype);
  operand.byte_offset += first * row_bytes;
  operand.dims[0] = count;
  return operand;
}

Operand shifted(Operand operand, int64_t first, int64_t count) {
  operand.byte_offset += first * operand.strides[0] * element_bytes(operand.dtype);
  operand.dims = {count};
  return operand;
}

uintptr_t Addresses::first_element(const Operand& operand) const {
  void* start = nullptr;
  switch (operand.place) {
    case Place::workspace:
      start = workspace;
      break;
    case Place::input:
      start = sdk::data_of(run->input(operand.index));
      break;
    case Place::output:
      start = sdk::data_of(run->output(operand.index));
      break;
    case Place::fixed:
      start = operand.fixed;
      break;
    case Place::record:
      start = record;
      break;
  }
  return reinterpret_cast<uintptr_t>(start) + static_cast<uintptr_t>(operand.byte_offset);
}

// A step and what phase 1 left of it.
struct Program::Prepared {
  Step step;
  Descriptors tensors;              // of the executor
  AclExecutor* executor = nullptr;  // repeatable, or made for one run at final_addresses
  bool repeatable = false;
  std::vector<uintptr_t> final_addresses;
  uint64_t workspace_bytes = 0;

  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() { discard(); }
  void discard() {
    // A repeatable executor destroys the tensors it holds with itself. For one that never ran the tensors go first: the
    // order that is known to be safe.
    if (repeatable)
      tensors.forget();
    else
      tensors.destroy();
    if (executor != nullptr) runtime().aclDestroyAclOpExecutor(std::exchange(executor, nullptr));
  }
};

Program::Program(const sdk::Run& example) : example_(&example) {}

Program::~Program() {
  steps_.clear();  // executors before the scalars that they were made from
  for (const AclScalar* scalar : scalars_) runtime().aclDestroyScalar(scalar);
  for (const AclIntArray* array : arrays_) runtime().aclDestroyIntArray(array);
}

Operand Program::scratch(int32_t dtype, Dims dims) {
  Operand operand;
  operand.byte_offset = scratch_used_;
  operand.dtype = dtype;
  operand.strides = contiguous_strides(dims);
  operand.dims = std::move(dims);
  scratch_used_ += round_up(element_count(operand.dims) * element_bytes(dtype));
  scratch_bytes_ = std::max(scratch_bytes_, scratch_used_);
  return operand;
}

void Program::add(Step step) {
  steps_.push_back(std::make_unique<Prepared>());
  steps_.back()->step = std::move(step);
}

namespace {
AclScalar* created(AclScalar* scalar) {
  check_created(scalar, "aclCreateScalar");
  return scalar;
}
}  // namespace

AclScalar* Program::scalar(float value) {
  return scalars_.emplace_back(created(runtime().aclCreateScalar(&value, kAclFloat)));
}
AclScalar* Program::scalar(double value) {
  return scalars_.emplace_back(created(runtime().aclCreateScalar(&value, kAclDouble)));
}
AclScalar* Program::scalar(int64_t value) {
  return scalars_.emplace_back(created(runtime().aclCreateScalar(&value, kAclInt64)));
}

AclIntArray* Program::ints(const Dims& values) {
  AclIntArray* array = runtime().aclCreateIntArray(values.data(), values.size());
  check_created(array, "aclCreateIntArray");
  return arrays_.emplace_back(array);
}

void Program::seal() {
  for (const auto& step : steps_) {
    if (step->step.begin) prepare(*step, *example_);
  }
  example_ = nullptr;
}

void Program::prepare_again(const sdk::Run& run) {
  for (const auto& step : steps_) {
    if (step->repeatable || step->final_addresses.empty()) continue;
    const bool waiting = step->executor != nullptr;
    if (waiting && step->final_addresses == addresses_of(step->step, {nullptr, &run, nullptr})) continue;
    prepare(*step, run);
  }
}

void Program::prepare(Prepared& prepared, const sdk::Run& run) {
  const Runtime& r = runtime();
  Step& step = prepared.step;
  prepared.discard();
  // The workspace and the record are not known yet; their alignment is, which is all that a descriptor fixes.
  const Addresses addresses{nullptr, &run, nullptr};
  prepared.tensors = describe_step(step, addresses);
  check(step.begin(prepared.tensors, run.tag(), &prepared.workspace_bytes, &prepared.executor), step.name);
  // Here and not in seal: phase 1 may ask for more when it is repeated for other addresses.
  operator_bytes_ = std::max(operator_bytes_, prepared.workspace_bytes);
  if (step.rebindable && r.aclSetAclOpExecutorRepeatable(prepared.executor) == 0) {
    prepared.repeatable = true;
  } else if (final_in_prepare(step)) {
    prepared.final_addresses = addresses_of(step, addresses);
  } else {
    prepared.discard();
  }
}

void Program::enqueue(Stream& stream, const sdk::Run& run) {
  const CurrentContext current(stream.context());
  const bool capturing = run.is_capturing();
  const Addresses addresses{run.workspace(), &run, writes_record ? stream.error_record(capturing) : nullptr};
  stream.enqueue_work(capturing, [&] {
    for (const auto& prepared : steps_) {
      if (prepared->repeatable && !capturing)
        run_repeatable(*prepared, addresses, stream.native());
      else
        run_once(*prepared, addresses, stream.native(), run.tag());
    }
  });
}

void Program::run_repeatable(Prepared& prepared, const Addresses& addresses, AclStream stream) {
  const Step& step = prepared.step;
  const auto bind = [&](const std::vector<Operand>& operands, const std::vector<AclTensor*>& tensors, auto set,
                        const char* call) {
    for (size_t i = 0; i < operands.size(); ++i) {
      if (tensors[i] == nullptr) continue;
      const Operand& operand = operands[i];
      const uintptr_t first = addresses.first_element(operand);
      check(set(prepared.executor, i, tensors[i], storage_at(first, element_bytes(operand.dtype)).address), call);
    }
  };
  bind(step.inputs, prepared.tensors.in, runtime().aclSetInputTensorAddr, "aclSetInputTensorAddr");
  bind(step.outputs, prepared.tensors.out, runtime().aclSetOutputTensorAddr, "aclSetOutputTensorAddr");
  check(step.run(static_cast<std::byte*>(addresses.workspace) + scratch_bytes_, prepared.workspace_bytes,
                 prepared.executor, stream),
        step.name);
}

void Program::run_once(Prepared& prepared, const Addresses& addresses, AclStream stream, uint32_t tag) {
  const Step& step = prepared.step;
  if (!step.begin) {
    const Operand& target = step.outputs[0];
    const auto bytes = static_cast<size_t>(element_count(target.dims) * element_bytes(target.dtype));
    void* const first = reinterpret_cast<void*>(addresses.first_element(target));
    check(runtime().aclrtMemsetAsync(first, bytes, step.byte, bytes, stream), "aclrtMemsetAsync");
    return;
  }
  Descriptors tensors;
  AclExecutor* executor = nullptr;
  uint64_t bytes = prepared.workspace_bytes;
  const bool is_made = prepared.executor != nullptr && !prepared.repeatable;
  if (is_made && prepared.final_addresses == addresses_of(step, addresses)) {
    tensors = std::move(prepared.tensors);
    executor = std::exchange(prepared.executor, nullptr);
  } else {
    tensors = describe_step(step, addresses);
    check(step.begin(tensors, tag, &bytes, &executor), step.name);
  }
  if (bytes > prepared.workspace_bytes) {
    tensors.destroy();
    runtime().aclDestroyAclOpExecutor(executor);
    throw sdk::Error(RLK_INTERNAL, sdk::format("%s asked for %llu bytes of workspace in plan_prepare and for %llu now",
                                               step.name, static_cast<unsigned long long>(prepared.workspace_bytes),
                                               static_cast<unsigned long long>(bytes)));
  }
  // Phase 2 consumes the executor; the tensors are ours.
  check(step.run(static_cast<std::byte*>(addresses.workspace) + scratch_bytes_, bytes, executor, stream), step.name);
}

}  // namespace rlk::ascend
