/* How a tensor is described: DLPack's fields and dtype codes. */
#ifndef RLK_ABI_TENSOR_H
#define RLK_ABI_TENSOR_H

#include <stdint.h>

/* DLPack's codes. A plugin meets only the dtypes that the declarations of its operators name. */
#define RLK_DTYPE_INT 0
#define RLK_DTYPE_UINT 1
#define RLK_DTYPE_FLOAT 2
#define RLK_DTYPE_OPAQUE 3
#define RLK_DTYPE_BFLOAT 4
#define RLK_DTYPE_COMPLEX 5
#define RLK_DTYPE_BOOL 6 /* 8 bits: 0 or 1 */
#define RLK_DTYPE_FLOAT8_E3M4 7
#define RLK_DTYPE_FLOAT8_E4M3 8
#define RLK_DTYPE_FLOAT8_E4M3B11FNUZ 9
#define RLK_DTYPE_FLOAT8_E4M3FN 10
#define RLK_DTYPE_FLOAT8_E4M3FNUZ 11
#define RLK_DTYPE_FLOAT8_E5M2 12
#define RLK_DTYPE_FLOAT8_E5M2FNUZ 13
#define RLK_DTYPE_FLOAT8_E8M0FNU 14
#define RLK_DTYPE_FLOAT6_E2M3FN 15
#define RLK_DTYPE_FLOAT6_E3M2FN 16
#define RLK_DTYPE_FLOAT4_E2M1FN 17

/* Elements of fewer than 8 bits are packed: element i of a dimension of stride 1 begins at bit i * bits, lowest bit
   first. Shapes and strides count elements. The dimension of stride 1 is the last one; every other stride, and the
   first element, begin at a whole byte (strides[d] * bits is a multiple of 8). */
typedef struct rlk_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes; /* always 1 today */
} rlk_dtype;

#define RLK_MAX_NDIM 8

/* Borrowed for the call. Tensors are always passed as arrays of pointers, so that a later minor version may append
   fields; a NULL pointer in such an array is an argument that is absent. The device is implied by the call. */
typedef struct rlk_tensor {
  uint32_t struct_size;
  uint32_t alignment;     /* bytes; a power of two that divides the address of the first element */
  void* data;             /* NULL in a call description and in an empty tensor */
  uint64_t byte_offset;   /* the first element is at data + byte_offset */
  const int64_t* shape;   /* [ndim], never NULL unless ndim is 0 */
  const int64_t* strides; /* [ndim], in elements, not NULL unless ndim is 0; 0, negative; any where the size is 1 */
  int32_t ndim;           /* 0 to RLK_MAX_NDIM */
  rlk_dtype dtype;
} rlk_tensor;

/* An argument that is a list of tensors. Borrowed for the call. */
typedef struct rlk_tensor_list {
  uint32_t struct_size;
  uint32_t count;
  const rlk_tensor* const* tensors; /* [count], none of them NULL */
} rlk_tensor_list;

#endif
