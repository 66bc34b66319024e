// The host's words for rows, with which maps.hpp reads the files of ../operators (../skeleton/rows.cuh).
#pragma once

#include "rows.hpp"
#include "words.hpp"

#define RLK_SIMT_ROWS_OF(kind, name, tensor) \
  { RowsArgument::Kind::kind, #name, tensor }
#define RLK_SIMT_ROWS_IS_out(name) RLK_SIMT_ROWS_OF(out, name, call.name)
#define RLK_SIMT_ROWS_IS_narrow_out(name) RLK_SIMT_ROWS_OF(narrow_out, name, call.name)
#define RLK_SIMT_ROWS_IS_in(name) RLK_SIMT_ROWS_OF(in, name, call.name)
#define RLK_SIMT_ROWS_IS_streamed(name) RLK_SIMT_ROWS_OF(streamed, name, call.name)
#define RLK_SIMT_ROWS_IS_or_one(name) RLK_SIMT_ROWS_OF(or_one, name, call.name)
#define RLK_SIMT_ROWS_IS_or_zero(name) RLK_SIMT_ROWS_OF(or_zero, name, call.name)
#define RLK_SIMT_ROWS_IS_of_row(name) RLK_SIMT_ROWS_OF(of_row, name, call.name)
#define RLK_SIMT_ROWS_IS_id_of_row(name) RLK_SIMT_ROWS_OF(id_of_row, name, call.name)
#define RLK_SIMT_ROWS_IS_list_of_row(name) RLK_SIMT_ROWS_OF(list_of_row, name, call.name)
#define RLK_SIMT_ROWS_IS_ids_of_row(name) RLK_SIMT_ROWS_OF(ids_of_row, name, call.name)
#define RLK_SIMT_ROWS_IS_kept(name) RLK_SIMT_ROWS_OF(kept, name, nullptr)
#define RLK_SIMT_ROWS_IS_kept_of_block(name) RLK_SIMT_ROWS_OF(kept_of_block, name, nullptr)
#define RLK_SIMT_ROWS_IS_of_column(name) RLK_SIMT_ROWS_OF(of_column, name, call.name)
#define RLK_SIMT_ROWS_IS_wide_out(name) RLK_SIMT_ROWS_OF(wide_out, name, call.name)
#define RLK_SIMT_ROWS_IS_integer_of_row(name) RLK_SIMT_ROWS_OF(integer_of_row, name, call.name)
#define RLK_SIMT_ROWS_IS_integers_of_row(name) RLK_SIMT_ROWS_OF(integers_of_row, name, call.name)
#define RLK_SIMT_ROWS_IS_of_call(name) RLK_SIMT_ROWS_OF(of_call, name, call.name)
#define RLK_SIMT_ROWS_IS_integers_of_call(name) RLK_SIMT_ROWS_OF(integers_of_call, name, call.name)
#define RLK_SIMT_ROWS_IS_of_block(name) RLK_SIMT_ROWS_OF(of_block, name, call.name)
#define RLK_SIMT_ROWS_IS_kept_once(name) RLK_SIMT_ROWS_OF(kept_once, name, nullptr)
#define RLK_SIMT_ROWS_ARGUMENT(argument) RLK_SIMT_CAT(RLK_SIMT_ROWS_IS_, argument),

// numbers: what follows the arguments in a RowsCall.
#define RLK_SIMT_ROWS_DECLARE(OP, arguments, numbers) RLK_SIMT_ROWS_DECLARE_AS(OP, arguments, numbers, false)
#define RLK_SIMT_ROWS_DECLARE_AS(OP, arguments, numbers, has_blocks)                                                 \
  namespace rlk::simt::host::rows {                                                                                  \
  struct OP {                                                                                                        \
    using Op = sdk::ops::OP;                                                                                         \
    static constexpr RowsKernels kKernels = {RLK_SIMT_IMAGE_NAME, RLK_SIMT_IMAGE_NAME "_rows_" #OP "_", has_blocks}; \
    static RowsCall call_of(const sdk::Arguments<Op>& call) {                                                        \
      using namespace formula;                                                                                       \
      return {{RLK_SIMT_EACH(RLK_SIMT_ROWS_ARGUMENT, RLK_SIMT_LIST arguments)}, RLK_SIMT_LIST numbers};              \
    }                                                                                                                \
  };                                                                                                                 \
  }                                                                                                                  \
  RLK_SIMT_NUMBER(Rows<rows::OP>)
#define RLK_SIMT_ROWS(OP, arguments, ...) RLK_SIMT_ROWS_DECLARE(OP, arguments, ({}))
#define RLK_SIMT_ROWS_CAUSAL RLK_SIMT_ROWS
#define RLK_SIMT_ROWS_WITH(OP, arguments, numbers, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, ({RLK_SIMT_EACH(RLK_SIMT_PARAMETER, RLK_SIMT_LIST numbers)}))
#define RLK_SIMT_ROWS_OF_BLOCKS(OP, arguments, ...) RLK_SIMT_ROWS_DECLARE_AS(OP, arguments, ({}), true)
#define RLK_SIMT_ROWS_OF_BLOCKS_WITH(OP, arguments, numbers, ...) \
  RLK_SIMT_ROWS_DECLARE_AS(OP, arguments, ({RLK_SIMT_EACH(RLK_SIMT_PARAMETER, RLK_SIMT_LIST numbers)}), true)
#define RLK_SIMT_ROWS_THEN_ALL(OP, arguments, made, text, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, (RLK_SIMT_MADE made, RowsAll::after))
#define RLK_SIMT_ALL_THEN_ROWS(OP, arguments, made, text, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, (RLK_SIMT_MADE made, RowsAll::before))
#define RLK_SIMT_ROWS_BETWEEN(OP, arguments, made, before, after, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, (RLK_SIMT_MADE made, RowsAll::around))
#define RLK_SIMT_ROWS_BY(OP, arguments, made, ...) \
  RLK_SIMT_ROWS_DECLARE(OP, arguments, (RLK_SIMT_MADE made, RowsAll::never))
#define RLK_SIMT_ROWS_SUMS(OP, arguments, numbers, sums, ...) RLK_SIMT_ROWS_OF_BLOCKS_WITH(OP, arguments, numbers, )
