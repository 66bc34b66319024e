/* What the host offers to a plugin. */
#ifndef RLK_ABI_HOST_H
#define RLK_ABI_HOST_H

#include "status.h"

/* Lives as long as the process. */
typedef struct rlk_host {
  uint32_t struct_size;
  uint32_t abi_major, abi_minor, abi_draft;
  uint32_t min_plugin_minor; /* the oldest plugin this host accepts */
  uint32_t reserved;
  const char* name;
  const char* version;
  void* context; /* what get_service and every function of every service receive as their `context` */
  /* A service by id, or NULL when this host does not have it. Lives as long as the process. [thread-safe] */
  const void* (*get_service)(void* context, const char* id);
} rlk_host;

#define RLK_LOG_DEBUG 1
#define RLK_LOG_INFO 2
#define RLK_LOG_WARN 3
#define RLK_LOG_ERROR 4

/* Lines end up in the host's log under the plugin's id. */
#define RLK_SERVICE_LOG "rlk.log/1"
typedef struct rlk_log_service {
  uint32_t struct_size;
  uint32_t reserved;
  void (*write)(void* context, int32_t level, const char* plugin_id, const char* text); /* [thread-safe] */
} rlk_log_service;

/* Host memory for the plugin's own use, aligned to 64 bytes, counted in the host's statistics. */
#define RLK_SERVICE_ALLOCATE "rlk.allocate/1"
typedef struct rlk_allocate_service {
  uint32_t struct_size;
  uint32_t reserved;
  void* (*allocate)(void* context, uint64_t bytes); /* NULL when there is none left [thread-safe] */
  void (*deallocate)(void* context, void* memory);  /* NULL is accepted [thread-safe] */
} rlk_allocate_service;

/* The host's thread pool: a plugin brings none of its own. */
#define RLK_SERVICE_PARALLEL "rlk.parallel/1"
typedef void (*rlk_parallel_body)(void* user, int64_t begin, int64_t end);
typedef struct rlk_parallel_service {
  uint32_t struct_size;
  uint32_t reserved;
  /* Calls body over disjoint ranges that cover [0, n), each at least grain long but for the last, from several threads;
     returns when all are done. body must not throw. May be nested. [thread-safe] */
  void (*parallel_for)(void* context, int64_t n, int64_t grain, rlk_parallel_body body, void* user);
  uint32_t (*thread_count)(void* context); /* [thread-safe] */
} rlk_parallel_service;

/* Compiled kernels, kept on disk in the host's cache folder between processes. */
#define RLK_SERVICE_KERNEL_CACHE "rlk.kernel_cache/1"
typedef struct rlk_kernel_cache_service {
  uint32_t struct_size;
  uint32_t reserved;
  /* Copies the entry into memory of `capacity` bytes; *size becomes the entry's whole size. RLK_NOT_FOUND when there is
     none; nothing is copied when capacity is too small. [thread-safe] */
  rlk_status (*load)(void* context, const char* plugin_id, const char* key, void* memory, uint64_t capacity,
                     uint64_t* size);
  rlk_status (*store)(void* context, const char* plugin_id, const char* key, const void* memory, uint64_t size);
  /* Asks to compile what load did not find; of many processes one may. RLK_OK: the caller compiles, then stores
     or abandons the key; RLK_NOT_READY: another process or thread does, load again later. A dead process has abandoned.
     RLK_UNSUPPORTED: no cache folder, compile for yourself. [thread-safe] */
  rlk_status (*begin)(void* context, const char* plugin_id, const char* key);
  void (*abandon)(void* context, const char* plugin_id, const char* key); /* [thread-safe] */
} rlk_kernel_cache_service;

#endif
