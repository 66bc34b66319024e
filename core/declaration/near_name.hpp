// What a mistyped word was meant for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rlk::core {

// The slips of a typist that lead from one word to the other: letters put in, left out, replaced, or two swapped.
size_t slips_between(std::string_view a, std::string_view b);

// The nearest name, "" when none is near: more slips than a third of the word's letters are another word.
std::string near_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace rlk::core
