// Golden answers as functions of typed arguments:
//
//   DataError whiten(CallOf<sdk::ops::Whiten>& call);   // reads call.x, appends to call.y
//
// An output that was not asked for has `wanted` false; what is written to it is dropped.
#pragma once

#include <cstring>
#include <utility>

#include "core/golden/golden.hpp"

namespace rlk::golden {

// A call with its answer: inputs are views, outputs are numbers with their conditions.
template <class Op>
struct CallOf : Op::template Args<View, Output> {
  Rounding rounding;         // of the intermediates in [numerics] rounded
  double epsilon = 0x1p-24;  // half an ulp of 1 in the arithmetic that is judged
};

template <class Op, DataError (*function)(CallOf<Op>&)>
Answer answer(const Request& given) {
  using Args = typename Op::template Args<View, Output>;
  CallOf<Op> call;
  size_t i = 0;
  Args::each_input(call, [&](View& input) { input = given.inputs[i++]; });
  i = 0;
  Args::each_output(call, [&](Output& output) {
    if (i < given.dtypes.size()) output.dtype = given.dtypes[i];
    output.wanted = given.wants(static_cast<int>(i++));
  });
  i = 0;
  Args::each_symbol(call, [&](int64_t& symbol) { symbol = i < given.symbols.size() ? given.symbols[i++] : -1; });
  std::memcpy(static_cast<void*>(&call.params), given.params, sizeof(call.params));
  call.rounding = given.rounding;
  call.epsilon = given.epsilon;
  Answer answer;
  answer.error = function(call);
  Args::each_output(call,
                    [&](Output& output) { answer.outputs.push_back(output.wanted ? std::move(output) : Output()); });
  return answer;
}

}  // namespace rlk::golden
