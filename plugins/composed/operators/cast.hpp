// Numbers in another dtype.
#include "../map.hpp"

RLK_COMPOSED_CAST(Cast, call.y, call.x)
