// The implementations of all maps and rows: the files of ../operators, read with the words below and those of
// row_words.hpp (maps.inc, which the build makes, includes each).
#pragma once

#include <rlk/sdk/ops.hpp>

#include "group_words.hpp"
#include "map.hpp"
#include "move_words.hpp"
#include "row_words.hpp"
#include "scan_words.hpp"
#include "token_words.hpp"
#include "words.hpp"

#include <tuple>
#include <utility>

namespace rlk::formula {}  // namespace rlk::formula

#define RLK_SIMT_MAP_MEMBER(name) call.name,
#define RLK_SIMT_MAP_NAME(name) #name,
#define RLK_SIMT_MAP_MEMBERS(list) RLK_SIMT_EACH(RLK_SIMT_MAP_MEMBER, RLK_SIMT_LIST list)

// views: lists. numbers: what follows the names in a MapCall.
#define RLK_SIMT_MAP_PART(OP, NAME, outs, out_views, ins, in_views, ...)                                              \
  namespace rlk::simt::host::maps {                                                                                   \
  struct NAME {                                                                                                       \
    static constexpr MapKernels kKernels = {RLK_SIMT_IMAGE_NAME, RLK_SIMT_IMAGE_NAME "_map_" #NAME "_"};              \
    static MapCall call_of(const sdk::Arguments<sdk::ops::OP>& call) {                                                \
      using namespace formula;                                                                                        \
      return {                                                                                                        \
          {RLK_SIMT_LIST out_views},                                                                                  \
          {RLK_SIMT_LIST in_views},                                                                                   \
          {RLK_SIMT_EACH(RLK_SIMT_MAP_NAME, RLK_SIMT_LIST outs) RLK_SIMT_EACH(RLK_SIMT_MAP_NAME, RLK_SIMT_LIST ins)}, \
          __VA_ARGS__};                                                                                               \
    }                                                                                                                 \
  };                                                                                                                  \
  }
#define RLK_SIMT_MAP_DECLARE(OP, ...)    \
  RLK_SIMT_MAP_PART(OP, OP, __VA_ARGS__) \
  RLK_SIMT_MAPS(OP, OP)

#define RLK_SIMT_MAP(OP, outs, ins, ...) \
  RLK_SIMT_MAP_DECLARE(OP, outs, (RLK_SIMT_MAP_MEMBERS(outs)), ins, (RLK_SIMT_MAP_MEMBERS(ins)), {})
#define RLK_SIMT_MAP_WITH(OP, outs, ins, numbers, ...)                                           \
  RLK_SIMT_MAP_DECLARE(OP, outs, (RLK_SIMT_MAP_MEMBERS(outs)), ins, (RLK_SIMT_MAP_MEMBERS(ins)), \
                       {RLK_SIMT_EACH(RLK_SIMT_PARAMETER, RLK_SIMT_LIST numbers)})
#define RLK_SIMT_MAP_OF(OP, outs, out_views, ins, in_views, ...) \
  RLK_SIMT_MAP_DECLARE(OP, outs, out_views, ins, in_views, {})
#define RLK_SIMT_MAP_BY(OP, outs, out_views, ins, in_views, made, ...) \
  RLK_SIMT_MAP_DECLARE(OP, outs, out_views, ins, in_views, RLK_SIMT_MADE made)
#define RLK_SIMT_MAP_HEAVY(OP, outs, ins, numbers, ...)                                          \
  RLK_SIMT_MAP_DECLARE(OP, outs, (RLK_SIMT_MAP_MEMBERS(outs)), ins, (RLK_SIMT_MAP_MEMBERS(ins)), \
                       {RLK_SIMT_EACH(RLK_SIMT_PARAMETER, RLK_SIMT_LIST numbers)}, MapKind::heavy)
#define RLK_SIMT_MAP_F64_BY(OP, outs, out_views, ins, in_views, made, ...) \
  RLK_SIMT_MAP_DECLARE(OP, outs, out_views, ins, in_views, RLK_SIMT_MADE made, MapKind::f64)
#define RLK_SIMT_MAP_SHORT_BY(OP, outs, out_views, ins, in_views, made, shape_of_call, expression, ...) \
  RLK_SIMT_MAP_F64_BY(OP, outs, out_views, ins, in_views, made, __VA_ARGS__)
#define RLK_SIMT_MAP_BITS(OP, outs, ins, ...) \
  RLK_SIMT_MAP_DECLARE(OP, outs, (RLK_SIMT_MAP_MEMBERS(outs)), ins, (RLK_SIMT_MAP_MEMBERS(ins)), {}, MapKind::bits)
#define RLK_SIMT_MAP_CAST(OP, outs, ins, in_views) \
  RLK_SIMT_MAP_DECLARE(OP, outs, (RLK_SIMT_MAP_MEMBERS(outs)), ins, in_views, {}, MapKind::cast)
#define RLK_SIMT_PART(OP, NAME, outs, out_views, ins, in_views, made, ...) \
  RLK_SIMT_MAP_PART(OP, NAME, outs, out_views, ins, in_views, RLK_SIMT_MADE made)
#define RLK_SIMT_PART_BITS(OP, NAME, outs, out_views, ins, in_views, ...) \
  RLK_SIMT_MAP_PART(OP, NAME, outs, out_views, ins, in_views, {}, MapKind::bits)
#define RLK_SIMT_MAPS(OP, ...) RLK_SIMT_NUMBER(Map<sdk::ops::OP, __VA_ARGS__>)

namespace rlk::simt::host::maps {

template <int>
struct Numbered;
constexpr int kFirst = __COUNTER__ + 1;

}  // namespace rlk::simt::host::maps

#include "maps.inc"

namespace rlk::simt::host::maps {

constexpr int kCount = __COUNTER__ - kFirst;
template <int... number>
std::tuple<typename Numbered<number>::type...> all(std::integer_sequence<int, number...>);

}  // namespace rlk::simt::host::maps

namespace rlk::simt::host {

using Maps = decltype(maps::all(std::make_integer_sequence<int, maps::kCount>()));

}  // namespace rlk::simt::host
