// Which elements stand for a call of which each element is a call of its own? Such a call is judged at any size: by
// elements where indices and grids run out, and by others drawn at random.
#pragma once

#include <optional>
#include <vector>

#include "core/conformance/sample.hpp"

namespace rlk::core::conformance {

// Whether each element of every output follows from the elements at its place alone.
bool is_elementwise(const OpDecl& decl);

// Element numbers below `total` at which something runs out, the largest first: powers of two (an index of 24, 31 or 32
// bits, of elements or of bytes) and those times 65535 (a grid's y, times the threads of a block and what each takes).
std::vector<int64_t> boundaries(int64_t total);

// At most `most` elements of the call: the first and the last of each axis, those about boundaries, and others drawn
// with the seed. nullopt where the operator is not elementwise. `whole` needs no values.
std::optional<Sample> some_elements(const ConcreteCall& whole, int64_t most, uint64_t seed);

}  // namespace rlk::core::conformance
