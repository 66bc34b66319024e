// The Ascend plugin's declarations of libnnopbase.so and of the operators against CANN's headers, which are in no
// package that can be fetched. operators.h: includes the header of each operator that the plugin calls.
#include <aclnn/acl_meta.h>

#include "operators.h"
#include "plugins/ascend/runtime.hpp"
#include "same.hpp"

using rlk::ascend::Runtime;

#define RLK_SAME(name, result, arguments) \
  static_assert(rlk::headers::is_same_call<decltype(Runtime::name), decltype(&::name)>, #name);
RLK_ASCEND_NNOPBASE_REQUIRED(RLK_SAME)

#define RLK_SAME_OPERATOR(name, ...)                                                                             \
  static_assert(                                                                                                 \
      rlk::headers::is_same_call<decltype(Runtime::name.workspace), decltype(&::aclnn##name##GetWorkspaceSize)>, \
      "aclnn" #name "GetWorkspaceSize");                                                                         \
  static_assert(rlk::headers::is_same_call<rlk::ascend::Phase2, decltype(&::aclnn##name)>, "aclnn" #name);
RLK_ASCEND_OPERATORS(RLK_SAME_OPERATOR)
