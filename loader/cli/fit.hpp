// Arrays with the shapes in which people have them, to those that a declaration names.
#pragma once

#include <string>
#include <vector>

#include "loader/cli/execution.hpp"

namespace rlk::cli {

// Of each input behind the first ones that give a symbol its size:
// - a size of 1, but for the first, is repeated: advantages [B, 1] serve [B, T];
// - sizes of 1 behind the declared ones are dropped: [B, 1] serves [B];
// - a number without dimensions serves [1].
// What does not fit in these ways is left alone, for validation to refuse. Returns a sentence for each change that
// repeats.
std::vector<std::string> fit_shapes(OpCall* call, Arrays* inputs);

// What to write for inputs that nothing fitted: shapes that would be, and the casts of dtypes that are not the expected
// ones. `files` has the file of each input, "" where there is none.
std::string hints(const OpCall& call, const std::vector<std::string>& files);

}  // namespace rlk::cli
