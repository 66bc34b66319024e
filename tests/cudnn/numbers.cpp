// The plugin's own numbers of cuDNN and the vendor's headers: compiling this compares them.
#include <cudnn_graph.h>

#include "plugins/cudnn/library.hpp"

namespace rlk::cudnn {

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs), #theirs)

SAME(status::kSuccess, CUDNN_STATUS_SUCCESS);
SAME(status::kBadParam, CUDNN_STATUS_BAD_PARAM);
SAME(status::kNotSupported, CUDNN_STATUS_NOT_SUPPORTED);

SAME(data::kFloat, CUDNN_DATA_FLOAT);
SAME(data::kHalf, CUDNN_DATA_HALF);
SAME(data::kInt32, CUDNN_DATA_INT32);
SAME(data::kBfloat16, CUDNN_DATA_BFLOAT16);
SAME(data::kBoolean, CUDNN_DATA_BOOLEAN);

SAME(type::kHandle, CUDNN_TYPE_HANDLE);
SAME(type::kDataType, CUDNN_TYPE_DATA_TYPE);
SAME(type::kBoolean, CUDNN_TYPE_BOOLEAN);
SAME(type::kInt64, CUDNN_TYPE_INT64);
SAME(type::kVoidPointer, CUDNN_TYPE_VOID_PTR);
SAME(type::kHeuristicMode, CUDNN_TYPE_HEUR_MODE);
SAME(type::kNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(type::kPointwiseMode, CUDNN_TYPE_POINTWISE_MODE);
SAME(type::kDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(type::kReductionOperator, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
SAME(type::kChar, CUDNN_TYPE_CHAR);

SAME(descriptor::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(descriptor::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(descriptor::kEngineConfiguration, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(descriptor::kEngineHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(descriptor::kExecutionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(descriptor::kPointwiseOperation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(descriptor::kOperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(descriptor::kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(descriptor::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(descriptor::kMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
SAME(descriptor::kMatmulOperation, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
SAME(descriptor::kReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
SAME(descriptor::kReductionOperation, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
SAME(descriptor::kReshapeOperation, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

SAME(attribute::kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE);
SAME(attribute::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(attribute::kPointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS);
SAME(attribute::kHeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(attribute::kHeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(attribute::kHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(attribute::kConfigurationEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(attribute::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(attribute::kPlanConfiguration, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(attribute::kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(attribute::kPointwiseHow, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(attribute::kPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(attribute::kPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
SAME(attribute::kPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(attribute::kPointwiseCondition, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
SAME(attribute::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(attribute::kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(attribute::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(attribute::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(attribute::kTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(attribute::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
SAME(attribute::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(attribute::kTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(attribute::kTensorIsByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
SAME(attribute::kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(attribute::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(attribute::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(attribute::kEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(attribute::kMatmulPrecision, CUDNN_ATTR_MATMUL_COMP_TYPE);
SAME(attribute::kMatmulA, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
SAME(attribute::kMatmulB, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
SAME(attribute::kMatmulC, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
SAME(attribute::kMatmulHow, CUDNN_ATTR_OPERATION_MATMUL_DESC);
SAME(attribute::kReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR);
SAME(attribute::kReductionPrecision, CUDNN_ATTR_REDUCTION_COMP_TYPE);
SAME(attribute::kReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
SAME(attribute::kReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
SAME(attribute::kReductionHow, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
SAME(attribute::kReshapeX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
SAME(attribute::kReshapeY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);

SAME(pointwise::kAdd, CUDNN_POINTWISE_ADD);
SAME(pointwise::kMultiply, CUDNN_POINTWISE_MUL);
SAME(pointwise::kDivide, CUDNN_POINTWISE_DIV);
SAME(pointwise::kSubtract, CUDNN_POINTWISE_SUB);
SAME(pointwise::kExp, CUDNN_POINTWISE_EXP);
SAME(pointwise::kLog, CUDNN_POINTWISE_LOG);
SAME(pointwise::kIdentity, CUDNN_POINTWISE_IDENTITY);
SAME(pointwise::kGreater, CUDNN_POINTWISE_CMP_GT);
SAME(pointwise::kGreaterOrEqual, CUDNN_POINTWISE_CMP_GE);
SAME(pointwise::kIndex, CUDNN_POINTWISE_GEN_INDEX);
SAME(pointwise::kSelect, CUDNN_POINTWISE_BINARY_SELECT);
SAME(reduction::kSum, CUDNN_REDUCE_TENSOR_ADD);
SAME(reduction::kMax, CUDNN_REDUCE_TENSOR_MAX);
SAME(heuristic::kModeA, CUDNN_HEUR_MODE_A);
SAME(note::kNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
static_assert(static_cast<int>(note::kMost) >= static_cast<int>(CUDNN_NUMERICAL_NOTE_TYPE_COUNT));

}  // namespace rlk::cudnn
