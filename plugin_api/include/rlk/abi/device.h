/* A device: its properties and its memory. */
#ifndef RLK_ABI_DEVICE_H
#define RLK_ABI_DEVICE_H

#include "status.h"

typedef struct rlk_plugin_device rlk_plugin_device; /* the plugin's; opaque to the host */

#define RLK_DEVICE_UNIFIED_MEMORY 1u /* device memory is host memory: no copies, plain pointers (the CPU) */
#define RLK_DEVICE_INLINE_STREAMS 2u /* work is done when enqueue returns (the CPU) */
#define RLK_DEVICE_MAPPED_PINNED 4u  /* kernels read and write pinned memory at the address that the host uses */

/* What is known of a device without opening it. */
typedef struct rlk_device_properties {
  uint32_t struct_size; /* in: sizeof of the caller */
  uint32_t flags;       /* out: RLK_DEVICE_* */
  uint32_t simt_width;  /* out: threads that execute together; 0 when the device is not SIMT */
  uint32_t compute_units;
  uint64_t memory_bytes;
  uint64_t l2_bytes;
  int32_t numa_node; /* of the host memory nearest to the device, -1 when unknown */
  /* out: what DLPack calls the device of its tensors (kDLCUDA 2, kDLROCM 10, kDLExtDev 12); 0 when the plugin does not
     say. By it, and by pointer_kind where several backends say the same, an embedder's tensor finds its backend. */
  int32_t dlpack_device_type;
  uint8_t uuid[16]; /* the card's own, all 0 when it has none */
  char name[64];
  char arch[32];            /* "sm_90", "gfx942", "Ascend910B4", "x86-64 AVX3" */
  char pci_bus_id[24];      /* "0000:17:00.0", a domain of up to 8 digits, or empty */
  char driver_version[32];  /* as the vendor writes it, or empty */
  char runtime_version[32]; /* likewise */
} rlk_device_properties;

/* The vendor's own names for an open device, for plugins that bring operators for it. */
typedef struct rlk_native_device {
  uint32_t struct_size; /* in */
  int32_t ordinal;      /* in the vendor runtime's numbering in this process */
  int64_t device;       /* the vendor's device handle as a number (CUdevice, hipDevice_t), or the ordinal again */
  void* context;        /* the vendor's context (CUcontext, aclrtContext), NULL where there is none */
} rlk_native_device;

#define RLK_MEMORY_DEVICE 0
#define RLK_MEMORY_PINNED 1 /* host memory that the device reaches and copies asynchronously */

#define RLK_POINTER_UNKNOWN 0 /* not this runtime's: ordinary host memory, usually */
#define RLK_POINTER_DEVICE 1
#define RLK_POINTER_PINNED 2

/* Every slot is [thread-safe], may be called while no device is current on the thread (the plugin makes it so and puts
   back what was current), and breaks no graph capture that runs on any thread. A slot marked (optional) is NULL where
   the device cannot do it, or answers RLK_UNSUPPORTED where the plugin learns that only from the vendor's runtime. */
typedef struct rlk_device_api {
  uint32_t struct_size;
  uint32_t reserved;
  /* kind is RLK_MEMORY_*; aligned to 256 bytes. bytes is not 0. Blocking allowed: the host caches. */
  rlk_status (*allocate)(rlk_plugin_device*, int32_t kind, uint64_t bytes, void** out, rlk_error*);
  /* No work that uses the memory is in flight: the host has seen to it. */
  rlk_status (*deallocate)(rlk_plugin_device*, int32_t kind, void* memory, rlk_error*);
  rlk_status (*memory_info)(rlk_plugin_device*, uint64_t* free_bytes, uint64_t* total_bytes, rlk_error*);
  rlk_status (*pointer_kind)(rlk_plugin_device*, const void* pointer, int32_t* out, rlk_error*);        /* (optional) */
  rlk_status (*can_access_peer)(rlk_plugin_device*, rlk_plugin_device* peer, int32_t* out, rlk_error*); /* (optional) */
  rlk_status (*native)(rlk_plugin_device*, rlk_native_device* out, rlk_error*);                         /* (optional) */
} rlk_device_api;

#endif
