// A libcudnn.so.9 without a device: descriptors of attention's graphs as cuDNN's backend API has them, strict about
// their attributes (which, of what type, how many, before what), and executions on the simulated driver's streams.
// Written from the documented contract; what it does not simulate it refuses. Variables, beside those of the driver:
//   RLK_FAKE_CUDNN_VERSION       what cudnnGetVersion says (91900)
//   RLK_FAKE_CUDNN_BROKEN_ENGINE set: the first engine's kernel does not compile
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "graph.hpp"
#include "tests/fakes/runtime/bridge.hpp"

using namespace fake;
using fake_cudnn::Operation;
using fake_cudnn::OperationGraph;
using fake_cudnn::Tensor;

namespace {

constexpr int kSuccess = 0, kBadParam = 2000, kNullPointer = 2002, kNotFinalized = 2004, kOutOfBound = 2005,
              kDuplicate = 2009, kAttributeType = 2010, kNotSupported = 3000, kInternal = 4000, kExecutionFailed = 5000;
// CUDNN_TYPE_*
constexpr int kHandle = 0, kDataType = 1, kBoolean = 2, kInt64 = 3, kVoidPointer = 6, kHeuristicMode = 8, kNote = 11,
              kPointwiseMode = 14, kDescriptor = 15, kReductionOperator = 18;
// CUDNN_BACKEND_*_DESCRIPTOR
constexpr int kPointwise = 0, kEngine = 2, kConfiguration = 3, kHeuristic = 4, kPlan = 5, kPointwiseOperation = 13,
              kOperationGraph = 15, kPack = 16, kTensor = 17, kMatmul = 18, kMatmulOperation = 19, kReduction = 21,
              kReductionOperation = 22, kReshapeOperation = 31, kAnyOperation = -1;
constexpr int kEngines = 2, kModeA = 3, kNondeterministic = 4;
constexpr int64_t kWorkspace = 640;  // that every kernel wants

struct Rule {
  int descriptor, attribute, type;
  int64_t least, most;
  bool is_required;
  int child = -2;  // the kind of a descriptor that is the value
};
constexpr Rule kRules[] = {
    {kPointwise, 0, kPointwiseMode, 1, 1, true},
    {kPointwise, 1, kDataType, 1, 1, true},
    {kPointwise, 9, kInt64, 1, 1, false},
    {kMatmul, 1500, kDataType, 1, 1, true},
    {kReduction, 1600, kReductionOperator, 1, 1, true},
    {kReduction, 1601, kDataType, 1, 1, true},
    {kTensor, 900, kInt64, 1, 1, true},
    {kTensor, 901, kDataType, 1, 1, true},
    {kTensor, 902, kInt64, 1, 8, true},
    {kTensor, 903, kInt64, 1, 8, true},
    {kTensor, 906, kInt64, 1, 1, true},
    {kTensor, 907, kBoolean, 1, 1, false},
    {kTensor, 908, kBoolean, 1, 1, false},
    {kPointwiseOperation, 750, kDescriptor, 1, 1, true, kPointwise},
    {kPointwiseOperation, 751, kDescriptor, 1, 1, true, kTensor},
    {kPointwiseOperation, 752, kDescriptor, 1, 1, false, kTensor},
    {kPointwiseOperation, 753, kDescriptor, 1, 1, true, kTensor},
    {kPointwiseOperation, 758, kDescriptor, 1, 1, false, kTensor},
    {kMatmulOperation, 1520, kDescriptor, 1, 1, true, kTensor},
    {kMatmulOperation, 1521, kDescriptor, 1, 1, true, kTensor},
    {kMatmulOperation, 1522, kDescriptor, 1, 1, true, kTensor},
    {kMatmulOperation, 1523, kDescriptor, 1, 1, true, kMatmul},
    {kReductionOperation, 1610, kDescriptor, 1, 1, true, kTensor},
    {kReductionOperation, 1611, kDescriptor, 1, 1, true, kTensor},
    {kReductionOperation, 1612, kDescriptor, 1, 1, true, kReduction},
    {kReshapeOperation, 2200, kDescriptor, 1, 1, true, kTensor},
    {kReshapeOperation, 2201, kDescriptor, 1, 1, true, kTensor},
    {kOperationGraph, 800, kHandle, 1, 1, false},
    {kOperationGraph, 801, kDescriptor, 1, 64, true, kAnyOperation},
    {kHeuristic, 200, kHeuristicMode, 1, 1, true},
    {kHeuristic, 201, kDescriptor, 1, 1, true, kOperationGraph},
    {kPlan, 400, kHandle, 1, 1, true},
    {kPlan, 401, kDescriptor, 1, 1, true, kConfiguration},
    {kPack, 1000, kInt64, 1, 64, true},
    {kPack, 1001, kVoidPointer, 1, 64, true},
    {kPack, 1003, kVoidPointer, 1, 1, false},
};

struct Context {
  int device;
  void* stream = nullptr;
  std::atomic<bool> busy = false;
};
struct Descriptor {
  int kind;
  bool is_final = false;
  struct Value {
    int64_t count = 0;
    std::vector<std::byte> bytes;
    std::vector<std::shared_ptr<Descriptor>> children;
  };
  std::map<int, Value> values;
  // What finalizing made of it.
  std::shared_ptr<const Tensor> tensor;
  std::shared_ptr<const OperationGraph> graph;
  int engine = 0;

