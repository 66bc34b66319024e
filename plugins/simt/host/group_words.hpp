// The host's words for groups, with which maps.hpp reads the files of ../operators (../skeleton/groups.cuh).
#pragma once

#include "groups.hpp"

#define RLK_SIMT_GROUPS_TEXT_(x) #x
#define RLK_SIMT_GROUPS_TEXT(x) RLK_SIMT_GROUPS_TEXT_(x)
#define RLK_SIMT_SMALL_GROUPS(OP)
#define RLK_SIMT_GROUPS(OP, What, ...)                                                                   \
  namespace rlk::simt::host::groups {                                                                    \
  struct OP {                                                                                            \
    using Op = sdk::ops::OP;                                                                             \
    static constexpr GroupsKernels kKernels = {RLK_SIMT_GROUPS_TEXT(RLK_SIMT_IMAGE),                     \
                                               RLK_SIMT_GROUPS_TEXT(RLK_SIMT_IMAGE) "_groups_" #OP "_"}; \
    static GroupsCall call_of(const sdk::Arguments<Op>& call) { return __VA_ARGS__; }                    \
  };                                                                                                     \
  }                                                                                                      \
  namespace rlk::simt::host::maps {                                                                      \
  template <>                                                                                            \
  struct Numbered<__COUNTER__ - kFirst> {                                                                \
    using type = Groups<groups::OP>;                                                                     \
  };                                                                                                     \
  }
