// map: out = f(in...) for every element. An operator's file says (operators/NAME.hpp)
//
//   RLK_COMPOSED_MAP(Silu, (y), (x), silu_of(d, x, logistic(d, x)))
//   RLK_COMPOSED_MAP_WITH(Add, (out), (a, b), (alpha), add_times(d, a, b, alpha))
//   RLK_COMPOSED_MAP_OF(SiluAndMul, (call.y), (gate, input), (first_half(call.x), second_half(call.x)), ...)
//   RLK_COMPOSED_MAP_BY(RatioKl, out_views, ins, in_views, (RatioKlTerms, terms, ratio_kl_terms(...)), ...)
//   RLK_COMPOSED_MOVES(Copy, recorder.output(call.y, recorder.input(call.x));)
//
// as plugins/simt/skeleton/map.cuh has it: the operator's name in the declarations' views, its outputs and inputs by
// their names there, parameters that the formula takes as doubles, and the formula. _OF says what a name stands for;
// _BY passes what is made of a call, and _F64_BY computes in fp64 whatever the tensors are, if the device has it.
#pragma once

#include "plugins/simt/skeleton/each.h"

#include "operator.hpp"
#include "vocabulary.hpp"

namespace rlk::composed {

inline void put(Recorder& recorder, const View& out, Value value) {
  if (out.is_present()) recorder.output(out, recorder.rounded(value.node, out.dtype));
}
inline void put(Recorder& recorder, const std::vector<View>& outs, Value value) {
  put(recorder, outs[0], value);
}
inline void put(Recorder& recorder, const std::vector<View>& outs, const Two<Value>& values) {
  put(recorder, outs[0], values.first);
  put(recorder, outs[1], values.second);
}
inline void put(Recorder& recorder, const std::vector<View>& outs, const Three<Value>& values) {
  put(recorder, outs[0], values.first);
  put(recorder, outs[1], values.second);
  put(recorder, outs[2], values.third);
}

template <class T, class Formula>
void record_map_in(Recorder& recorder, const std::vector<View>& outs, const std::vector<View>& ins, Formula formula) {
  const Recording<T> d{&recorder};
  std::vector<Value> in;
  for (const View& view : ins) {
    int value = recorder.input(view, d.kDtype);
    if (view.is_mask && view.is_present()) {
      value = recorder.select(recorder.cast(value, sdk::Dtype::boolean), recorder.number(1, d.kDtype),
                              recorder.number(0, d.kDtype));
    }
    in.push_back({&recorder, recorder.cast(value, d.kDtype)});
  }
  put(recorder, outs, formula(d, in.data()));
}

// In fp64 where the device has it.
struct RecordWide {
  template <class Formula>
  void operator()(Recorder& recorder, const std::vector<View>& outs, const std::vector<View>& ins,
                  Formula formula) const {
    if (recorder.has_f64() || has_f64(outs) || has_f64(ins))
      record_map_in<double>(recorder, outs, ins, formula);
    else
      record_map_in<float>(recorder, outs, ins, formula);
  }
};

// In fp64 where a tensor is or what is made of the call asks for it, else in fp32.
struct RecordMap {
  bool asks_f64;

  template <class Formula>
  void operator()(Recorder& recorder, const std::vector<View>& outs, const std::vector<View>& ins,
                  Formula formula) const {
    if (asks_f64 || has_f64(outs) || has_f64(ins))
      record_map_in<double>(recorder, outs, ins, formula);
    else
      record_map_in<float>(recorder, outs, ins, formula);
  }
};
}  // namespace rlk::composed

#define RLK_COMPOSED_LIST(...) __VA_ARGS__
#define RLK_COMPOSED_MEMBER(name) call.name,
#define RLK_COMPOSED_INPUT(name) const V name = *rlk_in++;
#define RLK_COMPOSED_NUMBER(name) [[maybe_unused]] const double name = static_cast<double>(call.params.name);
#define RLK_COMPOSED_FACTOR(name) {#name, static_cast<double>(call.params.name)},
#define RLK_COMPOSED_MEMBERS(list) RLK_SIMT_EACH(RLK_COMPOSED_MEMBER, RLK_COMPOSED_LIST list)
#define RLK_COMPOSED_NUMBERS(list) RLK_SIMT_EACH(RLK_COMPOSED_NUMBER, RLK_COMPOSED_LIST list)
#define RLK_COMPOSED_FACTORS(list) RLK_SIMT_EACH(RLK_COMPOSED_FACTOR, RLK_COMPOSED_LIST list)
#define RLK_COMPOSED_STRUCT(Type, name, ...) const Type name = __VA_ARGS__;

