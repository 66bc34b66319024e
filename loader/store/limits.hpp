// What the system lets this process have (ulimit): a plugin that fails for want of it has no fault of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rlk::loader {

// The soft limits that a plugin may run into, in a fixed order; children inherit them.
std::vector<uint64_t> resource_limits();

// May a process with `mine` have more of anything than `theirs` allowed? Also when the two cannot be compared.
bool may_have_more(const std::vector<uint64_t>& mine, const std::vector<uint64_t>& theirs);

// The limits that are lower than programs are used to, in words: "open files 200 (ulimit -n)"; "" when there are none.
std::string describe_tight_limits(const std::vector<uint64_t>& limits);

}  // namespace rlk::loader
