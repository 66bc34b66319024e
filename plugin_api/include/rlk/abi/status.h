/* What every call answers: a status, and the text behind it in memory that the caller owns. */
#ifndef RLK_ABI_STATUS_H
#define RLK_ABI_STATUS_H

#include <stdint.h>

typedef int32_t rlk_status;

#define RLK_OK 0
#define RLK_NOT_READY 1            /* unfinished: a stream, an event, a plan that is being compiled; not an error */
#define RLK_INVALID_ARGUMENT (-1)  /* the caller broke the declaration of an operator or of a function */
#define RLK_UNSUPPORTED (-2)       /* legal, but not offered here; the text says what is */
#define RLK_OUT_OF_MEMORY (-3)     /* of the device or of the host; the text says which and how much */
#define RLK_DATA_ERROR (-4)        /* values in a tensor break their domain; see rlk_data_error. Not sticky */
#define RLK_TIMEOUT (-5)           /* a deadline passed; the work goes on */
#define RLK_DEVICE_LOST (-6)       /* every further call on the device fails the same way */
#define RLK_BACKEND_ERROR (-7)     /* the vendor runtime failed; native_code is its code */
#define RLK_ABI_MISMATCH (-8)      /* host and plugin do not fit; neither may call the other again */
#define RLK_NOT_FOUND (-9)         /* a name that is not registered */
#define RLK_ABSENT (-10)           /* no such hardware, driver or runtime on this machine */
#define RLK_PLUGIN_EXCEPTION (-11) /* a C++ exception reached the plugin's boundary and was stopped there */
#define RLK_CAPTURE_FORBIDS (-12)  /* would break the graph capture in progress; nothing was enqueued */
#define RLK_INTERNAL (-13)         /* a defect of rlk or of the plugin: report it with the text */
#define RLK_WRONG_RESULT (-14)     /* an earlier call's result was compared and is wrong; its implementation is off */

/* Caller-owned; every function that takes one accepts NULL. The callee fills it only when it returns a negative
   status, and writes no byte beyond struct_size. Strings are UTF-8 and end in a 0 byte; the callee cuts one that does
   not fit, here and in every array of char of the ABI, between two words where the array has 200 bytes or more. */
typedef struct rlk_error {
  uint32_t struct_size; /* in: sizeof(rlk_error) of the caller */
  rlk_status status;
  int64_t native_code; /* the vendor's own code, 0 when there is none */
  char domain[32];     /* whose code that is: "cuda", "acl", "aclnn", "rlk" */
  char text[464];      /* what was seen, what was expected, what to do */
} rlk_error;

/* What is wrong with the values of a tensor (RLK_DATA_ERROR). */
#define RLK_DATA_ID_OUT_OF_RANGE 1  /* an active id; value = the id */
#define RLK_DATA_NO_FINITE_LOGIT 2  /* a row whose every logit is -inf; value = 0 */
#define RLK_DATA_ROW_OUT_OF_RANGE 3 /* a row index out of range or out of order; value = the index */
#define RLK_DATA_BAD_SEQLENS 4 /* cu_seqlens, row = first bad position, value = its content; or the length of row */
/* The same in the second input, in declared order, of an operator that has two of cu_seqlens and lengths: in
   cu_seqlens_k of attention, in cu_seqlens_q of paged_attention. */
#define RLK_DATA_BAD_SECOND_SEQLENS 5

/* The first data error since the stream was last asked. */
typedef struct rlk_data_error {
  uint32_t struct_size;
  int32_t kind; /* RLK_DATA_*; 0 is none */
  uint32_t tag; /* rlk_run.tag of the call: the host's number for it */
  uint32_t reserved;
  int64_t row;
  int64_t value;
} rlk_data_error;

/* The same as a kernel writes it, at the address that rlk_run.data_error_record gives. A kernel that meets a data error
   changes state from 0 to 1 with one atomic compare-and-swap and, if it won, writes the other fields. The record is the
   host's: it stays valid until the stream has passed the call, and as long as a graph that captured the call lives. */
typedef struct rlk_data_error_record {
  int32_t state;
  int32_t kind;
  uint32_t tag;
  uint32_t reserved;
  int64_t row;
  int64_t value;
} rlk_data_error_record;

/* Header of every element of an extension chain. An element of an unknown type is skipped unless its type has
   RLK_EXT_REQUIRED set: then the callee answers RLK_UNSUPPORTED. */
#define RLK_EXT_REQUIRED 0x80000000u
typedef struct rlk_ext {
  uint32_t struct_size;
  uint32_t type; /* RLK_EXT_* */
  const struct rlk_ext* next;
} rlk_ext;

/* Parameters that only one plugin knows. The caller chains them to rlk_call_options.next; the host hands them to the
   plugin they name and to no other, and they are part of the plan's key, byte for byte. With RLK_EXT_REQUIRED no other
   plugin may serve the call. */
#define RLK_EXT_PRIVATE_PARAMS 1u
typedef struct rlk_private_params {
  uint32_t struct_size;
  uint32_t type; /* RLK_EXT_PRIVATE_PARAMS, alone or with RLK_EXT_REQUIRED */
  const rlk_ext* next;
  const char* plugin; /* the plugin's id */
  const void* data;   /* [bytes] as that plugin's own header says: no pointers, no padding left unset */
  uint64_t bytes;     /* at most RLK_MAX_PRIVATE_BYTES */
} rlk_private_params;
#define RLK_MAX_PRIVATE_BYTES 4096

#endif
