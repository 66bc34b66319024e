/* The headers of the plugin ABI and of the public API as a program in C sees them. This one file is compiled as C11 and
   as C++11, 14, 17, 20 and 23, without a warning and without a byte of implicit padding. The sizes are those of a
   64-bit machine. */
#include <rlk/abi.h>
#include <rlk/abi/ext/draft/graph.h>
#include <rlk/rlk.h>
#include <rlk/sdk/params.h>

#include <stddef.h>

#include "operators.h"

#ifdef __cplusplus
#define PIN(type, bytes) static_assert(sizeof(type) == (bytes), #type " has another size than it had")
#else
#define PIN(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size than it had")
#endif

PIN(rlk_error, 512);
PIN(rlk_data_error, 32);
PIN(rlk_data_error_record, 32);
PIN(rlk_ext, 16);
PIN(rlk_private_params, 40);
PIN(rlk_dtype, 4);
PIN(rlk_tensor, 48);
PIN(rlk_tensor_list, 16);
PIN(rlk_host, 56);
PIN(rlk_log_service, 16);
PIN(rlk_allocate_service, 24);
PIN(rlk_parallel_service, 24);
PIN(rlk_kernel_cache_service, 40);
PIN(rlk_device_properties, 240);
PIN(rlk_native_device, 24);
PIN(rlk_device_api, 56);
PIN(rlk_stream_api, 128);
PIN(rlk_event_api, 72);
PIN(rlk_call_desc, 96);
PIN(rlk_support, 360);
PIN(rlk_plan_info, 96);
PIN(rlk_run, 112);
PIN(rlk_switch, 24);
PIN(rlk_implementation, 96);
PIN(rlk_evidence, 24);
PIN(rlk_evidence_sink, 24);
PIN(rlk_probe_result, 616);
PIN(rlk_attach_info, 32);
PIN(rlk_plugin, 168);
PIN(rlk_graph_api, 40);
PIN(rlk_logp_params, 48);
PIN(rlk_logp_backward_params, 48);
PIN(rlk_attention_params, 64);
PIN(rlk_add_params, 16);
PIN(rlk_device_allocator, 32);
PIN(rlk_host_allocator, 32);
PIN(rlk_thread_pool, 32);
PIN(rlk_runtime_options, 32);
PIN(rlk_call_options, 40);
PIN(rlk_choice, 32);
PIN(rlk_memory_statistics, 56);

static int defaults_are_set(void) {
  const rlk_logp_params logp = RLK_LOGP_PARAMS_INIT;
  const rlk_logp_backward_params logp_backward = RLK_LOGP_BACKWARD_PARAMS_INIT;
  const rlk_attention_params attention = RLK_ATTENTION_PARAMS_INIT;
  const rlk_add_params add = RLK_ADD_PARAMS_INIT;
  return logp.struct_size == sizeof(logp) && logp.ignore_index == -100 && logp.temperature == 1.0 &&
         logp_backward.struct_size == sizeof(logp_backward) && attention.struct_size == sizeof(attention) &&
         attention.causal == RLK_ATTENTION_CAUSAL_OFF && attention.window_left == -1 && attention.softcap == 0.0 &&
         add.struct_size == sizeof(add) && add.alpha == 1.0;
}

/* An implementation of attention that has `scale` and `softcap` alone. */
static int has_other_param(const rlk_attention_params* params) {
  static const rlk_attention_params defaults = RLK_ATTENTION_PARAMS_INIT;
  static const size_t known[] = {offsetof(rlk_attention_params, scale), offsetof(rlk_attention_params, softcap)};
  return rlk_other_param(params, &defaults, known, 2) != 0;
}

static int other_params_are_found(void) {
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  int right = !has_other_param(&params);
  params.scale = 0.5;
  params.softcap = 30.0;
  right = right && !has_other_param(&params);
  params.causal = RLK_ATTENTION_CAUSAL_ON;
  right = right && has_other_param(&params);
  params.struct_size = offsetof(rlk_attention_params, causal); /* of a host that does not know it */
  return right && !has_other_param(&params);
}

/* A plugin's table without the SDK: what a vendor who writes C writes. */
static const rlk_plugin* entry(const rlk_host* host, rlk_error* error) {
  static const rlk_plugin plugin = {sizeof(rlk_plugin),
                                    RLK_ABI_MAJOR,
                                    RLK_ABI_MINOR,
                                    RLK_ABI_DRAFT,
                                    0,
                                    0,
                                    0,
                                    0,
                                    "c",
                                    "c",
                                    "1",
                                    "In plain C",
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL,
                                    NULL};
  if (host->abi_major == RLK_ABI_MAJOR) return &plugin;
  if (error != NULL) error->status = RLK_ABI_MISMATCH;
  return NULL;
}

int main(void) {
  const rlk_plugin_entry_v1_fn fn = &entry;
  const rlk_host host = {sizeof(rlk_host), RLK_ABI_MAJOR, RLK_ABI_MINOR, RLK_ABI_DRAFT, 0, 0, "test", "1", NULL, NULL};
  const rlk_plugin* plugin = fn(&host, NULL);
  return defaults_are_set() && other_params_are_found() && plugin != NULL && plugin->struct_size == sizeof(rlk_plugin)
             ? 0
             : 1;
}
