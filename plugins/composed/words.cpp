// What a reason to decline calls a word.
#include "words.hpp"

#include <cstddef>

namespace rlk::composed {

const char* name_of(Word word) {
  constexpr const char* kNames[] = {"an input",
                                    "a number",
                                    "a part",
                                    "other sizes",
                                    "a transposition",
                                    "a piece of memory",
                                    "rows of tokens",
                                    "columns beside columns",
                                    "a cast",
                                    "a copy",
                                    "an expansion",
                                    "a fill",
                                    "a range",
                                    "a sum",
                                    "a difference",
                                    "a product",
                                    "a quotient",
                                    "abs",
                                    "sqrt",
                                    "exp",
                                    "log",
                                    "tanh",
                                    "floor",
                                    "a bitwise and",
                                    "a bitwise xor",
                                    "less",
                                    "less_equal",
                                    "greater",
                                    "greater_equal",
                                    "equal",
                                    "not_equal",
                                    "and",
                                    "or",
                                    "a selection",
                                    "an index",
                                    "an integer",
                                    "a gather",
                                    "rows by an index",
                                    "columns by an index",
                                    "rows put by an index",
                                    "a product of matrices",
                                    "an order",
                                    "a shift",
                                    "a data error",
                                    "a sum of columns",
                                    "a maximum of columns",
                                    "the place of a maximum",
                                    "a sum of rows"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<size_t>(Word::sum_rows) + 1, "one name each");
  return kNames[static_cast<size_t>(word)];
}

}  // namespace rlk::composed
