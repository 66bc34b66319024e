// When a program must be built anew, and which calls every operator declines.
#include "plan.hpp"

#include <algorithm>
#include <cstdlib>

namespace rlk::ascend {

namespace {
using sdk::Dtype;
constexpr sdk::DtypeMap<AclDtype, 9> kDtypes = {{{{Dtype::f32, kAclFloat},
                                                  {Dtype::bf16, kAclBf16},
                                                  {Dtype::f16, kAclFloat16},
                                                  {Dtype::f64, kAclDouble},
                                                  {Dtype::i32, kAclInt32},
                                                  {Dtype::i64, kAclInt64},
                                                  {Dtype::u8, kAclUint8},
                                                  {Dtype::i8, kAclInt8},
                                                  {Dtype::boolean, kAclBool}}}};
}  // namespace

int32_t acl_dtype(sdk::Dtype dtype) {
  return kDtypes.at(dtype);
}

Operand operand_of(Place place, uint32_t index, const rlk_tensor& tensor) {
  Operand operand;
  operand.place = place;
  operand.index = index;
  operand.dtype = acl_dtype(sdk::dtype_of(tensor));
  operand.dims.assign(tensor.shape, tensor.shape + tensor.ndim);
  operand.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 1) operand.strides[static_cast<size_t>(i)] = 1;  // any is legal, none is used
  }
  if (tensor.ndim == 0) {
    operand.dims = {1};
    operand.strides = {1};
  }
  return operand;
}

sdk::Refusal decline_views(const rlk_call_desc& desc) {
  const auto look = [](const char* kind, uint32_t count, const rlk_tensor* const* tensors) {
    std::string problem;
    for (uint32_t i = 0; i < count && problem.empty(); ++i) {
      const rlk_tensor* tensor = tensors[i];
      if (tensor == nullptr) continue;
      if (tensor->alignment * 8 < tensor->dtype.bits) {
        problem = sdk::format("%s %u is aligned to %u bytes, less than its elements", kind, i, tensor->alignment);
      }
      for (int32_t d = 0; d < tensor->ndim; ++d) {
        if (tensor->shape[d] > 1 && tensor->strides[d] < 0) {
          problem = sdk::format("%s %u has stride %lld in dimension %d; aclnn views run forward only", kind, i,
                                static_cast<long long>(tensor->strides[d]), d);
        }
      }
    }
    return problem;
  };
  std::string problem = look("input", desc.n_inputs, desc.inputs);
  if (problem.empty()) problem = look("output", desc.n_outputs, desc.outputs);
  if (problem.empty()) return std::nullopt;
  return sdk::Support::no("STRIDES", problem, RLK_SUPPORT_IF_CONTIGUOUS);
}

sdk::Refusal decline_missing(const std::string& names) {
  if (names.empty()) return std::nullopt;
  return sdk::Support::no("RUNTIME_SYMBOL_MISSING", "the installed CANN has no " + names);
}

sdk::Refusal decline_other_devices(const Device& device, const char* call) {
  const Family family = family_of(device.soc());
  if (family == Family::atlas_a2 || family == Family::atlas_a3) return std::nullopt;
  return sdk::Support::no("DEVICE", device.soc() + ": " + call + " runs on Ascend910B1 to B4 and Ascend910_93");
}

int64_t workspace_limit() {
  static const int64_t limit = [] {
    const char* text = std::getenv("RLK_ASCEND_WORKSPACE_MB");
    const long long megabytes = text != nullptr ? std::atoll(text) : 0;
    return (megabytes > 0 ? static_cast<int64_t>(megabytes) : 256) << 20;
  }();
  return limit;
}

Constants::~Constants() {
  if (memory_ == nullptr) return;
  try {
    device_.deallocate(RLK_MEMORY_DEVICE, memory_);
  } catch (const sdk::Error&) {
    // The context is gone and the memory with it.
  }
}

Operand Constants::add(const void* value, size_t bytes, int32_t dtype) {
  if (memory_ == nullptr) memory_ = static_cast<std::byte*>(device_.allocate(RLK_MEMORY_DEVICE, kCapacity));
  if (used_ + kTensorAlignment > kCapacity) throw sdk::Error(RLK_INTERNAL, "too many constants in a plan");
  const CurrentContext current(device_.context());
  check(copy_now(memory_ + used_, value, bytes, kCopyToDevice), "aclrtMemcpy");
  Operand operand;
  operand.place = Place::fixed;
  operand.fixed = memory_ + used_;
  operand.dtype = dtype;
  operand.dims = {1};
  operand.strides = {1};
  used_ += kTensorAlignment;
  return operand;
}

ProgramPlan::ProgramPlan(Device& device, uint32_t n_inputs, uint32_t n_outputs, uint32_t n_symbols)
    : device_(device), n_inputs_(n_inputs), n_outputs_(n_outputs), n_symbols_(n_symbols) {
  // Executors carry addresses from prepare to enqueue, so one execution at a time, each with its own prepare. Captured
  // steps have executors of their own: the graph needs no more of the plan than its constants.
  flags = RLK_PLAN_PREPARE | RLK_PLAN_CAPTURABLE | RLK_PLAN_CAPTURED_APART;
  workspace_bound = std::numeric_limits<uint64_t>::max();
}

std::vector<int64_t> ProgramPlan::key_of(const sdk::Run& run) const {
  std::vector<int64_t> key;
  for (uint32_t i = 0; i < n_symbols_; ++i) key.push_back(run.symbol(i));
  const auto append = [&key](const rlk_tensor* tensor) {
    key.push_back(tensor != nullptr);
    if (tensor == nullptr) return;
    // A descriptor fixes how far the first element lies behind an aligned address.
    key.push_back(static_cast<int64_t>(reinterpret_cast<uintptr_t>(sdk::data_of(tensor)) % kTensorAlignment));
    key.insert(key.end(), tensor->shape, tensor->shape + tensor->ndim);
    key.insert(key.end(), tensor->strides, tensor->strides + tensor->ndim);
  };
  for (uint32_t i = 0; i < n_inputs_; ++i) append(run.input(i));
  for (uint32_t i = 0; i < n_outputs_; ++i) append(run.output(i));
  append_key(key, run);
  return key;
}

uint64_t ProgramPlan::prepare(const sdk::Run& run) {
  const CurrentContext current(device_.context());
  std::vector<int64_t> key = key_of(run);
  if (program_ != nullptr && key == key_) {
    program_->prepare_again(run);
    return program_->workspace_bytes();
  }
  program_.reset();
  auto program = std::make_unique<Program>(run);
  Builder builder(*program);
  build(builder, run);
  program->seal();
  program_ = std::move(program);
  key_ = std::move(key);
  return program_->workspace_bytes();
}

void ProgramPlan::enqueue(sdk::Stream& stream, const sdk::Run& run) {
  if (program_ == nullptr || key_of(run) != key_) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, "plan_enqueue with sizes or strides that plan_prepare was not given");
  }
  if (run.workspace_bytes() < program_->workspace_bytes()) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, sdk::format("a workspace of %llu bytes; plan_prepare asked for %llu",
                                                       static_cast<unsigned long long>(run.workspace_bytes()),
                                                       static_cast<unsigned long long>(program_->workspace_bytes())));
  }
  program_->enqueue(static_cast<Stream&>(stream), run);
}

}  // namespace rlk::ascend
