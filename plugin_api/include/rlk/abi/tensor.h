/* How a tensor is described: DLPack's fields and dtype codes. */
#ifndef RLK_ABI_TENSOR_H
#define RLK_ABI_TENSOR_H

#include <stdint.h>

/* DLPack's codes. */
#define RLK_DTYPE_INT 0
#define RLK_DTYPE_UINT 1
#define RLK_DTYPE_FLOAT 2
#define RLK_DTYPE_BFLOAT 4

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
  const int64_t* strides; /* [ndim], in elements, never NULL unless ndim is 0; may be 0 or negative */
  int32_t ndim;           /* 0 to RLK_MAX_NDIM */
  rlk_dtype dtype;
} rlk_tensor;

#endif
