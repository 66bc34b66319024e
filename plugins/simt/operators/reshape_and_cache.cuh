// Keys and values of tokens copied into the slots of a paged cache. Of two tokens with one slot the later one stays: of
// few tokens each looks at those behind it, of many a slot remembers the last one that named it.
#include "../skeleton/cache.cuh"

RLK_SIMT_MOVES_UNITS(clear, cache_clear(args, unit);)
RLK_SIMT_MOVES_UNITS(mark, cache_mark(args, unit);)
RLK_SIMT_MOVES_UNITS(put, cache_put(args, unit);)
RLK_SIMT_MOVES(ReshapeAndCache, ("clear", "mark", "put"), cached(call))
