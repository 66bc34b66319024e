// The Ascend plugin's declarations of libnnopbase.so against those of PyTorch's extension for it, which finds the same
// functions by name. typedefs.h: cut from its header, which needs PyTorch.
#include <acl/acl.h>

#include "plugins/ascend/runtime.hpp"
#include "same.hpp"
#include "typedefs.h"

#define RLK_SAME(name) static_assert(rlk::headers::is_same_call<decltype(rlk::ascend::Runtime::name), _##name>, #name);
RLK_SAME(aclCreateTensor)
RLK_SAME(aclDestroyTensor)
RLK_SAME(aclCreateScalar)
RLK_SAME(aclDestroyScalar)
RLK_SAME(aclCreateIntArray)
RLK_SAME(aclDestroyIntArray)
RLK_SAME(aclCreateTensorList)
RLK_SAME(aclDestroyTensorList)
static_assert(rlk::headers::is_same_call<rlk::ascend::Phase2, OpApiFunc>);
