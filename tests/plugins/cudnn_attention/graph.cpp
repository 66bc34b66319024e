// The operations one by one, in the order in which cuDNN's attention engines expect them, and the choice of an engine.
#include "graph.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace cudnn_attention {
namespace {

enum Id : int64_t { kQ = 1, kK, kV, kOut, kScale, kHidden };

Dims packed(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

}  // namespace

bool operator<(const Shape& a, const Shape& b) {
  const auto key = [](const Shape& s) {
    return std::tie(s.type, s.batch, s.queries, s.keys, s.q_heads, s.kv_heads, s.head_size, s.q_strides, s.k_strides,
                    s.v_strides, s.out_strides, s.causal);
  };
  return key(a) < key(b);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(libraries().create_descriptor(type, &handle_), "creating a descriptor");
}

Descriptor::~Descriptor() {
  if (handle_ != nullptr) libraries().destroy_descriptor(handle_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                     const void* values) {
  check(libraries().set_attribute(handle_, name, type, count, values),
        ("setting attribute " + std::to_string(static_cast<int>(name))).c_str());
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& other) {
  const cudnnBackendDescriptor_t handle = other.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, handle);
}

void Descriptor::finalize(const char* what) {
  check(libraries().finalize(handle_), what);
}

Descriptor& AttentionGraph::make(cudnnBackendDescriptorType_t type) {
  return *descriptors_.emplace_back(std::make_unique<Descriptor>(type));
}

Descriptor& AttentionGraph::tensor(int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides,
                                   bool is_virtual, bool is_by_value) {
  Descriptor& made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t alignment = 16;
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  if (is_by_value) made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_by_value);
  made.finalize("describing a tensor");
  return made;
}

Descriptor& AttentionGraph::scores(cudnnDataType_t type) {
  const Dims dims = {shape_.batch, shape_.q_heads, shape_.queries, shape_.keys};
  return tensor(next_id_++, type, dims, packed(dims), true);
}

Descriptor& AttentionGraph::rows() {
  const Dims dims = {shape_.batch, shape_.q_heads, shape_.queries, 1};
  return tensor(next_id_++, CUDNN_DATA_FLOAT, dims, packed(dims), true);
}

Descriptor& AttentionGraph::scalar(int64_t id) {
  return tensor(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

void AttentionGraph::multiply(const Descriptor& a, const Descriptor& b, const Descriptor& product) {
  Descriptor& how = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, precision);
  how.finalize("describing a product");
  Descriptor& operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, product);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  operation.finalize("describing a product");
  operations_.push_back(operation.get());
}

void AttentionGraph::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, const Descriptor& x,
                               const Descriptor* b, const Descriptor& y, const Descriptor* condition, int64_t axis) {
  Descriptor& how = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  how.finalize("describing an elementwise operation");
  Descriptor& operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  if (condition != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *condition);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  operation.finalize("describing an elementwise operation");
  operations_.push_back(operation.get());
}

void AttentionGraph::reduce(cudnnReduceTensorOp_t mode, const Descriptor& x, const Descriptor& y) {
  Descriptor& how = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, mode);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, precision);
  how.finalize("describing a reduction");
  Descriptor& operation = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  operation.finalize("describing a reduction");
  operations_.push_back(operation.get());
}

AttentionGraph::AttentionGraph(const Target& target, const Shape& shape) : target_(target), shape_(shape) {
  describe();
  find_engines();
}

// cuDNN has no engine for "attention": its engines recognise this list of operations, and one operation more or less
// has none. That holds for the log-sum-exp too, which nobody reads here.
void AttentionGraph::describe() {
  const int64_t b = shape_.batch, d = shape_.head_size;
  const Dims transposed = {shape_.k_strides[0], shape_.k_strides[1], shape_.k_strides[3], shape_.k_strides[2]};
  Descriptor& q = tensor(kQ, shape_.type, {b, shape_.q_heads, shape_.queries, d}, shape_.q_strides, false);
  Descriptor& k = tensor(kK, shape_.type, {b, shape_.kv_heads, d, shape_.keys}, transposed, false);
  Descriptor& v = tensor(kV, shape_.type, {b, shape_.kv_heads, shape_.keys, d}, shape_.v_strides, false);
  Descriptor& out = tensor(kOut, shape_.type, {b, shape_.q_heads, shape_.queries, d}, shape_.out_strides, false);

  Descriptor* score = &scores(CUDNN_DATA_FLOAT);
  multiply(q, k, *score);
  Descriptor& scaled = scores(CUDNN_DATA_FLOAT);
  pointwise(CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, *score, &scalar(kScale), scaled);
  score = &scaled;
  if (shape_.causal) {
    Descriptor& query = scores(CUDNN_DATA_INT32);
    Descriptor& key = scores(CUDNN_DATA_INT32);
    Descriptor& is_visible = scores(CUDNN_DATA_BOOLEAN);
    Descriptor& masked = scores(CUDNN_DATA_FLOAT);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, *score, nullptr, query, nullptr, 2);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, *score, nullptr, key, nullptr, 3);
    pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, query, &key, is_visible);
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, *score, &scalar(kHidden), masked, &is_visible);
    score = &masked;
  }
  Descriptor &largest = rows(), &sum = rows(), &logarithm = rows(), &lse = rows();
  Descriptor &shifted = scores(CUDNN_DATA_FLOAT), &exponential = scores(CUDNN_DATA_FLOAT);
  Descriptor& weights = scores(shape_.type);  // rounded: the second product takes the tensors' dtype
  reduce(CUDNN_REDUCE_TENSOR_MAX, *score, largest);
  pointwise(CUDNN_POINTWISE_SUB, CUDNN_DATA_FLOAT, *score, &largest, shifted);
  pointwise(CUDNN_POINTWISE_EXP, CUDNN_DATA_FLOAT, shifted, nullptr, exponential);
  reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
  pointwise(CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, sum, nullptr, logarithm);
  pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, largest, &logarithm, lse);
  pointwise(CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, exponential, &sum, weights);
  multiply(weights, v, out);
}