  template <class T>
  T number(int attribute, T otherwise = {}) const {
    const auto found = values.find(attribute);
    if (found != values.end()) std::memcpy(&otherwise, found->second.bytes.data(), sizeof(T));
    return otherwise;
  }
  template <class T>
  std::vector<T> numbers(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> all(static_cast<size_t>(found->second.count));
    std::memcpy(all.data(), found->second.bytes.data(), found->second.bytes.size());
    return all;
  }
  std::shared_ptr<Descriptor> child(int attribute) const {
    const auto found = values.find(attribute);
    return found == values.end() ? nullptr : found->second.children[0];
  }
};

FAKE_HANDLES(Context, contexts, 24, "cuDNN handle")
FAKE_HANDLES(Descriptor, descriptors, 25, "cuDNN descriptor")

thread_local std::string last_error;
int refuse(int status, const std::string& reason) {
  last_error += "Warning: CUDNN_STATUS_" + std::to_string(status) +
                (status > kNotSupported && status < kInternal ? "_NOT_SUPPORTED_" : "") + "; Reason: " + reason + "\n";
  return status;
}

// A handle has one user at a time.
class InUse {
public:
  InUse(void* handle, const char* call) : context_(contexts().get(handle, call)) {
    if (context_->busy.exchange(true))
      violation("SHARED_HANDLE", std::string(call) + ": another thread uses the handle");
    if (context_->device != current_device())
      violation("WRONG_DEVICE", std::string(call) + ": a handle of another device");
  }
  ~InUse() { context_->busy = false; }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;
  Context* operator->() const { return context_.get(); }

private:
  const std::shared_ptr<Context> context_;
};

size_t bytes_of(int type) {
  return type == kBoolean ? 1
         : type == kDataType || type == kHeuristicMode || type == kPointwiseMode || type == kReductionOperator ||
                 type == kNote
             ? 4
             : 8;
}

bool is_operation(int kind) {
  return kind == kPointwiseOperation || kind == kMatmulOperation || kind == kReductionOperation ||
         kind == kReshapeOperation;
}

int finalize_tensor(Descriptor& of) {
  auto made = std::make_shared<Tensor>();
  const auto dims = of.numbers<int64_t>(902), strides = of.numbers<int64_t>(903);
  if (dims.size() != strides.size()) return refuse(kBadParam, "dimensions and strides of different numbers");
  if (dims.size() != 4) return refuse(kNotSupported, "simulated: tensors of 4 dimensions");
  for (size_t d = 0; d < 4; ++d) {
    if (dims[d] < 1 || strides[d] < 1) return refuse(kBadParam, "a dimension or a stride below 1");
    made->dims[d] = dims[d];
    made->strides[d] = strides[d];
  }
  made->id = of.number<int64_t>(906);
  made->alignment = of.number<int64_t>(900);
  made->dtype = of.number<int>(901);
  made->is_virtual = of.number<bool>(907);
  made->is_by_value = of.number<bool>(908);
  if (made->is_virtual && made->is_by_value) return refuse(kBadParam, "a value of the host that is an intermediate");
  if (made->alignment < 1 || (made->alignment & (made->alignment - 1)) != 0) return refuse(kBadParam, "alignment");
  const bool is_known = made->dtype == fake_cudnn::kFloat || made->dtype == fake_cudnn::kHalf ||
                        made->dtype == fake_cudnn::kInt32 || made->dtype == fake_cudnn::kBfloat16 ||
                        made->dtype == fake_cudnn::kBoolean;
  if (!is_known) return refuse(kNotSupported, "simulated: no such data type");
  of.tensor = std::move(made);
  return kSuccess;
}

Operation operation_of(const Descriptor& of) {
  const auto tensor = [&](int attribute) {
    const auto child = of.child(attribute);
    return child != nullptr ? child->tensor : nullptr;
  };
  switch (of.kind) {
    case kMatmulOperation:
      return {fake_cudnn::Kind::matmul, 0, -1, tensor(1520), tensor(1521), nullptr, tensor(1522)};
    case kReductionOperation:
      return {fake_cudnn::Kind::reduction,
              of.child(1612)->number<int>(1600),
              -1,
              tensor(1610),
              nullptr,
              nullptr,
              tensor(1611)};
    case kReshapeOperation:
      return {fake_cudnn::Kind::reshape, 0, -1, tensor(2200), nullptr, nullptr, tensor(2201)};
    default: {
      const auto how = of.child(750);
      return {fake_cudnn::Kind::pointwise,
              how->number<int>(0),
              how->number<int64_t>(9, -1),
              tensor(751),
              tensor(752),
              tensor(758),
              tensor(753)};
    }
  }
}

int finalize_graph(Descriptor& of) {
  auto made = std::make_shared<OperationGraph>();
  for (const auto& operation : of.values[801].children) {
    const std::string problem = made->add(operation_of(*operation));
    if (!problem.empty()) return refuse(problem.find("number") != std::string::npos ? kDuplicate : kBadParam, problem);
  }
  of.graph = std::move(made);
  return kSuccess;
}

int finalize_heuristic(Descriptor& of) {
  if (of.number<int>(200) != kModeA) return refuse(kNotSupported, "simulated: heuristics of mode A");
  of.graph = of.child(201)->graph;
  int status = kSuccess;
  const std::string reason = of.graph->unsupported(&status);
  return reason.empty() ? kSuccess : refuse(status, reason);
}

int finalize_plan(Descriptor& of) {
  const auto configuration = of.child(401);
  if (configuration->engine == 0 && std::getenv("RLK_FAKE_CUDNN_BROKEN_ENGINE") != nullptr)
    return refuse(kInternal, "the kernel does not compile");
  of.graph = configuration->graph;
  return kSuccess;
}

int finalize(Descriptor& of) {
  if (of.is_final) return refuse(kBadParam, "finalized twice");
  for (const Rule& rule : kRules) {
    if (rule.descriptor == of.kind && rule.is_required && of.values.count(rule.attribute) == 0)
      return refuse(kBadParam, "attribute " + std::to_string(rule.attribute) + " is not set");
  }
  if (of.kind == kTensor) return finalize_tensor(of);
  if (of.kind == kOperationGraph) return finalize_graph(of);
  if (of.kind == kHeuristic) return finalize_heuristic(of);
  if (of.kind == kPlan) return finalize_plan(of);
  if (of.kind == kEngine || of.kind == kConfiguration) return refuse(kNotSupported, "simulated: engines are asked for");
  if (of.kind == kPack && of.values[1000].count != of.values[1001].count)
    return refuse(kBadParam, "numbers and pointers of different counts");
  return kSuccess;
}

// One execution: addresses of the device, and copies of the values that the host passes.
struct Work {
  std::shared_ptr<const OperationGraph> graph;
  std::map<int64_t, const void*> addresses;
  std::map<int64_t, std::array<std::byte, 8>> values;
  void* workspace;

