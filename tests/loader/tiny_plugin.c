/* The smallest file that passes the screen: the entry symbol and the ABI note, and nothing behind them. */
#include <rlk/abi/version.h>
#include <stdint.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

struct note {
  uint32_t name_bytes, description_bytes, type;
  char name[4];
  char description[64];
};
#define DESCRIPTION \
  "abi=" TEXT(RLK_ABI_MAJOR) "." TEXT(RLK_ABI_MINOR) ";draft=" TEXT(RLK_ABI_DRAFT) ";id=tiny;backend=acme;version=0." \
                                                                                   "1.0"
__attribute__((section(".note.rlk"), used, aligned(4))) static const struct note note = {4, sizeof(DESCRIPTION), 1,
                                                                                         "rlk", DESCRIPTION};

__attribute__((visibility("default"))) const void* rlk_plugin_entry_v1(const void* host, void* error);
const void* rlk_plugin_entry_v1(const void* host, void* error) {
  (void)host;
  (void)error;
  return 0;
}
