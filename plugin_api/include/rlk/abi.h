/* Everything that a plugin shares with the host: include this one. */
#ifndef RLK_ABI_H
#define RLK_ABI_H

#include "abi/device.h"
#include "abi/host.h"
#include "abi/op.h"
#include "abi/plugin.h"
#include "abi/status.h"
#include "abi/stream.h"
#include "abi/tensor.h"
#include "abi/version.h"

#endif
