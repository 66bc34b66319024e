/* Whether every parameter of a call but those that an implementation has is at its default. In C, for C++ too. */
#ifndef RLK_SDK_PARAMS_H
#define RLK_SDK_PARAMS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The offset of the first parameter that differs from its default and is not among the n_known offsets; 0 when there is
   none. `params` is rlk_call_desc.params, `defaults` a RLK_<OP>_PARAMS_INIT of the plugin's own. Parameters beyond the
   shorter of the two are the host's business: it has declined what the plugin cannot know.

     static const rlk_policy_loss_params defaults = RLK_POLICY_LOSS_PARAMS_INIT;
     static const size_t known[] = {offsetof(rlk_policy_loss_params, clip_low), offsetof(rlk_policy_loss_params, beta)};
     if (rlk_other_param(call->params, &defaults, known, 2) != 0) decline; */
static inline uint32_t rlk_other_param(const void* params, const void* defaults, const size_t* known, size_t n_known) {
  uint32_t size, own_size, offset;
  size_t k;
  memcpy(&size, params, sizeof(size));
  memcpy(&own_size, defaults, sizeof(own_size));
  if (own_size < size) size = own_size;
  /* Behind struct_size and reserved, each takes 8 bytes. */
  for (offset = 8; size >= 8 && offset <= size - 8; offset += 8) {
    if (memcmp((const char*)params + offset, (const char*)defaults + offset, 8) == 0) continue;
    for (k = 0; k < n_known && known[k] != offset; ++k) {
    }
    if (k == n_known) return offset;
  }
  return 0;
}

#endif
