// What calls that move data are made of.
#pragma once

#include "move.hpp"

namespace rlk::simt::host::moves {

// Sizes of lists and keys, and the launches of kernels 0 and 1 that sort them.
void sort_lists(MoveCall& call, int64_t lists, int64_t ids, int64_t places);

// Whether 16 bytes of the last dimension are read or written at once.
bool rows_in_packs(const rlk_tensor& tensor);

}  // namespace rlk::simt::host::moves
