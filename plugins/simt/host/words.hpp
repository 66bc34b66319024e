// What the words of all skeletons are made of.
#pragma once

#include "../skeleton/each.h"

#define RLK_SIMT_LIST(...) __VA_ARGS__
#define RLK_SIMT_PARAMETER(name) static_cast<double>(call.params.name),
// Of (Type, name, what makes it), the last.
#define RLK_SIMT_MADE(Type, name, ...) __VA_ARGS__
// The name of the image that maps.inc is reading.
#define RLK_SIMT_NAME_(x) #x
#define RLK_SIMT_NAME(x) RLK_SIMT_NAME_(x)
#define RLK_SIMT_IMAGE_NAME RLK_SIMT_NAME(RLK_SIMT_IMAGE)

// The next of all implementations (maps.hpp).
#define RLK_SIMT_NUMBER(...)              \
  namespace rlk::simt::host::maps {       \
  template <>                             \
  struct Numbered<__COUNTER__ - kFirst> { \
    using type = __VA_ARGS__;             \
  };                                      \
  }
