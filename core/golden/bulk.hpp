// Numbers of a whole array at once, as View::load_at gives them one by one.
#pragma once

#include <span>

#include "core/golden/golden.hpp"

namespace rlk::golden {

// values.size() contiguous elements.
void load_all(const void* data, Dtype dtype, std::span<double> values);

}  // namespace rlk::golden
