// What holds for every kernel of the built-in plugin, whatever its operator computes, tried with the cases that follow
// from the declarations:
//
//   threads   the bits, and the data error, are the same whatever the number of threads and the order of the ranges
//   strides   the bits are the same as of tensors without gaps, each in memory of its own
//   empties   a size of 0, of each symbol and of each two, alone and with every variation, gives golden's answer
//
// That rows do not depend on each other, and on their order, is for conformance to prove (classes.hpp).
#pragma once

#include <string>
#include <vector>

#include "core/declaration/declaration.hpp"

namespace rlk::test {

struct Tried {
  int threads = 0, strides = 0, empties = 0;  // calls
};

enum class Dtypes { every, first };  // of the declaration's first dtype variable

// What does not hold of the operator in the current instruction set, one text each, at most `most`.
std::vector<std::string> broken_properties(const core::OpDecl& decl, size_t most, Tried& tried,
                                           Dtypes dtypes = Dtypes::every);

}  // namespace rlk::test
