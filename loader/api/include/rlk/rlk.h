/* rlk, the public C API: start a runtime, make streams and memory, call operators, ask why.

   Every function returns a status and accepts a NULL error. Handles are opaque, made and destroyed by this API.
   Thread rule: functions are thread-safe unless they name a stream; a stream is used by one thread at a time.
   Fork: the child has the thread that forked and none of rlk's. It uses the CPU, also through a runtime that it
   inherited, if no other thread was inside a function of this API at the fork: what such a thread had locked stays
   locked in the child, whose next call may wait for ever. So fork before other threads use rlk, or while they do not;
   else the child calls exec, or nothing of rlk (Python's multiprocessing: "spawn" or "forkserver").
   End: exit() may run while threads are inside rlk. From then on rlk judges nothing: it compares no result, and blames
   no implementation for a failure.
   Operators, their parameters and argument indices are in <rlk/ops/NAME.h>. */
#ifndef RLK_H
#define RLK_H

#include <rlk/abi/op.h>
#include <rlk/abi/status.h>
#include <rlk/abi/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RLK_API __attribute__((visibility("default")))
#else
#define RLK_API
#endif

/* What this header is of; rlk_version() says what librlk is of. */
#define RLK_VERSION_MAJOR 0
#define RLK_VERSION_MINOR 1
#define RLK_VERSION_PATCH 0

/* clang-format off */
#define RLK_ERROR_INIT {sizeof(rlk_error), 0, 0, {0}, {0}}
#define RLK_TENSOR_INIT {sizeof(rlk_tensor), 1, 0, 0, 0, 0, 0, {RLK_DTYPE_FLOAT, 32, 1}}
/* clang-format on */

typedef struct rlk_runtime rlk_runtime;
typedef struct rlk_stream rlk_stream;
typedef struct rlk_event rlk_event;
typedef struct rlk_graph rlk_graph;

RLK_API const char* rlk_version(void); /* "0.1.0" */

/* ---- the embedder's memory --------------------------------------------------------------------------------------- */
/* Allocates the device memory that rlk needs for itself and hands out by rlk_allocate: workspaces, plans' memory,
   staging. A framework's caching allocator, say; rlk then keeps no cache of its own beside it. Blocks are aligned to
   256 bytes. Memory is in the order of native_stream (the vendor's handle): given back while work that uses it may
   still run on that stream, as caching allocators of frameworks expect. Called from any thread, never while the stream
   captures. */
typedef struct rlk_device_allocator {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  rlk_status (*allocate)(void* context, const char* backend, uint32_t ordinal, void* native_stream, uint64_t bytes,
                         void** out, rlk_error* error);
  rlk_status (*deallocate)(void* context, const char* backend, uint32_t ordinal, void* native_stream, void* memory,
                           uint64_t bytes, rlk_error* error);
} rlk_device_allocator;

/* Allocates the host memory of plugins (the service rlk.allocate/1): aligned to 64 bytes, NULL when there is none left.
   Of the whole process: set before the first runtime, RLK_INVALID_ARGUMENT later. Copied. */
typedef struct rlk_host_allocator {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  void* (*allocate)(void* context, uint64_t bytes);
  void (*deallocate)(void* context, void* memory, uint64_t bytes);
} rlk_host_allocator;
RLK_API rlk_status rlk_set_host_allocator(const rlk_host_allocator* allocator, rlk_error* error);

/* ---- the embedder's threads -------------------------------------------------------------------------------------- */
/* Threads for the loops of the CPU's implementations, in place of rlk's own pool. For a program that computes in turn
   with rlk: the waiting threads of two pools take the processors from each other. Of the whole process; NULL: rlk's own
   again. Copied; what it names lives as long as the process. Threads have 1 MiB of stack or are not used. A loop inside
   a loop, and every loop of a forked process, runs on its caller's thread. RLK_NUM_THREADS stays an upper bound; with
   RLK_THREAD_POOL=own the call changes nothing. [thread-safe] */
