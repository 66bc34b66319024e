// A file that includes this and files of operators/ compiles what all vendors have of those operators.
#pragma once

#include <rlk/sdk/ops.hpp>

#include "composition.hpp"
#include "map.hpp"
#include "rows.hpp"
#include "scores.hpp"
#include "tokens.hpp"

#define RLK_COMPOSED_LISTED(Operator)    \
  namespace rlk::composed {              \
  template struct Composition<Operator>; \
  }
