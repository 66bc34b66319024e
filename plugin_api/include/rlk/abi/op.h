/* An implementation of an operator: asked, planned, prepared, enqueued. */
#ifndef RLK_ABI_OP_H
#define RLK_ABI_OP_H

#include "stream.h"
#include "tensor.h"

typedef struct rlk_plugin_plan rlk_plugin_plan; /* the plugin's; opaque to the host */

/* Numerics classes, a set of bits. */
#define RLK_NUMERICS_TOLERANCE 1u       /* within the operator's error bound */
#define RLK_NUMERICS_ACCURATE 2u        /* within the bound that fp32 intermediates keep */
#define RLK_NUMERICS_DETERMINISTIC 4u   /* same inputs, same bits, run to run */
#define RLK_NUMERICS_BATCH_INVARIANT 8u /* a row's bits depend on that row alone */
#define RLK_NUMERICS_PORTABLE 16u       /* the same bits on every backend */

/* A call without its memory: what a plan may depend on. The host has validated it against the operator's declaration.
   Borrowed for the call. */
typedef struct rlk_call_desc {
  uint32_t struct_size;
  uint32_t op_revision;
  const char* op;
  const void* params; /* rlk_<op>_params; its first field is its size */
  uint32_t n_inputs, n_outputs;
  const rlk_tensor* const* inputs;  /* [n_inputs], NULL where absent, data NULL */
  const rlk_tensor* const* outputs; /* [n_outputs], likewise */
  const int32_t* output_alias;      /* [n_outputs]: the input whose memory the output is (always the case for an in-out
                                       argument, which is an input and an output), or -1 */
  const int64_t* symbols;           /* [n_symbols] in the declaration's order; -1 where the form has no such symbol */
  uint32_t n_symbols;
  uint32_t numerics;                          /* the classes demanded, RLK_NUMERICS_* */
  const rlk_ext* next;                        /* rlk_private_params for this plugin */
  const rlk_tensor_list* const* input_lists;  /* [n_inputs]: set where the declaration has a list; NULL: none has one */
  const rlk_tensor_list* const* output_lists; /* [n_outputs], likewise */
} rlk_call_desc;

#define RLK_SUPPORT_NO 0
#define RLK_SUPPORT_SLOW 1 /* correct, but a fallback may be faster */
#define RLK_SUPPORT_OK 2
#define RLK_SUPPORT_PREFERRED 3 /* what this hardware was built for */

#define RLK_SUPPORT_IF_CONTIGUOUS 1u /* with NO: the answer would differ for contiguous tensors */

/* The answer to query. Filled by the plugin, in memory of the host. */
typedef struct rlk_support {
  uint32_t struct_size; /* in */
  int32_t level;
  uint32_t numerics; /* the classes this call would hold */
  uint32_t flags;
  uint64_t workspace_bound; /* bytes; the plan may need less */
  uint64_t host_inputs;     /* bit i: rlk_run.host_inputs[i] must be given */
  double cost_us;           /* estimate of the device time, 0 when unknown */
  char variant[32];         /* the algorithm that would run: the unit that verification names */
  char reason_code[32];     /* with NO and SLOW: "DTYPE", "STRIDES", "KERNELS_NOT_BUILT", ... */
  char reason[256];         /* the same for people: what was seen, what is supported */
} rlk_support;

#define RLK_PLAN_SHAREABLE 1u  /* prepare and enqueue may run on several streams at once; otherwise one in flight */
#define RLK_PLAN_CAPTURABLE 2u /* enqueue may be captured into a graph */
#define RLK_PLAN_PREPARE 4u    /* prepare must be called before every enqueue, not only for its workspace */
/* What was captured uses nothing of the plan that another execution changes: of a plan that is not shareable, too, a
   graph may hold many executions, beside those in flight. */
#define RLK_PLAN_CAPTURED_APART 8u

/* What a plan is. Filled by the plugin; pointers live as long as the plan. */
typedef struct rlk_plan_info {
  uint32_t struct_size; /* in */
  uint32_t flags;
  uint64_t dynamic_symbols;  /* bit i: the plan serves any value of symbol i within the bounds */
  const int64_t* symbol_min; /* [n_symbols], NULL: no lower bound */
  const int64_t* symbol_max; /* [n_symbols], NULL: no upper bound */
  uint64_t workspace_bound;  /* bytes for any call within the bounds, UINT64_MAX when only prepare can tell */
  uint64_t host_inputs;      /* as in rlk_support */
  uint32_t numerics;
  uint32_t reserved;
  char variant[32];
  uint64_t persistent_bytes; /* device memory that the host keeps for the plan: rlk_run.persistent */
} rlk_plan_info;

