/* The plugin itself: identity, evidence, devices, implementations; and the one symbol that it exports.

   Thread tags, at each slot of this ABI:
     [init]         one thread at a time for the whole plugin, and not from inside another slot of it
     [thread-safe]  any thread, any number at once
     [stream]       one such call at a time on one stream; different streams in parallel, each from any thread
     [plan]         one such call at a time on one plan
   No slot may leave by an exception, longjmp, exit or pthread_exit, nor change the thread's signal mask, floating-point
   mode or current directory. A plugin that was loaded stays loaded until the process ends: there is no unload, and
   static tables and the code of callbacks live as long. */
#ifndef RLK_ABI_PLUGIN_H
#define RLK_ABI_PLUGIN_H

#include "host.h"
#include "op.h"
#include "version.h"

typedef struct rlk_plugin_instance rlk_plugin_instance; /* the plugin's; opaque to the host */

/* One thing the plugin saw while it decided whether the hardware is its own. */
typedef struct rlk_evidence {
  uint32_t struct_size;
  int32_t supports; /* 1: speaks for "mine"; 0: against; -1: neither */
  const char*
      kind; /* "device_node", "pci_id", "runtime_library", "runtime_version", "device_name", "simt_width", ... */
  const char* value; /* what was seen */
} rlk_evidence;

/* Where probe reports to; copies what it is given. */
typedef struct rlk_evidence_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  void (*add)(void* context, const rlk_evidence*); /* [during probe] */
} rlk_evidence_sink;

#define RLK_PROBE_MINE 1
#define RLK_PROBE_NOT_MINE 2 /* the runtime is here, but the hardware belongs to another plugin */
#define RLK_PROBE_ABSENT 3   /* the runtime or the hardware is not here */
#define RLK_PROBE_BROKEN 4   /* what is here cannot work until it is mended: rejected, with the reason */

typedef struct rlk_probe_result {
  uint32_t struct_size; /* in */
  int32_t verdict;
  char reason_code[32]; /* with NOT_MINE and ABSENT: "RUNTIME_LIBRARY_MISSING", "NO_DEVICE", ... */
  char reason[256];
  char hint[256];               /* what the operator of the machine can do */
  char runtime_fingerprint[64]; /* changes when a verdict should be made anew: driver and runtime versions */
} rlk_probe_result;

/* For a plugin that brings operators for another plugin's device. Pointers live as long as the attached device. */
typedef struct rlk_attach_info {
  uint32_t struct_size;
  uint32_t ordinal; /* in the numbering of the backend's own plugin */
  const char* backend;
  const rlk_device_properties* properties;
  const rlk_native_device* native; /* NULL where the backend's plugin cannot say */
} rlk_attach_info;

#define RLK_PLUGIN_OPERATORS_ONLY 1u /* no devices of its own: device_attach instead of device_open */

/* Lives as long as the process. */
typedef struct rlk_plugin {
  uint32_t struct_size;
  uint32_t abi_major, abi_minor, abi_draft; /* what the plugin was built for */
  uint32_t min_host_minor;                  /* the oldest host it accepts */
  uint32_t flags;
  uint32_t n_implementations;
  uint32_t reserved;
  const char* id;      /* unique: "cuda", "acme" */
  const char* backend; /* "cuda", "rocm", "maca", "ascend", "cambricon", "cpu", or a vendor's own word */
  const char* version;
  const char* description;
  const rlk_implementation* const* implementations; /* [n_implementations] */
  const rlk_device_api* device;                     /* NULL with RLK_PLUGIN_OPERATORS_ONLY */
  const rlk_stream_api* stream;                     /* with OPERATORS_ONLY: wrap and destroy suffice */
  const rlk_event_api* event;                       /* NULL with OPERATORS_ONLY */
  /* The first call that may touch the vendor runtime. [init] */
  rlk_status (*create)(const rlk_host*, rlk_plugin_instance** out, rlk_error*);
  rlk_status (*destroy)(rlk_plugin_instance*, rlk_error*); /* after everything made from it is gone [init] */
  /* Is this machine's hardware mine, and why? Absent hardware is RLK_OK with a verdict, not an error. [init] */
  rlk_status (*probe)(rlk_plugin_instance*, const rlk_evidence_sink*, rlk_probe_result* out, rlk_error*);
  rlk_status (*device_count)(rlk_plugin_instance*, uint32_t* out, rlk_error*); /* [init] */
  /* Without opening it: no context, no memory of the device. Absent with OPERATORS_ONLY. [init] */
  rlk_status (*device_describe)(rlk_plugin_instance*, uint32_t ordinal, rlk_device_properties* out, rlk_error*);
  /* When the device is first used, on whatever thread that is; at most once per ordinal. [thread-safe] */
  rlk_status (*device_open)(rlk_plugin_instance*, uint32_t ordinal, rlk_plugin_device** out, rlk_error*);
  rlk_status (*device_attach)(rlk_plugin_instance*, const rlk_attach_info*, rlk_plugin_device** out, rlk_error*);
  rlk_status (*device_close)(rlk_plugin_device*, rlk_error*); /* after all its streams, events and plans [init] */
  /* An optional facility by id and revision ("rlk.graph/1"), or NULL. [thread-safe] (optional) */
  const void* (*get_extension)(rlk_plugin_instance*, const char* id);
} rlk_plugin;

/* The one exported symbol. Returns NULL and fills the error when host and plugin do not fit. It must not touch the
   vendor runtime. */
#define RLK_PLUGIN_ENTRY_SYMBOL "rlk_plugin_entry_v1"
typedef const rlk_plugin* (*rlk_plugin_entry_v1_fn)(const rlk_host*, rlk_error*);
#ifdef __cplusplus
extern "C" {
#endif
__attribute__((visibility("default"))) const rlk_plugin* rlk_plugin_entry_v1(const rlk_host*, rlk_error*);
#ifdef __cplusplus
}
#endif

#endif
