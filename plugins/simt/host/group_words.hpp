// The host's words for groups, with which maps.hpp reads the files of ../operators (../skeleton/groups.cuh).
#pragma once

#include "groups.hpp"
#include "words.hpp"

#define RLK_SIMT_SMALL_GROUPS(OP)
#define RLK_SIMT_PACKED_GROUPS(OP, What)
#define RLK_SIMT_GROUPS(OP, What, ...)                                                                       \
  namespace rlk::simt::host::groups {                                                                        \
  struct OP {                                                                                                \
    using Op = sdk::ops::OP;                                                                                 \
    static constexpr GroupsKernels kKernels = {RLK_SIMT_IMAGE_NAME, RLK_SIMT_IMAGE_NAME "_groups_" #OP "_"}; \
    static GroupsCall call_of(const sdk::Arguments<Op>& call) { return __VA_ARGS__; }                        \
  };                                                                                                         \
  }                                                                                                          \
  RLK_SIMT_NUMBER(Groups<groups::OP>)