typedef struct rlk_thread_pool {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  /* How many threads `run` uses at most, the caller's among them. Asked before each loop. [thread-safe] */
  uint32_t (*thread_count)(void* context);
  /* Calls work(user, i) once for each i below n, from any threads, and returns when all have returned. A call that it
     leaves out makes the loop slower, not wrong. [thread-safe] */
  void (*run)(void* context, uint32_t n, void (*work)(void* user, uint32_t i), void* user);
} rlk_thread_pool;
RLK_API rlk_status rlk_set_thread_pool(const rlk_thread_pool* pool, rlk_error* error);

/* ---- runtime --------------------------------------------------------------------------------------------------- */
/* docs/cluster.md has the variables that say where plugins are looked for (RLK_PLUGIN_PATH, RLK_REQUIRE, ...). */
typedef struct rlk_runtime_options {
  uint32_t struct_size;
  uint32_t wait_for_probes; /* 1: return when every plugin is judged; 0: serve from the CPU at once, probe behind. Of a
                               plugin with many operators most are then still to be tried: see rlk_runtime_require */
  const char* plugin_path;  /* NULL: RLK_PLUGIN_PATH */
  const char* config_path;  /* NULL: RLK_CONFIG */
  const rlk_device_allocator* device_allocator; /* NULL: rlk's own. Copied; lives as long as the runtime */
} rlk_runtime_options;
#define RLK_RUNTIME_OPTIONS_INIT \
  { sizeof(rlk_runtime_options), 1, 0, 0, 0 }

/* options may be NULL. The CPU is always there; a plugin that fails is a record (rlk_describe), not an error, unless
   RLK_REQUIRE names its backend. Runtimes of one process share plugins and policy file: a later one that names another
   plugin_path or config_path is refused (UNSUPPORTED). */
RLK_API rlk_status rlk_runtime_create(const rlk_runtime_options* options, rlk_runtime** out, rlk_error* error);
/* Waits until backends, or operators of them, can be used: "cuda", "cuda:logp,attention,rocm". Operators of a large
   plugin are tried in another process when a call first asks for them, and behind; until then the next implementation
   serves (WAITING in rlk_explain and in the fallbacks of rlk_counters). This has the named ones tried first and returns
   when one implementation of each is verified on the backend. RLK_NOT_FOUND: a backend has no device here;
   RLK_UNSUPPORTED: an operator is not there, or did not pass its test; RLK_TIMEOUT: more than `seconds` passed (0: no
   limit). [thread-safe] */
RLK_API rlk_status rlk_runtime_require(rlk_runtime* runtime, const char* wanted, double seconds, rlk_error* error);
RLK_API rlk_status rlk_runtime_destroy(rlk_runtime* runtime, rlk_error* error); /* after its streams and memory */

/* Looks for plugins again, as the start did, and returns when every plugin has its verdict; calls go on meanwhile.
   A plugin whose file was replaced (by renaming a new one over it; never written into) is verified in a child process
   and then loaded beside the old one. From then on it gets new streams, and the calls of streams of a device that it
   does not own. Streams, events, graphs and memory of a device that the old one owns stay with it, as long as they
   live: handles of the two do not mix (INVALID_ARGUMENT). A new file that is refused changes nothing: the old one goes
   on. So it does where the new one cannot run in this process (NEEDS_RESTART). A plugin whose file is gone gets no new
   streams. No code is unloaded, and a file that comes back is not loaded again. report may be NULL; it gets a JSON
   document, which rlk_string_free ends: {"schema": 1, "changes": [{"plugin", "change": "added" | "replaced" | "refused"
   | "retired", "version", "path", "reason_code", "reason"}]}. A refused file is a change and a warning in the log, not
   an error. [thread-safe: of several at once each waits for the one before; not from a plugin's own code] */
RLK_API rlk_status rlk_runtime_reload(rlk_runtime* runtime, char** report, rlk_error* error);

RLK_API rlk_status rlk_device_count(rlk_runtime* runtime, const char* backend, uint32_t* out, rlk_error* error);
/* Opens nothing: a device is opened when its first stream, event or block of memory is asked for. */
RLK_API rlk_status rlk_device_describe(rlk_runtime* runtime, const char* backend, uint32_t ordinal,
                                       rlk_device_properties* out, rlk_error* error);
