// A composed program's data errors, in the stream's record.
#pragma once

#include "primitives.hpp"

namespace rlk::ascend {

// Operands: masks of rows without a finite score and, if there are ids, of rows whose id is unknown, then the ids; if
// ids have places in a table, the same of those.
// Number: the first row. Reports the first row in error, unless the stream has a record.
void report(Builder& b, const ComposedStep& step);

bool reports();
// What the installed CANN lacks for it, or "aclnnMaxDim".
const char* report_functions();

}  // namespace rlk::ascend
