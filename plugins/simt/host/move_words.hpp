// The host's words for moves, with which maps.hpp reads the files of ../operators (../skeleton/move.cuh).
#pragma once

#include "../skeleton/each.h"
#include "move.hpp"

#define RLK_SIMT_MOVES_LIST(...) __VA_ARGS__
#define RLK_SIMT_MOVES_TEXT_(x) #x
#define RLK_SIMT_MOVES_TEXT(x) RLK_SIMT_MOVES_TEXT_(x)

#define RLK_SIMT_MOVES(OP, kernels, ...)                                                                          \
  namespace rlk::simt::host::moves {                                                                              \
  struct OP {                                                                                                     \
    using Op = sdk::ops::OP;                                                                                      \
    static constexpr MoveKernels kKernels = {RLK_SIMT_MOVES_TEXT(RLK_SIMT_IMAGE), {RLK_SIMT_MOVES_LIST kernels}}; \
    static MoveCall call_of(const sdk::Arguments<Op>& call) { return __VA_ARGS__; }                               \
  };                                                                                                              \
  }                                                                                                               \
  namespace rlk::simt::host::maps {                                                                               \
  template <>                                                                                                     \
  struct Numbered<__COUNTER__ - kFirst> {                                                                         \
    using type = Moves<host::moves::OP>;                                                                          \
  };                                                                                                              \
  }
#define RLK_SIMT_MOVES_BY(OP, call, ...) RLK_SIMT_MOVES(OP, (#OP), call)
#define RLK_SIMT_MOVES_KERNEL(name, ...)
#define RLK_SIMT_MOVES_KERNEL_OF(name, threads, ...)
#define RLK_SIMT_MOVES_UNITS(name, ...)