/* Which backend serves memory that a framework passes with DLPack's device (type, id), such as (kDLCUDA 2, 0) or
   (kDLExtDev 12, 0). Host memory, pinned or not, is the CPU's. Otherwise the registered device with that ordinal whose
   plugin gives its memory that type (rlk_device_properties.dlpack_device_type); where several do, or none, the one
   whose plugin recognises the address `data` (pointer_kind), which opens the devices that are asked. data may be NULL.
   *backend lives as long as the process. UNSUPPORTED: no such device, or several, and the text says which were asked.
   [thread-safe] */
RLK_API rlk_status rlk_device_find(rlk_runtime* runtime, int32_t dlpack_device_type, int32_t dlpack_device_id,
                                   const void* data, const char** backend, rlk_error* error);

/* ---- streams, events, memory ------------------------------------------------------------------------------------ */
RLK_API rlk_status rlk_stream_create(rlk_runtime* runtime, const char* backend, uint32_t ordinal, int32_t priority,
                                     rlk_stream** out, rlk_error* error);
/* Borrows a stream of the vendor's runtime (a cudaStream_t, say). */
RLK_API rlk_status rlk_stream_wrap(rlk_runtime* runtime, const char* backend, uint32_t ordinal, void* native,
                                   rlk_stream** out, rlk_error* error);
/* The vendor's handle (a cudaStream_t, say), for calls of the vendor's own; borrowed from the stream. */
RLK_API rlk_status rlk_stream_native(rlk_stream* stream, void** out, rlk_error* error);
RLK_API rlk_status rlk_stream_destroy(rlk_stream* stream, rlk_error* error);
/* RLK_OK, RLK_NOT_READY, RLK_DATA_ERROR (the text names operator, row and value; told once), or a failure. */
RLK_API rlk_status rlk_stream_query(rlk_stream* stream, rlk_error* error);
RLK_API rlk_status rlk_stream_synchronize(rlk_stream* stream, uint64_t timeout_ns, rlk_error* error);
RLK_API rlk_status rlk_stream_wait_event(rlk_stream* stream, rlk_event* event, rlk_error* error);

RLK_API rlk_status rlk_event_create(rlk_runtime* runtime, const char* backend, uint32_t ordinal, uint32_t flags,
                                    rlk_event** out, rlk_error* error);
/* Borrows an event of the vendor's runtime (a cudaEvent_t, say), which outlives the result. */
RLK_API rlk_status rlk_event_wrap(rlk_runtime* runtime, const char* backend, uint32_t ordinal, void* native,
                                  rlk_event** out, rlk_error* error);
/* The vendor's handle (a cudaEvent_t, say), borrowed from the event. UNSUPPORTED where the backend has none. */
RLK_API rlk_status rlk_event_native(rlk_event* event, void** out, rlk_error* error);
RLK_API rlk_status rlk_event_destroy(rlk_event* event, rlk_error* error);
RLK_API rlk_status rlk_event_record(rlk_event* event, rlk_stream* stream, rlk_error* error);
RLK_API rlk_status rlk_event_query(rlk_event* event, rlk_error* error);
RLK_API rlk_status rlk_event_elapsed_ms(rlk_event* start, rlk_event* end, double* out, rlk_error* error);

/* Memory of the stream's device from the caching allocator, in the stream's order: a block freed on a stream may be
   reused by later work of the same stream at once (pinned memory, which the host touches too, when the stream has
   passed the point). kind is RLK_MEMORY_*. Not while the stream captures a graph. */
RLK_API rlk_status rlk_allocate(rlk_stream* stream, int32_t kind, uint64_t bytes, void** out, rlk_error* error);
RLK_API rlk_status rlk_deallocate(rlk_stream* stream, void* memory, rlk_error* error);
/* Another stream uses the block too: it is reused only after that stream has passed this point. */
RLK_API rlk_status rlk_record_stream(rlk_stream* user, void* memory, rlk_error* error);
/* kind is RLK_COPY_*; asynchronous for pinned host memory, synchronous otherwise. */
RLK_API rlk_status rlk_copy(rlk_stream* stream, void* destination, const void* source, uint64_t bytes, int32_t kind,
                            rlk_error* error);

/* Between the memories of two devices of the stream's backend, one of which is the stream's own, in the order of the
   stream. Needs no common address space. UNSUPPORTED where the backend cannot: copy through the host then. */
