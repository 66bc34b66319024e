// What an operator of rows is declared with: the end of rows.cuh, which says what it means.
//
// RLK_SIMT_ROWS_OF_BLOCKS and RLK_SIMT_ROWS_OF_BLOCKS_WITH have a kernel of their own for rows that a block of several
// waves holds, in matrices of packs and two dimensions: it sets up little for a row.
//
// RLK_SIMT_ROWS_CAUSAL(OP, arguments, ...) is of rows that end at the diagonal of their block of rows: what is beyond
// it is neither read nor reduced, and mapped to 0.
//
// The lanes of a wave exchange values together: where some of them have other rows, what is done reduces as often for
// each row, and differs between rows by way of fit_or. The host gives an RLK_SIMT_ROWS_BY and the operators of
// rows_all.cuh, which may skip rows, a wave for each row.
#pragma once

// Of an argument: its name, its kind.
#define RLK_SIMT_ROWS_NAME_out(name) name
#define RLK_SIMT_ROWS_NAME_wide_out(name) name
#define RLK_SIMT_ROWS_NAME_narrow_out(name) name
#define RLK_SIMT_ROWS_NAME_in(name) name
#define RLK_SIMT_ROWS_NAME_streamed(name) name
#define RLK_SIMT_ROWS_NAME_or_one(name) name
#define RLK_SIMT_ROWS_NAME_or_zero(name) name
#define RLK_SIMT_ROWS_NAME_of_row(name) name
#define RLK_SIMT_ROWS_NAME_id_of_row(name) name
#define RLK_SIMT_ROWS_NAME_list_of_row(name) name
#define RLK_SIMT_ROWS_NAME_ids_of_row(name) name
#define RLK_SIMT_ROWS_NAME_integer_of_row(name) name
#define RLK_SIMT_ROWS_NAME_integers_of_row(name) name
#define RLK_SIMT_ROWS_NAME_kept(name) name
#define RLK_SIMT_ROWS_NAME_kept_of_block(name) name
#define RLK_SIMT_ROWS_NAME_of_column(name) name
#define RLK_SIMT_ROWS_NAME_of_call(name) name
#define RLK_SIMT_ROWS_NAME_integers_of_call(name) name
#define RLK_SIMT_ROWS_NAME_of_block(name) name
#define RLK_SIMT_ROWS_NAME_kept_once(name) name
#define RLK_SIMT_ROWS_KIND_out(name) RowKind::out
#define RLK_SIMT_ROWS_KIND_wide_out(name) RowKind::wide_out
#define RLK_SIMT_ROWS_KIND_narrow_out(name) RowKind::narrow_out
#define RLK_SIMT_ROWS_KIND_in(name) RowKind::in
#define RLK_SIMT_ROWS_KIND_streamed(name) RowKind::streamed
#define RLK_SIMT_ROWS_KIND_or_one(name) RowKind::or_one
#define RLK_SIMT_ROWS_KIND_or_zero(name) RowKind::or_zero
#define RLK_SIMT_ROWS_KIND_of_row(name) RowKind::of_row
#define RLK_SIMT_ROWS_KIND_id_of_row(name) RowKind::id_of_row
#define RLK_SIMT_ROWS_KIND_list_of_row(name) RowKind::list_of_row
#define RLK_SIMT_ROWS_KIND_ids_of_row(name) RowKind::ids_of_row
#define RLK_SIMT_ROWS_KIND_integer_of_row(name) RowKind::integer_of_row
#define RLK_SIMT_ROWS_KIND_integers_of_row(name) RowKind::integers_of_row
#define RLK_SIMT_ROWS_KIND_kept(name) RowKind::kept
#define RLK_SIMT_ROWS_KIND_kept_of_block(name) RowKind::kept_of_block
#define RLK_SIMT_ROWS_KIND_of_column(name) RowKind::of_column
#define RLK_SIMT_ROWS_KIND_of_call(name) RowKind::of_call
#define RLK_SIMT_ROWS_KIND_integers_of_call(name) RowKind::integers_of_call
#define RLK_SIMT_ROWS_KIND_of_block(name) RowKind::of_block
#define RLK_SIMT_ROWS_KIND_kept_once(name) RowKind::kept_once

#define RLK_SIMT_ROWS_PLACE(argument) RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument),
#define RLK_SIMT_ROWS_KIND(argument) simt::RLK_SIMT_CAT(RLK_SIMT_ROWS_KIND_, argument),
#define RLK_SIMT_ROWS_NAME(argument)                                                                         \
  [[maybe_unused]] const simt::RowName<static_cast<int>(Place::RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument))> \
      RLK_SIMT_CAT(RLK_SIMT_ROWS_NAME_, argument);
#define RLK_SIMT_ROWS_NUMBER(name) [[maybe_unused]] const double name = *rlk_number++;
#define RLK_SIMT_ROWS_LIST(...) __VA_ARGS__

