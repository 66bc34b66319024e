/* Which operators does the simulated libopapi.so export? Phase 1 of each, with the vendor's argument lists; phase 2 has
 * the same type for all. */
#ifndef RLK_TESTS_FAKES_ASCEND_ACLNN_API_H
#define RLK_TESTS_FAKES_ASCEND_ACLNN_API_H

#include "acl_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_ASCEND_OP(name, ...)                                                                                     \
  FAKE_ASCEND_API aclnnStatus name##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspaceSize, aclOpExecutor** executor); \
  FAKE_ASCEND_API aclnnStatus name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream)

/* elementwise.cpp: shapes broadcast, out has the broadcast shape */
FAKE_ASCEND_OP(aclnnAdd, const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out);
FAKE_ASCEND_OP(aclnnInplaceAdd, const aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha);
FAKE_ASCEND_OP(aclnnAdds, const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out);
FAKE_ASCEND_OP(aclnnSub, const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out);
FAKE_ASCEND_OP(aclnnMul, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnMuls, const aclTensor* self, const aclScalar* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnDiv, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnDivs, const aclTensor* self, const aclScalar* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnExp, const aclTensor* self, aclTensor* out);
FAKE_ASCEND_OP(aclnnLog, const aclTensor* self, aclTensor* out);
FAKE_ASCEND_OP(aclnnAbs, const aclTensor* self, aclTensor* out);
FAKE_ASCEND_OP(aclnnSqrt, const aclTensor* self, aclTensor* out);
FAKE_ASCEND_OP(aclnnTanh, const aclTensor* self, aclTensor* out);
FAKE_ASCEND_OP(aclnnFloor, const aclTensor* self, aclTensor* out);
FAKE_ASCEND_OP(aclnnBitwiseAndTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnBitwiseXorTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnClamp, const aclTensor* self, const aclScalar* clipValueMin, const aclScalar* clipValueMax,
               aclTensor* out);
FAKE_ASCEND_OP(aclnnClampMin, const aclTensor* self, const aclScalar* clipValueMin, aclTensor* out);
FAKE_ASCEND_OP(aclnnEqTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnLtTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnLeTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnNeTensor, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnLtScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnLeScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnGtScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnGeScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnEqScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnNeScalar, const aclTensor* self, const aclScalar* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnLogicalAnd, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnLogicalOr, const aclTensor* self, const aclTensor* other, aclTensor* out);
FAKE_ASCEND_OP(aclnnSWhere, const aclTensor* condition, const aclTensor* self, const aclTensor* other, aclTensor* out);

/* convert.cpp: copies, conversions, constants */
FAKE_ASCEND_OP(aclnnCast, const aclTensor* self, int32_t dtype, aclTensor* out);
FAKE_ASCEND_OP(aclnnInplaceCopy, aclTensor* selfRef, const aclTensor* src);
FAKE_ASCEND_OP(aclnnInplaceZero, aclTensor* selfRef);
FAKE_ASCEND_OP(aclnnInplaceFillScalar, aclTensor* selfRef, const aclScalar* value);
FAKE_ASCEND_OP(aclnnInplaceMaskedFillScalar, aclTensor* selfRef, const aclTensor* mask, const aclScalar* value);
FAKE_ASCEND_OP(aclnnArange, const aclScalar* start, const aclScalar* end, const aclScalar* step, aclTensor* out);

/* reduce_index.cpp */
FAKE_ASCEND_OP(aclnnReduceSum, const aclTensor* self, const aclIntArray* dims, bool keepDims, int32_t dtype,
               aclTensor* out);
FAKE_ASCEND_OP(aclnnAmax, const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out);
FAKE_ASCEND_OP(aclnnMaxDim, const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out, aclTensor* indices);
FAKE_ASCEND_OP(aclnnGather, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out);
FAKE_ASCEND_OP(aclnnIndexSelect, const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out);
FAKE_ASCEND_OP(aclnnInplaceIndexCopy, aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* source);

/* order.cpp */
FAKE_ASCEND_OP(aclnnSort, const aclTensor* self, bool stable, int64_t dim, bool descending, aclTensor* valuesOut,
               aclTensor* indicesOut);

/* products.cpp: matrices in the last two dimensions, those before broadcast */
FAKE_ASCEND_OP(aclnnMatmul, const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType);

/* fused.cpp */
FAKE_ASCEND_OP(aclnnSwiGlu, const aclTensor* x, int64_t dim, const aclTensor* out);
FAKE_ASCEND_OP(aclnnRmsNorm, const aclTensor* x, const aclTensor* gamma, double epsilon, const aclTensor* yOut,
               const aclTensor* rstdOut);
FAKE_ASCEND_OP(aclnnAddRmsNorm, const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma, double epsilon,
               aclTensor* yOut, aclTensor* rstdOut, aclTensor* xOut);

/* rows.cpp */
FAKE_ASCEND_OP(aclnnSoftmax, const aclTensor* self, int64_t dim, aclTensor* out);
FAKE_ASCEND_OP(aclnnLogSoftmax, const aclTensor* self, int64_t dim, aclTensor* out);
FAKE_ASCEND_OP(aclnnSoftmaxBackward, const aclTensor* gradOutput, const aclTensor* output, int64_t dim, aclTensor* out);
FAKE_ASCEND_OP(aclnnLogSoftmaxBackward, const aclTensor* gradOutput, const aclTensor* output, int64_t dim,
               aclTensor* out);
FAKE_ASCEND_OP(aclnnRotaryPositionEmbedding, const aclTensor* x, const aclTensor* cos, const aclTensor* sin,
               int64_t mode, aclTensor* out);

/* attention.cpp: layouts "TND" (host lengths cumulative, without the leading 0) and "BSND" */
FAKE_ASCEND_OP(aclnnFusedInferAttentionScoreV3, const aclTensor* query, const aclTensorList* key,
               const aclTensorList* value, const aclTensor* pseShift, const aclTensor* attenMask,
               const aclIntArray* actualSeqLengths, const aclIntArray* actualSeqLengthsKv, const aclTensor* deqScale1,
               const aclTensor* quantScale1, const aclTensor* deqScale2, const aclTensor* quantScale2,
               const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
               const aclTensor* blockTable, const aclTensor* queryPaddingSize, const aclTensor* kvPaddingSize,
               const aclTensor* keyAntiquantScale, const aclTensor* keyAntiquantOffset,
               const aclTensor* valueAntiquantScale, const aclTensor* valueAntiquantOffset,
               const aclTensor* keySharedPrefix, const aclTensor* valueSharedPrefix,
               const aclIntArray* actualSharedPrefixLen, const aclTensor* queryRope, const aclTensor* keyRope,
               const aclTensor* keyRopeAntiquantScale, int64_t numHeads, double scaleValue, int64_t preTokens,
               int64_t nextTokens, char* inputLayout, int64_t numKeyValueHeads, int64_t sparseMode,
               int64_t innerPrecise, int64_t blockSize, int64_t antiquantMode, bool softmaxLseFlag,
               int64_t keyAntiquantMode, int64_t valueAntiquantMode, const aclTensor* attentionOut,
               const aclTensor* softmaxLse);

#undef FAKE_ASCEND_OP

#ifdef __cplusplus
}
#endif
#endif
