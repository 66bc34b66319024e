// rlk's loops on torch's threads: calls of both in turn on the CPU would else be slowed by two pools, whose waiting
// threads take the processors from each other.
#pragma once

namespace rlk::torch {

// After bind_shim. As many threads as torch.set_num_threads says; inside a parallel region of torch's the caller's
// alone.
void share_threads();

}  // namespace rlk::torch
