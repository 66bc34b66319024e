// The host's words for rows, with which maps.hpp reads the files of ../operators (../skeleton/rows.cuh).
#pragma once

#include "../skeleton/each.h"
#include "rows.hpp"

#define RLK_SIMT_ROWS_LIST(...) __VA_ARGS__
#define RLK_SIMT_ROWS_IS_out(name) \
  { RowsArgument::Kind::out, #name, call.name }
#define RLK_SIMT_ROWS_IS_narrow_out(name) \
  { RowsArgument::Kind::narrow_out, #name, call.name }
#define RLK_SIMT_ROWS_IS_in(name) \
  { RowsArgument::Kind::in, #name, call.name }
#define RLK_SIMT_ROWS_IS_streamed(name) \
  { RowsArgument::Kind::streamed, #name, call.name }
#define RLK_SIMT_ROWS_IS_or_one(name) \
  { RowsArgument::Kind::or_one, #name, call.name }
#define RLK_SIMT_ROWS_IS_or_zero(name) \
  { RowsArgument::Kind::or_zero, #name, call.name }
#define RLK_SIMT_ROWS_IS_of_row(name) \
  { RowsArgument::Kind::of_row, #name, call.name }
#define RLK_SIMT_ROWS_IS_id_of_row(name) \
  { RowsArgument::Kind::id_of_row, #name, call.name }
#define RLK_SIMT_ROWS_IS_list_of_row(name) \
  { RowsArgument::Kind::list_of_row, #name, call.name }
#define RLK_SIMT_ROWS_IS_ids_of_row(name) \
  { RowsArgument::Kind::ids_of_row, #name, call.name }
#define RLK_SIMT_ROWS_IS_kept(name) \
  { RowsArgument::Kind::kept, #name, nullptr }
#define RLK_SIMT_ROWS_IS_kept_of_block(name) \
  { RowsArgument::Kind::kept_of_block, #name, nullptr }
#define RLK_SIMT_ROWS_IS_of_column(name) \
  { RowsArgument::Kind::of_column, #name, call.name }
#define RLK_SIMT_ROWS_IS_wide_out(name) \
  { RowsArgument::Kind::wide_out, #name, call.name }
#define RLK_SIMT_ROWS_IS_integer_of_row(name) \
  { RowsArgument::Kind::integer_of_row, #name, call.name }
#define RLK_SIMT_ROWS_IS_integers_of_row(name) \
  { RowsArgument::Kind::integers_of_row, #name, call.name }
#define RLK_SIMT_ROWS_IS_of_call(name) \
  { RowsArgument::Kind::of_call, #name, call.name }
#define RLK_SIMT_ROWS_IS_integers_of_call(name) \
  { RowsArgument::Kind::integers_of_call, #name, call.name }
#define RLK_SIMT_ROWS_IS_of_block(name) \
  { RowsArgument::Kind::of_block, #name, call.name }
#define RLK_SIMT_ROWS_IS_kept_once(name) \
  { RowsArgument::Kind::kept_once, #name, nullptr }
#define RLK_SIMT_ROWS_ARGUMENT(argument) RLK_SIMT_CAT(RLK_SIMT_ROWS_IS_, argument),
#define RLK_SIMT_ROWS_PARAMETER(name) static_cast<double>(call.params.name),
#define RLK_SIMT_ROWS_TEXT_(x) #x
#define RLK_SIMT_ROWS_TEXT(x) RLK_SIMT_ROWS_TEXT_(x)

// numbers: what follows the arguments in a RowsCall.
#define RLK_SIMT_ROWS_DECLARE(OP, arguments, numbers)                                                             \
  namespace rlk::simt::host::rows {                                                                               \
  struct OP {                                                                                                     \
    using Op = sdk::ops::OP;                                                                                      \
    static constexpr RowsKernels kKernels = {RLK_SIMT_ROWS_TEXT(RLK_SIMT_IMAGE),                                  \
                                             RLK_SIMT_ROWS_TEXT(RLK_SIMT_IMAGE) "_rows_" #OP "_"};                \
    static RowsCall call_of(const sdk::Arguments<Op>& call) {                                                     \
      using namespace formula;                                                                                    \
      return {{RLK_SIMT_EACH(RLK_SIMT_ROWS_ARGUMENT, RLK_SIMT_ROWS_LIST arguments)}, RLK_SIMT_ROWS_LIST numbers}; \
    }                                                                                                             \
  };                                                                                                              \
  }                                                                                                               \
  namespace rlk::simt::host::maps {                                                                               \
  template <>                                                                                                     \
  struct Numbered<__COUNTER__ - kFirst> {                                                                         \
    using type = Rows<rows::OP>;                                                                                  \
  };                                                                                                              \
  }
#define RLK_SIMT_ROWS(OP, arguments, ...) RLK_SIMT_ROWS_DECLARE(OP, arguments, ({}))
#define RLK_SIMT_ROWS_CAUSAL RLK_SIMT_ROWS
#define RLK_SIMT_ROWS_WITH(OP, arguments, numbers, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, ({RLK_SIMT_EACH(RLK_SIMT_ROWS_PARAMETER, RLK_SIMT_ROWS_LIST numbers)}))
#define RLK_SIMT_ROWS_MADE(Type, name, ...) __VA_ARGS__
#define RLK_SIMT_ROWS_THEN_ALL(OP, arguments, made, text, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, (RLK_SIMT_ROWS_MADE made, RowsAll::after))
#define RLK_SIMT_ALL_THEN_ROWS(OP, arguments, made, text, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, (RLK_SIMT_ROWS_MADE made, RowsAll::before))
#define RLK_SIMT_ROWS_BETWEEN(OP, arguments, made, before, after, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, (RLK_SIMT_ROWS_MADE made, RowsAll::around))
#define RLK_SIMT_ROWS_BY(OP, arguments, made, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, (RLK_SIMT_ROWS_MADE made, RowsAll::never))
#define RLK_SIMT_ROWS_SUMS(OP, arguments, numbers, sums, ...) RLK_SIMT_ROWS_WITH(OP, arguments, numbers, )
