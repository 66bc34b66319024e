// Descriptors of operations, the choice of an engine, and an execution.
#include "graph.hpp"

#include <algorithm>

namespace rlk::cudnn {

Descriptor::Descriptor(int type) {
  check(library().create_descriptor(type, &handle_), "creating a descriptor");
}

Descriptor::~Descriptor() {
  if (handle_ != nullptr) library().destroy_descriptor(handle_);
}

void Descriptor::set(int attribute, int type, int64_t count, const void* values) {
  const Status status = library().set_attribute(handle_, attribute, type, count, values);
  if (status != status::kSuccess) check(status, sdk::format("setting attribute %d", attribute).c_str());
}

void Descriptor::finalize(const char* what) {
  check(library().finalize(handle_), what);
}

Dims packed(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

Descriptor& Graph::make(int type) {
  return *descriptors_.emplace_back(std::make_unique<Descriptor>(type));
}

Descriptor& Graph::tensor(int64_t id, int type, const Dims& dims, const Dims& strides, bool is_virtual,
                          bool is_by_value) {
  Descriptor& made = make(descriptor::kTensor);
  made.set_int64(attribute::kTensorId, id);
  made.set_int(attribute::kTensorType, type::kDataType, type);
  made.set_int64(attribute::kTensorAlignment, 16);
  made.set(attribute::kTensorDimensions, type::kInt64, 4, dims.data());
  made.set(attribute::kTensorStrides, type::kInt64, 4, strides.data());
  made.set_bool(attribute::kTensorIsVirtual, is_virtual);
  if (is_by_value) made.set_bool(attribute::kTensorIsByValue, true);
  made.finalize("describing a tensor");
  return made;
}

Descriptor& Graph::tensor(int64_t id, int type, const Dims& dims, const Dims& strides) {
  ids_.push_back(id);
  return tensor(id, type, dims, strides, false, false);
}
Descriptor& Graph::intermediate(int type, const Dims& dims, const Dims& strides) {
  return tensor(next_id_++, type, dims, strides, true, false);
}
Descriptor& Graph::value(int64_t id, int type) {
  ids_.push_back(id);
  return tensor(id, type, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

void Graph::multiply(const Descriptor& a, const Descriptor& b, const Descriptor& product) {
  Descriptor& how = make(descriptor::kMatmul);
  how.set_int(attribute::kMatmulPrecision, type::kDataType, data::kFloat);
  how.finalize("describing a product");
  Descriptor& operation = make(descriptor::kMatmulOperation);
  operation.set(attribute::kMatmulA, a);
  operation.set(attribute::kMatmulB, b);
  operation.set(attribute::kMatmulC, product);
  operation.set(attribute::kMatmulHow, how);
  operation.finalize("describing a product");
  operations_.push_back(operation.get());
}

void Graph::pointwise(int mode, int precision, const Descriptor& x, const Descriptor* b, const Descriptor& y,
                      const Descriptor* condition, int64_t axis) {
  Descriptor& how = make(descriptor::kPointwise);
  how.set_int(attribute::kPointwiseMode, type::kPointwiseMode, mode);
  how.set_int(attribute::kPointwisePrecision, type::kDataType, precision);
  if (axis >= 0) how.set_int64(attribute::kPointwiseAxis, axis);
  how.finalize("describing an elementwise operation");
  Descriptor& operation = make(descriptor::kPointwiseOperation);
  operation.set(attribute::kPointwiseHow, how);
  operation.set(attribute::kPointwiseX, x);
  if (b != nullptr) operation.set(attribute::kPointwiseB, *b);
  if (condition != nullptr) operation.set(attribute::kPointwiseCondition, *condition);
  operation.set(attribute::kPointwiseY, y);
  operation.finalize("describing an elementwise operation");
  operations_.push_back(operation.get());
}

void Graph::reduce(int mode, const Descriptor& x, const Descriptor& y) {
  Descriptor& how = make(descriptor::kReduction);
  how.set_int(attribute::kReductionOperator, type::kReductionOperator, mode);
  how.set_int(attribute::kReductionPrecision, type::kDataType, data::kFloat);
  how.finalize("describing a reduction");
  Descriptor& operation = make(descriptor::kReductionOperation);
  operation.set(attribute::kReductionX, x);
  operation.set(attribute::kReductionY, y);
  operation.set(attribute::kReductionHow, how);
  operation.finalize("describing a reduction");
  operations_.push_back(operation.get());
}

void Graph::reshape(const Descriptor& x, const Descriptor& y) {
  Descriptor& operation = make(descriptor::kReshapeOperation);
  operation.set(attribute::kReshapeX, x);
  operation.set(attribute::kReshapeY, y);
  operation.finalize("describing a transposition");
  operations_.push_back(operation.get());
}

// cuDNN notes which engines give other bits from run to run.
bool Graph::is_deterministic(RawDescriptor configuration) {
  const Library& cudnn = library();
  Descriptor engine(descriptor::kEngine);
  RawDescriptor handle = engine.get();
  int notes[note::kMost] = {};
  int64_t count = 0;
  check(cudnn.get_attribute(configuration, attribute::kConfigurationEngine, type::kDescriptor, 1, &count, &handle),
        "asking for the engine");
  check(cudnn.get_attribute(engine.get(), attribute::kEngineNotes, type::kNumericalNote, note::kMost, &count, notes),
        "asking for the engine's notes");
  return std::find(notes, notes + count, int{note::kNondeterministic}) == notes + count;
}

void Graph::find_engines(bool deterministic_only) {
  const Library& cudnn = library();
  Descriptor& graph = make(descriptor::kOperationGraph);
  if (target_.handle != nullptr) graph.set(attribute::kGraphHandle, type::kHandle, 1, &target_.handle);
  graph.set(attribute::kGraphOperations, type::kDescriptor, static_cast<int64_t>(operations_.size()),
            operations_.data());
  const Status described = cudnn.finalize(graph.get());
  if (is_unsupported(described)) refuse("no attention engine");
  check(described, "describing the graph");

  Descriptor& heuristic = make(descriptor::kEngineHeuristic);
  heuristic.set(attribute::kHeuristicGraph, graph);
  heuristic.set_int(attribute::kHeuristicMode, type::kHeuristicMode, heuristic::kModeA);
  if (target_.properties != nullptr) heuristic.set(attribute::kHeuristicDevice, *target_.properties);
  const Status asked = cudnn.finalize(heuristic.get());
  if (is_unsupported(asked)) refuse("no attention engine");
  check(asked, "asking which engines there are");
  int64_t count = 0;
  check(cudnn.get_attribute(heuristic.get(), attribute::kHeuristicResults, type::kDescriptor, 0, &count, nullptr),
        "counting engines");
  std::vector<RawDescriptor> found;
  for (int64_t i = 0; i < count; ++i) found.push_back(make(descriptor::kEngineConfiguration).get());
  // cuDNN gives those that pass its support checks.
  check(cudnn.get_attribute(heuristic.get(), attribute::kHeuristicResults, type::kDescriptor, count, &count,
                            found.data()),
        "asking for engines");
  found.resize(static_cast<size_t>(count));
  if (found.empty()) refuse("no attention engine");
  for (RawDescriptor configuration : found) {
    if (!deterministic_only || is_deterministic(configuration)) configurations_.push_back(configuration);
  }
  if (configurations_.empty()) refuse("no deterministic attention engine");
}

void Graph::compile() {
  if (plan_ != nullptr) return;
  Status status = status::kSuccess;
  for (RawDescriptor configuration : configurations_) {
    Descriptor& plan = make(descriptor::kExecutionPlan);
    if (target_.handle != nullptr) plan.set(attribute::kPlanHandle, type::kHandle, 1, &target_.handle);
    if (target_.properties != nullptr) plan.set(attribute::kPlanDevice, *target_.properties);
    plan.set(attribute::kPlanConfiguration, type::kDescriptor, 1, &configuration);
    status = library().finalize(plan.get());
    if (status != status::kSuccess) continue;  // the next engine may do better
    int64_t bytes = 0, answers = 0;
    check(library().get_attribute(plan.get(), attribute::kPlanWorkspace, type::kInt64, 1, &answers, &bytes),
          "asking for the workspace");
    workspace_bytes_ = static_cast<uint64_t>(bytes);
    plan_ = &plan;
    return;
  }
  if (is_unsupported(status)) refuse("no attention engine whose kernel compiles");
  check(status, "compiling attention");
}

std::string first_reason(const std::string& told) {
  // A line per level of cuDNN's calls, "Warning: CUDNN_STATUS_X; Reason: text at: condition", the innermost first, for
  // one engine after the other. A status of its own tells more than plain NOT_SUPPORTED, except that engines of other
  // architectures always have one.
  const std::string mark = "Reason: ";
  std::string plain;
  for (size_t begin = 0; begin < told.size();) {
    const size_t end = std::min(told.find('\n', begin), told.size());
    const std::string line = told.substr(begin, end - begin);
    begin = end + 1;
    const size_t reason = line.find(mark);
    if (reason == std::string::npos) continue;
    std::string text = line.substr(reason + mark.size());
    const bool has_own_status = line.find("_NOT_SUPPORTED_") != std::string::npos;
    if (has_own_status && line.find("ARCH_MISMATCH") == std::string::npos) return text;
    if (plain.empty()) plain = text;
  }
  return plain;
}

void Graph::refuse(const char* what) const {
  char told[8192] = "";
  library().last_error(told, sizeof(told));
  const std::string reason = first_reason(told);
  throw sdk::Error(RLK_UNSUPPORTED, sdk::format("cuDNN %s has %s for these sizes and options%s%s",
                                                version_text(library().version()).c_str(), what,
                                                reason.empty() ? "" : ": ", reason.c_str()));
}

void Graph::execute(Handle handle, const void* const* pointers, void* workspace) const {
  std::vector<const void*> passed;
  for (const int64_t id : ids_) passed.push_back(pointers[id]);
  Descriptor pack(descriptor::kVariantPack);
  const auto count = static_cast<int64_t>(ids_.size());
  pack.set(attribute::kPackIds, type::kInt64, count, ids_.data());
  pack.set(attribute::kPackPointers, type::kVoidPointer, count, passed.data());
  pack.set(attribute::kPackWorkspace, type::kVoidPointer, 1, &workspace);
  pack.finalize("naming the arguments");
  check(library().execute(handle, plan_->get(), pack.get()), "launching attention");
}

}  // namespace rlk::cudnn
