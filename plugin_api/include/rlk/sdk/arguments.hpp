// The arguments of a call by their names in the declaration, for query, plan and enqueue alike:
//
//   const auto call = arguments_of(described);            // of a Call<ops::RmsNorm>
//   const auto call = arguments_of<ops::RmsNorm>(run, params);
//   call.x, call.rstd, call.N, call.params.eps
//
// A tensor is a pointer, null where the argument is absent. Where a plan says which ones it means, it names them too:
//
//   using Named = Arguments<ops::Attention>;
//   dynamic_symbols = bits_of(&Named::B, &Named::Sq);
//   host_inputs = bits_of(&Named::cu_seqlens_q);
#pragma once

#include <rlk/sdk/call.hpp>

#include <cstring>
#include <type_traits>

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

// Where the ABI has an argument among the inputs or among the outputs, and a symbol among the symbols.
template <class Named, class Member>
uint32_t index_of(Member Named::*member) {
  const Named call;
  uint32_t found = 0, i = 0;
  const auto look = [&](const Member& one) {
    if (&one == &(call.*member)) found = i;
    ++i;
  };
  if constexpr (std::is_same<Member, int64_t>::value) {
    Named::each_symbol(call, look);
  } else {
    Named::each_input(call, look);
    i = 0;
    Named::each_output(call, look);
  }
  return found;
}
// A bit for each of them.
template <class Named, class... Members>
uint64_t bits_of(Members Named::*... members) {
  return (uint64_t{0} | ... | (uint64_t{1} << index_of(members)));
}

}  // namespace rlk::sdk
