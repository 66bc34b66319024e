/* DRAFT "rlk.graph/1": capture the work of a stream once, replay it many times. The id stays when it is promoted. */
#ifndef RLK_ABI_EXT_DRAFT_GRAPH_H
#define RLK_ABI_EXT_DRAFT_GRAPH_H

#include "../../stream.h"

#define RLK_EXT_GRAPH "rlk.graph/1"

typedef struct rlk_plugin_graph rlk_plugin_graph; /* the plugin's; opaque to the host */

/* The host keeps every workspace, plan and data error record of the captured calls alive until destroy. Whether a
   stream captures is asked with rlk_stream_api.capture_id, which a plugin with this extension has. */
typedef struct rlk_graph_api {
  uint32_t struct_size;
  uint32_t reserved;
  rlk_status (*begin_capture)(rlk_plugin_stream*, rlk_error*);                       /* [stream] */
  rlk_status (*end_capture)(rlk_plugin_stream*, rlk_plugin_graph** out, rlk_error*); /* [stream] */
  rlk_status (*launch)(rlk_plugin_graph*, rlk_plugin_stream*, rlk_error*);           /* [stream] */
  rlk_status (*destroy)(rlk_plugin_graph*, rlk_error*);                              /* [thread-safe] */
} rlk_graph_api;

#endif
