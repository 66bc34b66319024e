// A tensor of a call as a program sees it, a part of one, or a number that stands for an absent one.
#pragma once

#include <rlk/sdk.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace rlk::composed {

using Dims = std::vector<int64_t>;

int64_t element_count(const Dims& dims);
Dims dense_strides(const Dims& dims);
bool is_dense(const Dims& dims, const Dims& strides);

struct View {
  enum class Place : uint8_t { absent, input, output, kept };  // kept: Recorder::ahead, Recorder::collected

  bool is_present() const { return place != Place::absent; }

  Place place = Place::absent;
  uint32_t index = 0;  // among the call's inputs or outputs, or what is kept
  int64_t byte_offset = 0;
  sdk::Dtype dtype = sdk::Dtype::other;
  Dims dims, strides;          // elements
  double value = 0;            // of what is absent
  bool is_mask = false;        // a map reads it as 1 and 0
  const void* host = nullptr;  // its values where the host has read them, row-major
};
// Rules of formulas ask whether an argument is there as of a pointer.
inline bool operator!=(const View& view, std::nullptr_t) {
  return view.is_present();
}
View view_of(View::Place place, uint32_t index, const rlk_tensor* tensor);

// Of the last dimension.
View first_half(View view);
View second_half(View view);
// Every second element of the last dimension.
View even_elements(View view);
View odd_elements(View view);
// Of [tokens, elements], for tensors of [tokens, heads, elements].
View every_head(View view);
// Of a dense tensor so many rows.
View as_rows(View view, int64_t rows, int64_t columns);
// A vector that has a number for each row, and one for each column, as a matrix of one column or row.
View of_row(View view);
View of_columns(View view);
// Of [sequences, tokens, columns], whether all tokens have one distance, and the matrix of one row each that it is
// then.
bool has_token_rows(const View& view);
View token_rows_of(View view);
// `count` places of one dimension from `first` on, and the dimensions in another order.
View narrowed(View view, size_t axis, int64_t first, int64_t count);
View permuted(const View& view, const std::vector<size_t>& order);
// What the host has read of ids or lengths.
std::vector<int64_t> host_values(const View& view);
// A column of a matrix, and `count` columns or rows from `first` on.
View column(View view, int64_t index);
View columns(View view, int64_t first, int64_t count);
View some_rows(View view, int64_t first, int64_t count);
// An argument that may be absent: an input is the number then, an output is not written.
View or_number(View view, double value);
inline View or_none(View view) {
  return or_number(std::move(view), 0);
}

// Of which it matters alone whether a number is 0: all are 1 where it is absent.
View mask_of(View view);

// The arguments of a call by their names in the declaration, as views. Source: a Call or a Run.
template <class Op>
using Arguments = typename Op::template Args<View>;

template <class Op, class Source>
Arguments<Op> views_of(const Source& source, const typename Op::Params& params) {
  using Named = Arguments<Op>;
  Named call;
  uint32_t i = 0;
  Named::each_input(call, [&](View& view) {
    view = view_of(View::Place::input, i, source.input(i));
    if constexpr (std::is_same_v<Source, sdk::Run>) view.host = source.host_input(i);
    ++i;
  });
  i = 0;
  Named::each_output(call, [&](View& view) { view = view_of(View::Place::output, i, source.output(i)), ++i; });
  i = 0;
  Named::each_symbol(call, [&](int64_t& symbol) { symbol = source.symbol(i++); });
  static_assert(sizeof(call.params) == sizeof(params), "one layout, its enumerations as types");
  std::memcpy(static_cast<void*>(&call.params), &params, sizeof(params));
  return call;
}

}  // namespace rlk::composed
