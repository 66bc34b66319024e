// At which sizes is an operator tried beside its small ones? Those at which it is really run, and a ladder up to them,
// so that no vector path, tile or split that depends on a size stays unseen.
#pragma once

#include <vector>

#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

// Without any variation, the small ones first:
// - all residues of 16, of every symbol;
// - per symbol a ladder from kSmallest to the largest production size without a gap of more than four, for aligned
//   tensors and for misaligned ones, the other symbols small;
// - several symbols large together.
// Most are brief. The smoke test takes a part of the residues and production sizes, another one for each dtype.
std::vector<Case> size_cases(const OpDecl& decl, int dtype_choice, int form, bool smoke);

// A brief call in which no symbol is small, to try variations with; none where nothing can grow.
std::vector<Case> middle_bases(const OpDecl& decl, int dtype_choice, int form, bool smoke);

// Every option (a parameter, or what is present) in brief calls with one symbol at a size at which the operator is
// really run, and with one symbol at 1, the others small. An option's own loop over blocks, its tail and its split are
// else never seen, nor whether it takes the first element for granted.
std::vector<Case> option_cases(const OpDecl& decl, int dtype_choice, int form, bool smoke);

// Brief calls to try layouts with: all symbols large together, and each at a size at which the operator is really run,
// the widest first. In the full test also with several symbols larger.
std::vector<Case> production_bases(const OpDecl& decl, int dtype_choice, int form, bool smoke);

// Of all its tensors.
int64_t elements_of(const ConcreteCall& call);
// What a case costs, roughly: the products of a naive implementation, or the elements if there are more.
int64_t cost_of(const ConcreteCall& call);

}  // namespace rlk::core::conformance