#define RLK_RUN_NEW_PERSISTENT 1u /* the persistent memory holds nothing yet: the first execution that has it */
#define RLK_RUN_CAPTURING 2u      /* the stream captures a graph: the work may run many times, or never */

/* One execution: the same in prepare (workspace NULL) and in enqueue. Borrowed for the call. */
typedef struct rlk_run {
  uint32_t struct_size;
  uint32_t tag; /* to be copied into a data error */
  uint32_t n_inputs, n_outputs;
  const rlk_tensor* const* inputs;
  const rlk_tensor* const* outputs;
  const void* const* host_inputs; /* [n_inputs]: contiguous host copies of the inputs asked for, NULL elsewhere */
  const int64_t* symbols;         /* [n_symbols] */
  uint32_t n_symbols;
  uint32_t flags;  /* RLK_RUN_* */
  void* workspace; /* device memory, aligned to 256 bytes, of any content; belongs to the call until the stream has
                      passed it */
  uint64_t workspace_bytes;
  rlk_data_error_record* data_error_record; /* for kernels; NULL without RLK_DEVICE_MAPPED_PINNED: the plugin then tells
                                               data errors by query and synchronize */
  const rlk_ext* next;                      /* as in the description */
  void* persistent; /* rlk_plan_info.persistent_bytes of device memory, aligned to 256 bytes: the same, with the
                       content that the plan left there, in every execution of the plan. NULL in prepare. A shareable
                       plan has one for all its streams: only the first execution may write it */
  const rlk_tensor_list* const* input_lists;
  const rlk_tensor_list* const* output_lists;
} rlk_run;

/* A size at which the implementation changes its algorithm: verification tests on both sides of it, and two symbols at
   a switch of theirs where that is cheap. */
typedef struct rlk_switch {
  uint32_t struct_size;
  uint32_t reserved;
  const char* symbol; /* of the declaration */
  int64_t at;         /* the first size of the other algorithm; a size that no test reaches stays untested */
} rlk_switch;

/* A row of the plugin's table of implementations; lives as long as the process. Several per operator are normal. */
typedef struct rlk_implementation {
  uint32_t struct_size;
  uint32_t op_revision; /* the newest revision of the declaration that it knows */
  const char* op;
  const char* name;     /* short, unique among the plugin's implementations of the operator */
  uint32_t params_size; /* sizeof(rlk_<op>_params) that it was built with: the host declines on its behalf when a
                           parameter beyond that is not at its default */
  uint32_t n_inputs;    /* of the declaration it was built with; likewise */
  uint32_t n_outputs;
  uint32_t n_switches;
  const rlk_switch* const* switches; /* [n_switches] */
  void* user;                        /* the plugin's own */
  /* Pure, microseconds, launches nothing. A NO is RLK_OK with level NO and a reason. [thread-safe] */
  rlk_status (*query)(const struct rlk_implementation*, rlk_plugin_device*, const rlk_call_desc*, rlk_support* out,
                      rlk_error*);
  /* May compile, tune, allocate. Nothing in the plan depends on the content of device tensors. RLK_NOT_READY: the plan
     is being compiled in the background; the host serves the call by another implementation and asks again at a later
     call, or waits where no other can serve. [thread-safe] */
  rlk_status (*plan_create)(const struct rlk_implementation*, rlk_plugin_device*, const rlk_call_desc*,
                            rlk_plugin_plan** out, rlk_plan_info* info, rlk_error*);
  /* Exact workspace for these sizes and host values; cheap. [plan unless shareable] (optional: the bound holds then) */
  rlk_status (*plan_prepare)(rlk_plugin_plan*, const rlk_run*, uint64_t* workspace_bytes, rlk_error*);
  /* No device allocation, no synchronization. [stream; plan unless shareable] */
  rlk_status (*plan_enqueue)(rlk_plugin_plan*, rlk_plugin_stream*, const rlk_run*, rlk_error*);
  /* No execution of the plan is in flight: the host has seen to it. [thread-safe] */
  rlk_status (*plan_destroy)(rlk_plugin_plan*, rlk_error*);
} rlk_implementation;

#endif