  int run() {
    std::memset(bytes_at(workspace), 0xee, kWorkspace);
    std::map<int64_t, std::byte*> memory;
    for (const auto& [id, address] : addresses) memory[id] = bytes_at(address);
    for (auto& [id, value] : values) memory[id] = value.data();
    graph->run(memory);
    return 0;
  }
};

}  // namespace

#define API FAKE_EXPORT int
#define ENTER(name)                                                  \
  if (enter(#name, Needs::kDevice) != 0) {                           \
    return refuse(kExecutionFailed, "a call that the driver fails"); \
  }

FAKE_EXPORT size_t cudnnGetVersion() {
  const char* text = std::getenv("RLK_FAKE_CUDNN_VERSION");
  return text != nullptr ? static_cast<size_t>(std::atol(text)) : 91900;
}
FAKE_EXPORT const char* cudnnGetErrorString(int) {
  return "CUDNN_STATUS_EMULATED";
}
FAKE_EXPORT void cudnnGetLastErrorString(char* text, size_t bytes) {
  if (bytes == 0) return;
  const size_t length = std::min(bytes - 1, last_error.size());
  std::memcpy(text, last_error.data(), length);
  text[length] = 0;
  last_error.clear();
}
API cudnnCreate(void** handle) {
  ENTER(cudnnCreate);
  auto made = std::make_shared<Context>();
  made->device = current_device();
  return *handle = contexts().add(std::move(made)), kSuccess;
}
API cudnnDestroy(void* handle) {
  ENTER(cudnnDestroy);
  return contexts().take(handle, "cudnnDestroy"), kSuccess;
}
API cudnnSetStream(void* handle, void* stream) {
  ENTER(cudnnSetStream);
  const InUse use(handle, "cudnnSetStream");
  return use->stream = stream, kSuccess;
}
API cudnnBackendCreateDescriptor(int kind, void** out) {
  const bool is_known =
      kind == kEngine || kind == kConfiguration ||
      std::any_of(std::begin(kRules), std::end(kRules), [kind](const Rule& rule) { return rule.descriptor == kind; });
  if (!is_known) return refuse(kNotSupported, "simulated: no descriptor of kind " + std::to_string(kind));
  auto made = std::make_shared<Descriptor>();
  made->kind = kind;
  return *out = descriptors().add(std::move(made)), kSuccess;
}
API cudnnBackendDestroyDescriptor(void* descriptor) {
  return descriptors().take(descriptor, "cudnnBackendDestroyDescriptor"), kSuccess;
}
API cudnnBackendSetAttribute(void* descriptor, int attribute, int type, int64_t count, const void* values) {
  Descriptor& of = *descriptors().get(descriptor, "cudnnBackendSetAttribute");
  if (of.is_final) return refuse(kBadParam, "an attribute of a finalized descriptor");
  if (values == nullptr) return refuse(kNullPointer, "no values");
  for (const Rule& rule : kRules) {
    if (rule.descriptor != of.kind || rule.attribute != attribute) continue;
    if (type != rule.type)
      return refuse(kAttributeType, "attribute " + std::to_string(attribute) + " has another type");
    if (count < rule.least || count > rule.most) return refuse(kOutOfBound, "a count of values");
    Descriptor::Value value;
    value.count = count;
    value.bytes.resize(static_cast<size_t>(count) * bytes_of(type));
    std::memcpy(value.bytes.data(), values, value.bytes.size());
    for (int64_t i = 0; type == kDescriptor && i < count; ++i) {
      auto child = descriptors().get(static_cast<void* const*>(values)[i], "cudnnBackendSetAttribute");
      const bool fits = rule.child == kAnyOperation ? is_operation(child->kind) : child->kind == rule.child;
      if (!fits) return refuse(kBadParam, "a descriptor of another kind");
      if (!child->is_final) return refuse(kNotFinalized, "a descriptor that is not finalized");
      value.children.push_back(std::move(child));
    }
    if (type == kHandle) contexts().get(*static_cast<void* const*>(values), "cudnnBackendSetAttribute");
    return of.values[attribute] = std::move(value), kSuccess;
  }
  return refuse(kNotSupported, "simulated: no attribute " + std::to_string(attribute) + " of this descriptor");
}
API cudnnBackendFinalize(void* descriptor) {
  Descriptor& of = *descriptors().get(descriptor, "cudnnBackendFinalize");
  const int status = finalize(of);
  of.is_final = status == kSuccess;
  return status;
}
API cudnnBackendGetAttribute(void* descriptor, int attribute, int type, int64_t requested, int64_t* count,
                             void* values) {
  const char* const call = "cudnnBackendGetAttribute";
  Descriptor& of = *descriptors().get(descriptor, call);
  if (!of.is_final) return refuse(kNotFinalized, "an attribute of what is not finalized");
  const auto give = [&](int64_t i, int kind) {
    const auto to = descriptors().get(static_cast<void**>(values)[i], call);
    if (to->kind != kind || to->is_final) return refuse(kBadParam, "the place of an answer is another descriptor");
    to->is_final = true;
    to->graph = of.graph;
    to->engine = of.kind == kHeuristic ? static_cast<int>(i) : of.engine;
    return kSuccess;
  };
  if (of.kind == kHeuristic && attribute == 202 && type == kDescriptor) {
    *count = kEngines;
    for (int64_t i = 0; i < std::min<int64_t>(requested, kEngines); ++i) {
      if (const int status = give(i, kConfiguration); status != kSuccess) return status;
    }
    return kSuccess;
  }
  if (of.kind == kConfiguration && attribute == 300 && type == kDescriptor && requested == 1)
    return *count = 1, give(0, kEngine);
  if (of.kind == kEngine && attribute == 1303 && type == kNote) {
    *count = of.graph->is_deterministic() ? 0 : 1;
    if (*count > 0 && requested > 0) std::memcpy(values, &kNondeterministic, sizeof(int));
    return kSuccess;
  }
  if (of.kind == kPlan && attribute == 402 && type == kInt64 && requested == 1)
    return *count = 1, std::memcpy(values, &kWorkspace, sizeof(kWorkspace)), kSuccess;
  return refuse(kNotSupported, "simulated: nothing to say of attribute " + std::to_string(attribute));
}
API cudnnBackendExecute(void* handle, void* plan_handle, void* pack_handle) {
  ENTER(cudnnBackendExecute);
  const char* const call = "cudnnBackendExecute";
  const InUse use(handle, call);
  const Descriptor &plan = *descriptors().get(plan_handle, call), &pack = *descriptors().get(pack_handle, call);
  if (plan.kind != kPlan || pack.kind != kPack || !plan.is_final || !pack.is_final)
    return refuse(kNotFinalized, "a plan or a variant pack that is not finalized");
  auto work = std::make_shared<Work>();
  work->graph = plan.graph;
  work->workspace = pack.number<void*>(1003);
  Command command;
  command.name = call;
  const auto claim = [&](const void* pointer, size_t bytes, size_t alignment) {
    require_device(pointer, bytes, call);
    require_aligned(pointer, alignment, call);
    const auto begin = reinterpret_cast<uintptr_t>(pointer);
    command.uses.push_back({begin, begin + bytes});
  };
  claim(work->workspace, kWorkspace, 16);
  const auto ids = pack.numbers<int64_t>(1000);
  const auto pointers = pack.numbers<const void*>(1001);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto found = plan.graph->tensors().find(ids[i]);
    if (found == plan.graph->tensors().end()) return refuse(kBadParam, "the graph has no tensor of this number");
    if (pointers[i] == nullptr) return refuse(kNullPointer, "tensor " + std::to_string(ids[i]) + " has no memory");
    const Tensor& tensor = *found->second;
    if (tensor.is_by_value) {
      std::memcpy(work->values[ids[i]].data(), pointers[i], tensor.element_bytes());
    } else {
      claim(pointers[i], tensor.span(), static_cast<size_t>(tensor.alignment));
      work->addresses[ids[i]] = pointers[i];
    }
  }
  if (work->addresses.size() + work->values.size() != plan.graph->tensors().size())
    return refuse(kBadParam, "tensors of the graph without memory, or named twice");
  command.run = [work] { return work->run(); };
  return enqueue(use->stream, call, std::move(command)) == 0 ? kSuccess : kExecutionFailed;
}