RLK_API rlk_status rlk_copy_peer(rlk_stream* stream, void* destination, uint32_t destination_ordinal,
                                 const void* source, uint32_t source_ordinal, uint64_t bytes, rlk_error* error);

typedef struct rlk_memory_statistics {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t in_use_bytes, cached_bytes, peak_bytes, allocations, cache_hits, out_of_memory_retries;
} rlk_memory_statistics;
RLK_API rlk_status rlk_memory_statistics_get(rlk_runtime* runtime, const char* backend, uint32_t ordinal,
                                             rlk_memory_statistics* out, rlk_error* error);

/* ---- operators -------------------------------------------------------------------------------------------------- */
/* A row-major tensor without gaps. shape and strides have ndim elements (at most RLK_MAX_NDIM) and live as long as the
   tensor; strides is written. data may be NULL. */
static inline rlk_tensor rlk_tensor_dense(void* data, rlk_dtype dtype, int32_t ndim, const int64_t* shape,
                                          int64_t* strides) {
  rlk_tensor tensor = RLK_TENSOR_INIT;
  const uintptr_t address = (uintptr_t)data;
  const uintptr_t lowest_bit = address & (~address + 1);
  uint64_t step = 1; /* unsigned: a shape that no memory holds is for the call to refuse */
  for (int32_t i = ndim; i-- > 0;) {
    strides[i] = (int64_t)step;
    step *= (uint64_t)shape[i];
  }
  tensor.alignment = address == 0 || lowest_bit > 4096 ? 4096 : (uint32_t)lowest_bit;
  tensor.data = data;
  tensor.shape = shape;
  tensor.strides = strides;
  tensor.ndim = ndim;
  tensor.dtype = dtype;
  return tensor;
}

typedef struct rlk_op rlk_op; /* lives as long as the process */
/* By name ("logp"); the text of RLK_NOT_FOUND lists near names. */
RLK_API rlk_status rlk_op_find(const char* name, const rlk_op** out, rlk_error* error);

/* Which implementation served a call. The texts live as long as the process. */
typedef struct rlk_choice {
  uint32_t struct_size;
  uint32_t staged; /* 1: the CPU served a call on another device's stream, with copies there and back */
  const char* backend;
  const char* plugin;
  const char* implementation;
} rlk_choice;
#define RLK_CHOICE_INIT \
  { sizeof(rlk_choice), 0, 0, 0, 0 }

typedef struct rlk_call_options {
  uint32_t struct_size;
  uint32_t numerics;              /* demanded classes, RLK_NUMERICS_*; 0 is tolerance */
  const char* pin;                /* NULL, "backend", "backend:implementation", or "plugin/implementation": what must
                                     serve the call. A pin never falls back: it is met, or the call is an error */
  const void* const* host_inputs; /* NULL, or [n_inputs]: contiguous host copies of host-readable inputs that live on a
                                     device; without them rlk copies those itself, which waits for the stream */
  const rlk_ext* next; /* rlk_private_params for plugins that know more than the declaration; read during the call */
  rlk_choice* choice;  /* NULL, or written by a call that is RLK_OK; rlk_explain_json says more, before the call */
} rlk_call_options;
#define RLK_CALL_OPTIONS_INIT \
  { sizeof(rlk_call_options), 0, 0, 0, 0, 0 }

/* What an output has to be, for callers that allocate outputs. */
typedef struct rlk_output_shape {
  uint32_t struct_size;
  int32_t ndim; /* -1: the call has no such output (the form of the operator has none, or its input is absent) */
  rlk_dtype dtype;
  uint32_t reserved;
  int64_t shape[RLK_MAX_NDIM];
} rlk_output_shape;

/* Dtype and shape of every output that rlk_call would take with these inputs (their data may be NULL) and parameters.
   For outputs not wanted the caller passes NULL in outputs; in the others it sets struct_size. A dtype that the
   inputs leave open is the declaration's first choice. Refuses what rlk_call would refuse of inputs and rules. */
RLK_API rlk_status rlk_infer_outputs(const rlk_op* op, const void* params, const rlk_tensor* const* inputs,
                                     uint32_t n_inputs, rlk_output_shape* const* outputs, uint32_t n_outputs,
                                     rlk_error* error);

