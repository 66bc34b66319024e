// The host's words for moves, with which maps.hpp reads the files of ../operators (../skeleton/move.cuh).
#pragma once

#include "move.hpp"
#include "words.hpp"

#define RLK_SIMT_MOVES(OP, kernels, ...)                                                    \
  namespace rlk::simt::host::moves {                                                        \
  struct OP {                                                                               \
    using Op = sdk::ops::OP;                                                                \
    static constexpr MoveKernels kKernels = {RLK_SIMT_IMAGE_NAME, {RLK_SIMT_LIST kernels}}; \
    static MoveCall call_of(const sdk::Arguments<Op>& call) { return __VA_ARGS__; }         \
  };                                                                                        \
  }                                                                                         \
  RLK_SIMT_NUMBER(Moves<host::moves::OP>)
#define RLK_SIMT_MOVES_BY(OP, call, ...) RLK_SIMT_MOVES(OP, (#OP), call)
#define RLK_SIMT_MOVES_KERNEL(name, ...)
#define RLK_SIMT_MOVES_KERNEL_OF(name, threads, ...)
#define RLK_SIMT_MOVES_UNITS(name, ...)
