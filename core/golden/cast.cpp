// Numbers in another dtype: the declarations' rules.
#include <rlk/sdk/ops/cast.hpp>
#include <rlk/sdk/ops/fill.hpp>

#include "core/golden/elementwise.hpp"
#include "core/golden/moved.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {

namespace {

void put_number(Output& output, double value) {
  if (!sdk::is_floating(output.dtype)) return put_integer(output, to_integer(output.dtype, value));
  output.value.push_back(value);
  output.cond.push_back(0.0);
}

// What is left of an integer in the low bits that a dtype has.
int64_t low_bits(Dtype dtype, int64_t value) {
  View view;
  view.data = &value;
  view.dtype = dtype;
  return view.load_int_at(0);
}

}  // namespace

DataError cast(CallOf<sdk::ops::Cast>& call) {
  const Dtype to = call.y.dtype;
  const bool is_integer = !sdk::is_floating(call.x.dtype) && !sdk::is_floating(to) && to != Dtype::boolean;
  const auto convert = [&](int64_t x) {
    if (is_integer) return put_integer(call.y, low_bits(to, call.x.load_int_at(x)));
    put_number(call.y, call.x.load_at(x));
  };
  for_each_offset(convert, call.x);
  return {};
}

DataError fill(CallOf<sdk::ops::Fill>& call) {
  for_each_offset([&](int64_t) { put_number(call.y, call.params.value); }, call.x);
  return {};
}

}  // namespace rlk::golden