/* Enqueues one operator. params: rlk_<op>_params or NULL for defaults. Tensors live in memory of the stream's device
   (CPU stream: host memory); absent arguments are NULL; every array is read before the call returns, tensor memory
   until the stream has passed. options may be NULL. On a CPU stream the work is done when this returns.
   An in-out argument (a cache that is appended to) is passed in both arrays, as one tensor: same address, shape and
   strides, whatever the strides are. What the call does not write keeps its bits.
   An implementation whose plan is still being compiled is passed over until it is there: the next one serves. Where no
   other can, or the other would be a fallback that RLK_FALLBACK=strict forbids, the call waits for the plan.
   Errors: INVALID_ARGUMENT (names argument, seen, expected), UNSUPPORTED (no candidate; the text gives each one's
   reason), OUT_OF_MEMORY, CAPTURE_FORBIDS, and the backend's own. Data errors: see rlk_stream_query. */
RLK_API rlk_status rlk_call(rlk_stream* stream, const rlk_op* op, const void* params, const rlk_tensor* const* inputs,
                            uint32_t n_inputs, const rlk_tensor* const* outputs, uint32_t n_outputs,
                            const rlk_call_options* options, rlk_error* error);

/* ---- graphs ----------------------------------------------------------------------------------------------------- */
/* Every call to be captured is made once before, on any stream of the device: while a graph is captured nothing is
   planned, allocated, staged on the CPU or copied to the host, and a call that would need it is CAPTURE_FORBIDS before
   anything is enqueued. The graph owns its workspace and its data error record, may be launched on any stream of the
   device, and may outlive the stream that captured it. Its data errors are told by a stream that launched it, once no
   launch of it is in flight. Destroying a graph waits for its launches; graphs are destroyed before their runtime. A
   capture that the vendor's own calls began on a wrapped stream (or on a stream that waits for an event of such a
   capture) is seen too. rlk cannot see when its graph runs, so any stream of the device may tell its data errors.
   What it captured is released after its graph has died, where the backend can tell that, and else with the runtime,
   which outlives such graphs. The first such graph uses the workspace of the calls before: where it is launched on
   another stream, that stream waits for them first (rlk_graph_launch does so itself). */
RLK_API rlk_status rlk_graph_begin(rlk_stream* stream, rlk_error* error);
RLK_API rlk_status rlk_graph_end(rlk_stream* stream, rlk_graph** out, rlk_error* error);
RLK_API rlk_status rlk_graph_launch(rlk_graph* graph, rlk_stream* stream, rlk_error* error);
RLK_API rlk_status rlk_graph_destroy(rlk_graph* graph, rlk_error* error);

/* ---- questions -------------------------------------------------------------------------------------------------- */
/* Each writes a JSON document (schemas: share/rlk/schemas) into a string that rlk_string_free ends. */
RLK_API rlk_status rlk_list_json(rlk_runtime* runtime, char** out, rlk_error* error);
RLK_API rlk_status rlk_ops_json(char** out, rlk_error* error);
/* What rlk_call would do with these arguments (data may be NULL) on the stream's device, and why. The policy counts:
   where rlk_call would be refused, "chosen" is null and "refused" is the error's text. */
RLK_API rlk_status rlk_explain_json(rlk_stream* stream, const rlk_op* op, const void* params,
                                    const rlk_tensor* const* inputs, uint32_t n_inputs,
                                    const rlk_tensor* const* outputs, uint32_t n_outputs,
                                    const rlk_call_options* options, char** out, rlk_error* error);
/* Calls, plan-cache hits and misses, plans that were not ready, staged calls with their bytes and nanoseconds,
   fallbacks by reason, classes of calls never compared with the reference: {"schema": 1, "watch": {...}, "ops": [...]}.
 */
RLK_API rlk_status rlk_counters_json(rlk_runtime* runtime, char** out, rlk_error* error);
/* The same in the text format of Prometheus, for an endpoint of the application's own. RLK_COUNTERS=FILE writes it at
   the end of the process. */
RLK_API rlk_status rlk_counters_prometheus(rlk_runtime* runtime, char** out, rlk_error* error);
RLK_API void rlk_string_free(char* text);

#ifdef __cplusplus
}
#endif

#endif