// record: a function that records. numbers: statements that name what the formula takes of the call. factors: rows of
// parameters that fp32 must be able to hold.
#define RLK_COMPOSED_MAP_DEFINE(OP, record, out_views, ins, in_views, numbers, factors, ...)                      \
  namespace rlk::composed {                                                                                       \
  struct OP##Map {                                                                                                \
    using Op = sdk::ops::OP;                                                                                      \
    static constexpr uint32_t kNumerics = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;              \
    static constexpr bool kChunks = true;                                                                         \
    static sdk::Refusal refuse(const Arguments<Op>&, const Abilities&) { return std::nullopt; }                   \
    static Factors factors_of([[maybe_unused]] const Arguments<Op>& call) { return {RLK_COMPOSED_LIST factors}; } \
    static void record_call(Recorder& recorder, const Arguments<Op>& call) {                                      \
      RLK_COMPOSED_LIST numbers record(recorder, {RLK_COMPOSED_LIST out_views}, {RLK_COMPOSED_LIST in_views},     \
                                       [&]([[maybe_unused]] auto d, const Value* rlk_in) {                        \
                                         using V = Value;                                                         \
                                         RLK_SIMT_EACH(RLK_COMPOSED_INPUT, RLK_COMPOSED_LIST ins)                 \
                                         return (__VA_ARGS__);                                                    \
                                       });                                                                        \
    }                                                                                                             \
  };                                                                                                              \
  }                                                                                                               \
  RLK_COMPOSED_LISTED(OP##Map)

#define RLK_COMPOSED_MAP(OP, outs, ins, ...)                                                                        \
  RLK_COMPOSED_MAP_DEFINE(OP, RecordMap{false}, (RLK_COMPOSED_MEMBERS(outs)), ins, (RLK_COMPOSED_MEMBERS(ins)), (), \
                          (), __VA_ARGS__)
#define RLK_COMPOSED_MAP_WITH(OP, outs, ins, numbers, ...)                                                      \
  RLK_COMPOSED_MAP_DEFINE(OP, RecordMap{false}, (RLK_COMPOSED_MEMBERS(outs)), ins, (RLK_COMPOSED_MEMBERS(ins)), \
                          (RLK_COMPOSED_NUMBERS(numbers)), (RLK_COMPOSED_FACTORS(numbers)), __VA_ARGS__)
#define RLK_COMPOSED_MAP_OF(OP, out_views, ins, in_views, ...) \
  RLK_COMPOSED_MAP_DEFINE(OP, RecordMap{false}, out_views, ins, in_views, (), (), __VA_ARGS__)
#define RLK_COMPOSED_MADE(Type, name, ...) name
#define RLK_COMPOSED_MAP_BY(OP, out_views, ins, in_views, made, ...)                                  \
  RLK_COMPOSED_MAP_DEFINE(OP, RecordMap{RLK_COMPOSED_MADE made.asks_f64()}, out_views, ins, in_views, \
                          (RLK_COMPOSED_STRUCT made), (), __VA_ARGS__)

#define RLK_COMPOSED_MAP_F64_BY(OP, out_views, ins, in_views, made, ...) \
  RLK_COMPOSED_MAP_DEFINE(OP, RecordWide(), out_views, ins, in_views, (RLK_COMPOSED_STRUCT made), (), __VA_ARGS__)

// What is moved, chosen or cast, and not computed with: statements over the recorder and the call.
#define RLK_COMPOSED_MOVES(OP, ...)                                                                  \
  namespace rlk::composed {                                                                          \
  struct OP##Moves {                                                                                 \
    using Op = sdk::ops::OP;                                                                         \
    static constexpr uint32_t kNumerics = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT; \
    static constexpr bool kChunks = true;                                                            \
    static sdk::Refusal refuse(const Arguments<Op>&, const Abilities&) { return std::nullopt; }      \
    static Factors factors_of(const Arguments<Op>&) { return {}; }                                   \
    static void record_call(Recorder& recorder, const Arguments<Op>& call) { __VA_ARGS__ }           \
  };                                                                                                 \
  }                                                                                                  \
  RLK_COMPOSED_LISTED(OP##Moves)
