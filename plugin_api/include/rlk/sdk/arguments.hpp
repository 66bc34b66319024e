// The arguments of a call by their names in the declaration, for query, plan and enqueue alike:
//
//   const auto call = arguments_of(described);            // of a Call<ops::RmsNorm>
//   const auto call = arguments_of<ops::RmsNorm>(run, params);
//   call.x, call.rstd, call.N, call.params.eps
//
// A tensor is a pointer, null where the argument is absent.
#pragma once

#include <rlk/sdk/call.hpp>

#include <cstring>

namespace rlk::sdk {

template <class Op>
using Arguments = typename Op::template Args<const rlk_tensor*>;

namespace detail {

template <class Op, class Source>
Arguments<Op> name_arguments(const Source& source, const typename Op::Params& params) {
  using Named = Arguments<Op>;
  Named call;
  uint32_t i = 0;
  Named::each_input(call, [&](const rlk_tensor*& tensor) { tensor = source.input(i++); });
  i = 0;
  Named::each_output(call, [&](const rlk_tensor*& tensor) { tensor = source.output(i++); });
  i = 0;
  Named::each_symbol(call, [&](int64_t& symbol) { symbol = source.symbol(i++); });
  static_assert(sizeof(call.params) == sizeof(params), "one layout, its enumerations as types");
  std::memcpy(static_cast<void*>(&call.params), &params, sizeof(params));
  return call;
}

}  // namespace detail

template <class Op>
Arguments<Op> arguments_of(const Call<Op>& call) {
  return detail::name_arguments<Op>(call, call.params());
}
template <class Op>
Arguments<Op> arguments_of(const Run& run, const typename Op::Params& params) {
  return detail::name_arguments<Op>(run, params);
}

}  // namespace rlk::sdk
