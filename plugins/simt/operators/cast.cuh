// Numbers in another dtype, and one number everywhere.
#include "../skeleton/map.cuh"

RLK_SIMT_MAP_CAST(Cast, (y), (x), (call.x))
RLK_SIMT_MAP_CAST(Fill, (y), (value), (number_everywhere(call.params.value)))
