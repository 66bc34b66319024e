// What is written beside or over what is there: two tensors side by side, and one number everywhere.
#include "../rows.hpp"

RLK_COMPOSED_MOVES(Fill, recorder.output(call.y, recorder.number(call.params.value, call.y.dtype));)
RLK_COMPOSED_MOVES(Cat, {
  recorder.output(columns(call.y, 0, call.A), recorder.input(call.a));
  recorder.output(columns(call.y, call.A, call.B), recorder.input(call.b));
})