// One for each dtype: what one of them has beside it takes part in what a compiler makes of its registers.
#define RLK_SIMT_ROWS_KERNEL(OP, suffix, T)                                                                          \
  RLK_SIMT_KERNEL(rlk::simt::row_threads<rlk::formula::OP##Rows>(), rlk::simt::row_blocks<rlk::formula::OP##Rows>()) \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _rows_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::RowArgs) args) {                  \
    rlk::simt::wait_for_earlier();                                                                                   \
    rlk::simt::rows<rlk::formula::OP##Rows, T>(args);                                                                \
  }
// numbers: declarations that read them, more: other members, in parentheses both. holds_itself: its text says when what
// is kept in registers is loaded.
#define RLK_SIMT_ROWS_DEFINE(OP, arguments, numbers, holds_itself, more, ...)                              \
  namespace rlk::formula {                                                                                 \
  struct OP##Rows : simt::RowDefaults {                                                                    \
    enum class Place { RLK_SIMT_EACH(RLK_SIMT_ROWS_PLACE, RLK_SIMT_ROWS_LIST arguments) };                 \
    static constexpr bool kHoldsItself = holds_itself;                                                     \
    static constexpr int kTensors = RLK_SIMT_COUNT arguments;                                              \
    static constexpr __device__ __host__ simt::RowKind kind(int i) {                                       \
      constexpr simt::RowKind kinds[] = {RLK_SIMT_EACH(RLK_SIMT_ROWS_KIND, RLK_SIMT_ROWS_LIST arguments)}; \
      return kinds[i];                                                                                     \
    }                                                                                                      \
    template <class Row>                                                                                   \
    static __device__ __forceinline__ void apply(Row& row, const double* rlk_number) {                     \
      [[maybe_unused]] const typename Row::Tag d{};                                                        \
      RLK_SIMT_EACH(RLK_SIMT_ROWS_NAME, RLK_SIMT_ROWS_LIST arguments)                                      \
      RLK_SIMT_ROWS_LIST numbers __VA_ARGS__                                                               \
    }                                                                                                      \
    RLK_SIMT_ROWS_LIST more                                                                                \
  };                                                                                                       \
  }                                                                                                        \
  RLK_SIMT_ROWS_KERNEL(OP, bf16, rlk::simt::bf16)                                                          \
  RLK_SIMT_ROWS_KERNEL(OP, f16, rlk::simt::f16)                                                            \
  RLK_SIMT_ROWS_KERNEL(OP, f32, float)                                                                     \
  RLK_SIMT_ROWS_KERNEL(OP, f64, double)
#define RLK_SIMT_ROWS_WITH(OP, arguments, numbers, ...)                                                             \
  RLK_SIMT_ROWS_DEFINE(OP, arguments, (RLK_SIMT_EACH(RLK_SIMT_ROWS_NUMBER, RLK_SIMT_ROWS_LIST numbers)), false, (), \
                       __VA_ARGS__)
// And kernels of the rows that RowShape::block says.
#define RLK_SIMT_ROWS_OF_BLOCKS_WITH(OP, arguments, numbers, ...) \
  RLK_SIMT_ROWS_WITH(OP, arguments, numbers, __VA_ARGS__)         \
  RLK_SIMT_ROWS_BLOCKS_KERNELS(OP)
#define RLK_SIMT_ROWS_OF_BLOCKS(OP, arguments, ...) \
  RLK_SIMT_ROWS(OP, arguments, __VA_ARGS__)         \
  RLK_SIMT_ROWS_BLOCKS_KERNELS(OP)
#define RLK_SIMT_ROWS_BLOCKS_KERNELS(OP)                        \
  RLK_SIMT_ROWS_BLOCKS_KERNEL(OP, blocks_bf16, rlk::simt::bf16) \
  RLK_SIMT_ROWS_BLOCKS_KERNEL(OP, blocks_f16, rlk::simt::f16)   \
  RLK_SIMT_ROWS_BLOCKS_KERNEL(OP, blocks_f32, float)
#define RLK_SIMT_ROWS_BLOCKS_KERNEL(OP, suffix, T)                                                        \
  RLK_SIMT_KERNEL(rlk::simt::kRowThreads, (rlk::simt::row_blocks_of_blocks<rlk::formula::OP##Rows, T>())) \
  RLK_SIMT_CAT(RLK_SIMT_IMAGE, _rows_##OP##_##suffix)(RLK_SIMT_ARGUMENT(rlk::simt::RowArgs) args) {       \
    rlk::simt::row_of_block<rlk::formula::OP##Rows, T>(args);                                             \
  }
#define RLK_SIMT_ROWS(OP, arguments, ...) RLK_SIMT_ROWS_DEFINE(OP, arguments, (), false, (), __VA_ARGS__)
// made: as rows_all.cuh's, of one row.
#define RLK_SIMT_ROWS_BY(OP, arguments, made, ...) \
  RLK_SIMT_ROWS_DEFINE(OP, arguments, (RLK_SIMT_ROWS_MADE_OF made), true, (), __VA_ARGS__)
#define RLK_SIMT_ROWS_MADE_OF(Type, name, ...) [[maybe_unused]] const Type name = simt::made_of<Type>(rlk_number);
#define RLK_SIMT_ROWS_CAUSAL(OP, arguments, ...) \
  RLK_SIMT_ROWS_DEFINE(OP, arguments, (), false, (static constexpr bool kCausal = true;), __VA_ARGS__)