// cuDNN notes which engines give other bits from run to run; the plugin claims that none does.
bool AttentionGraph::is_deterministic(cudnnBackendDescriptor_t configuration) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {};
  int64_t count = 0;
  check(libraries().get_attribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                  &handle),
        "asking for the engine");
  check(libraries().get_attribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                  CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
        "asking for the engine's notes");
  for (int64_t i = 0; i < count; ++i) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
  }
  return true;
}

void AttentionGraph::find_engines() {
  Descriptor& graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target_.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target_.handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(operations_.size()),
            operations_.data());
  graph.finalize("describing the graph");

  Descriptor& heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target_.properties != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target_.properties);
  const cudnnStatus_t status = libraries().finalize(heuristic.get());
  if (is_unsupported(status)) refuse("no attention engine");
  check(status, "asking which engines there are");
  int64_t count = 0;
  check(libraries().get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                  &count, nullptr),
        "counting engines");
  std::vector<cudnnBackendDescriptor_t> found;
  for (int64_t i = 0; i < count; ++i) found.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  // cuDNN gives those that pass its support checks.
  check(libraries().get_attribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                  &count, found.data()),
        "asking for engines");
  found.resize(static_cast<size_t>(count));
  if (found.empty()) refuse("no attention engine");
  for (cudnnBackendDescriptor_t configuration : found) {
    if (is_deterministic(configuration)) configurations_.push_back(configuration);
  }
  if (configurations_.empty()) refuse("no deterministic attention engine");
}

void AttentionGraph::compile() {
  if (plan_ != nullptr) return;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  for (cudnnBackendDescriptor_t configuration : configurations_) {
    Descriptor& plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (target_.handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target_.handle);
    if (target_.properties != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target_.properties);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, configuration);
    status = libraries().finalize(plan.get());
    if (status != CUDNN_STATUS_SUCCESS) continue;  // the next engine may do better
    int64_t bytes = 0, answers = 0;
    check(libraries().get_attribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &answers,
                                    &bytes),
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
    const std::string text = line.substr(reason + mark.size());
    const bool has_own_status = line.find("_NOT_SUPPORTED_") != std::string::npos;
    if (has_own_status && line.find("ARCH_MISMATCH") == std::string::npos) return text;
    if (plain.empty()) plain = text;
  }
  return plain;
}

void AttentionGraph::refuse(const char* what) const {
  char told[8192] = "";
  libraries().last_error(told, sizeof(told));
  const std::string reason = first_reason(told);
  throw sdk::Error(RLK_UNSUPPORTED,
                   sdk::format("cuDNN %zu has %s for %lld x %lld queries, %lld keys, %lld and %lld heads of %lld%s%s",
                               libraries().version(), what, static_cast<long long>(shape_.batch),
                               static_cast<long long>(shape_.queries), static_cast<long long>(shape_.keys),
                               static_cast<long long>(shape_.q_heads), static_cast<long long>(shape_.kv_heads),
                               static_cast<long long>(shape_.head_size), reason.empty() ? "" : ": ", reason.c_str()));
}

void AttentionGraph::execute(cudnnHandle_t handle, const Arguments& arguments) {
  const float hidden = -std::numeric_limits<float>::infinity();  // the score of a key that a query does not see
  const int64_t ids[] = {kQ, kK, kV, kOut, kScale, kHidden};
  const void* const pointers[] = {arguments.q, arguments.k, arguments.v, arguments.out, &arguments.scale, &hidden};
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const int64_t count = shape_.causal ? 6 : 5;
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, arguments.workspace);
  pack.finalize("naming the arguments");
  check(libraries().execute(handle, plan_->get(), pack.get()), "launching attention");
}

}  // namespace cudnn_attention
