// The sources of the kernels that are AMD's own, for hipRTC: own_texts.inc, which the build makes, names each.
#include "../simt/host/embedded_text.hpp"
#include "hip.hpp"

#define RLK_SIMT_TEXT(symbol, name, file) RLK_SIMT_EMBED_TEXT(symbol, file)
#include "own_texts.inc"
#undef RLK_SIMT_TEXT

namespace rlk::rocm {

const char* own_text(const std::string& file) {
#define RLK_SIMT_TEXT(symbol, name, path) \
  if (file == name) return rlk_simt_text_##symbol;
#include "own_texts.inc"
#undef RLK_SIMT_TEXT
  return nullptr;
}

}  // namespace rlk::rocm
