/* A stream: the order in which a device does its work. */
#ifndef RLK_ABI_STREAM_H
#define RLK_ABI_STREAM_H

#include "device.h"

typedef struct rlk_plugin_stream rlk_plugin_stream; /* the plugin's; opaque to the host */
typedef struct rlk_plugin_event rlk_plugin_event;   /* the plugin's; opaque to the host */

#define RLK_COPY_HOST_TO_DEVICE 1
#define RLK_COPY_DEVICE_TO_HOST 2
#define RLK_COPY_DEVICE_TO_DEVICE 3

typedef void (*rlk_host_function)(void* user); /* must not call the vendor runtime */

/* A slot marked (optional) is NULL or answers RLK_UNSUPPORTED where the device cannot do it. */
typedef struct rlk_stream_api {
  uint32_t struct_size;
  uint32_t reserved;
  /* priority: 0 is normal, lower numbers are more urgent, clamped to what the device has. [thread-safe] */
  rlk_status (*create)(rlk_plugin_device*, int32_t priority, rlk_plugin_stream** out, rlk_error*);
  /* Borrows the vendor's stream, which must outlive the result. NULL is the vendor's default stream. [thread-safe] */
  rlk_status (*wrap)(rlk_plugin_device*, void* native, rlk_plugin_stream** out, rlk_error*);
  /* Waits for the stream's work first, but for a wrapped stream. Ends the life of the handle in any case. [stream] */
  rlk_status (*destroy)(rlk_plugin_stream*, rlk_error*);
  /* The vendor's handle, for operator plugins of the same backend. One pointer is the whole answer, which cannot fail;
     a device has several, and fills a struct (rlk_native_device). [thread-safe] */
  void* (*native)(rlk_plugin_stream*);
  /* RLK_OK: all work is done; RLK_NOT_READY; RLK_DATA_ERROR: done, and *data_error (may be NULL) tells the first data
     error since the last question, which is then forgotten; any other status is an asynchronous failure. Data errors
     that kernels wrote to rlk_run.data_error_record are the host's to find; only a plugin that records them in another
     way answers RLK_DATA_ERROR. [stream] */
  rlk_status (*query)(rlk_plugin_stream*, rlk_data_error* data_error, rlk_error*);
  /* The same, waiting up to timeout_ns (0 does not wait, UINT64_MAX waits for ever); RLK_TIMEOUT. [stream] */
  rlk_status (*synchronize)(rlk_plugin_stream*, uint64_t timeout_ns, rlk_data_error* data_error, rlk_error*);
  /* Later work of the stream waits for the event's last record. [stream] */
  rlk_status (*wait_event)(rlk_plugin_stream*, rlk_plugin_event*, rlk_error*);
  /* kind is RLK_COPY_*; host memory is pinned. Asynchronous. [stream] */
  rlk_status (*copy)(rlk_plugin_stream*, void* destination, const void* source, uint64_t bytes, int32_t kind,
                     rlk_error*);
  rlk_status (*fill)(rlk_plugin_stream*, void* memory, uint8_t value, uint64_t bytes, rlk_error*); /* bytes [stream] */
  /* Calls function on a host thread, in stream order. [stream] (optional) */
  rlk_status (*enqueue_host_function)(rlk_plugin_stream*, rlk_host_function function, void* user, rlk_error*);
  /* Device memory in stream order. [stream] (optional, both or neither) */
  rlk_status (*allocate_async)(rlk_plugin_stream*, uint64_t bytes, void** out, rlk_error*);
  rlk_status (*deallocate_async)(rlk_plugin_stream*, void* memory, rlk_error*);
  /* Between the memories of two devices of this plugin, in the order of this stream, which belongs to one of the two.
     Needs no common address space. [stream] (optional) */
  rlk_status (*copy_peer)(rlk_plugin_stream*, void* destination, rlk_plugin_device* destination_device,
                          const void* source, rlk_plugin_device* source_device, uint64_t bytes, rlk_error*);
  /* The graph capture that the stream is part of, begun by rlk or not; 0: none. No two captures of a process have one
     number. [stream] (optional: the device cannot capture) */
  rlk_status (*capture_id)(rlk_plugin_stream*, uint64_t* out, rlk_error*);
  /* While it captures: release(user) is called once, when nothing made of this capture can run any more. It must not
     call the vendor runtime. [stream] (optional: the host then keeps what was captured for ever) */
  rlk_status (*capture_retain)(rlk_plugin_stream*, rlk_host_function release, void* user, rlk_error*);
} rlk_stream_api;

#define RLK_EVENT_TIMING 1u /* the event can be used with elapsed */

typedef struct rlk_event_api {
  uint32_t struct_size;
  uint32_t reserved;
  rlk_status (*create)(rlk_plugin_device*, uint32_t flags, rlk_plugin_event** out, rlk_error*); /* [thread-safe] */
  rlk_status (*destroy)(rlk_plugin_event*, rlk_error*);                                         /* [thread-safe] */
  rlk_status (*record)(rlk_plugin_event*, rlk_plugin_stream*, rlk_error*);                      /* [thread-safe] */
  /* RLK_OK when the last record has been reached (or there was none), RLK_NOT_READY, or the failure of the work before
     it. [thread-safe] */
  rlk_status (*query)(rlk_plugin_event*, rlk_error*);
  rlk_status (*synchronize)(rlk_plugin_event*, uint64_t timeout_ns, rlk_error*); /* [thread-safe] */
  /* Both were created with RLK_EVENT_TIMING and reached. [thread-safe] (optional) */
  rlk_status (*elapsed_ms)(rlk_plugin_event* start, rlk_plugin_event* end, double* out, rlk_error*);
  /* Borrows the vendor's event, which must outlive the result. [thread-safe] (optional) */
  rlk_status (*wrap)(rlk_plugin_device*, void* native, rlk_plugin_event** out, rlk_error*);
  void* (*native)(rlk_plugin_event*); /* the vendor's handle [thread-safe] (optional) */
} rlk_event_api;

#endif
