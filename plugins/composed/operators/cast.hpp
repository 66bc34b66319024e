// Numbers in another dtype, by no other on the way, and what is copied or chosen as it is.
#include "../map.hpp"

RLK_COMPOSED_MOVES(Cast, recorder.output(call.y, recorder.input(call.x));)
RLK_COMPOSED_MOVES(Copy, recorder.output(call.y, recorder.input(call.x));)
RLK_COMPOSED_MOVES(Where, {
  const int condition = recorder.cast(recorder.input(call.condition), sdk::Dtype::boolean);
  recorder.output(call.out, recorder.select(condition, recorder.input(call.a), recorder.input(call.b)));
})
