// The table. Dtypes are those of each operator's public documentation (aclnnXxx.md of ops-math); fp64 runs on the AI
// CPU there, slowly. All of them broadcast, take any strides, and may write over an operand of the same shape.
//
// Rounding is not documented for any of them but aclnnCast (to nearest even). What is relied on: sums, products,
// quotients and roots of fp32 and fp64 are rounded once, exp and log are good to a few units; the smoke tests try it
// before an implementation serves. 16-bit sums are never asked for: programs compute in fp32.
#include "primitives.hpp"

#include "plan.hpp"
#include "plugins/composed/recorder.hpp"
#include "report.hpp"

namespace rlk::ascend {
namespace {

using composed::Dtypes;
using composed::Primitive;
using composed::Word;
using sdk::Dtype;

constexpr Dtypes kReals = {Dtype::f32, Dtype::f64};
constexpr Dtypes kRealsAndIds = {Dtype::f32, Dtype::f64, Dtype::i32, Dtype::i64};
constexpr Dtypes kRealsAndIntegers = {Dtype::f32, Dtype::f64, Dtype::i64};
constexpr Dtypes kRealsAndMasks = {Dtype::f32, Dtype::f64, Dtype::boolean};
constexpr Dtypes kMasks = {Dtype::boolean};
// Moved or chosen as they are.
constexpr Dtypes kAny = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64,    Dtype::i32,
                         Dtype::i64, Dtype::u8,   Dtype::i8,  Dtype::boolean};

// Of an Ascend910B4: 0.8 TB/s, and of fp32 a quarter of 280 TFLOP/s of fp16. A call takes the host some microseconds.
constexpr composed::Speed kSpeed = {5, 0.8e6, 70e6};

struct Row {
  Primitive primitive;
  Emit emit;
};

AclScalar* scalar_of(Builder& b, double number, int32_t dtype) {
  if (dtype == kAclDouble) return b.program().scalar(number);
  if (dtype == kAclInt32 || dtype == kAclInt64)
    return b.program().scalar(composed::nearest(number, dtype == kAclInt32 ? 31 : 63));
  return b.program().scalar(static_cast<float>(number));
}

template <class Op>
Primitive row_of(Word word, const Op& op, Dtypes dtypes, bool has_number = false) {
  Primitive row{word, has_number, op.name, op.present(), dtypes};
  row.repeats = 0b111;
  row.takes_strides = true;
  row.in_place = true;
  return row;
}

Row unary(Word word, const UnaryOperator& op, Dtypes dtypes) {
  return {row_of(word, op, dtypes), [&op](Builder& b, const ComposedStep& s) { b.unary(op, s.in[0], s.out); }};
}
Row binary(Word word, const BinaryOperator& op, Dtypes dtypes) {
  return {row_of(word, op, dtypes),
          [&op](Builder& b, const ComposedStep& s) { b.binary(op, s.in[0], s.in[1], s.out); }};
}
Row with_number(Word word, const ScalarOperator& op, Dtypes dtypes) {
  return {row_of(word, op, dtypes, true), [&op](Builder& b, const ComposedStep& s) {
            const int32_t dtype = s.in[0].dtype;
            AclScalar* number = dtype == kAclInt64 ? b.program().scalar(s.whole) : scalar_of(b, s.number, dtype);
            b.with_scalar(op, s.in[0], number, s.out);
          }};
}
template <class Op, class Call>
Row row(Word word, const Op& op, Dtypes dtypes, Call call) {
  return {row_of(word, op, dtypes), call};
}

// From floating dtypes to integers nothing is said of fractions, nor of what is out of range; of whole fp32 numbers
// between -2^31 and 2147483583 to INT64 it is said that they are exact. Those casts are left out but for Word::whole.
// Every fp64 becomes fp32, which may double the rounding to 16 bits, so that one is left out too.
Row cast(Dtypes from, Dtypes to) {
  Row cast = row(Word::cast, runtime().Cast, from, [](Builder& b, const ComposedStep& s) { b.cast(s.in[0], s.out); });
  cast.primitive.to = to;
  cast.primitive.in_place = false;
  return cast;
}

// Copies and expansions are one update in place.
Row copy(Word word) {
  return row(word, runtime().InplaceCopy, kAny, [](Builder& b, const ComposedStep& s) { b.copy(s.in[0], s.out); });
}

// Along one dimension, which stays.
template <class Op>
Row reduction(Word word, const Op& op, Dtypes dtypes, bool over_rows,
              void (Builder::*add)(const Operand&, int64_t, bool, const Operand&)) {
  Row made = row(word, op, dtypes, [add, over_rows](Builder& b, const ComposedStep& s) {
    const auto axis = over_rows ? static_cast<int64_t>(s.number) : static_cast<int64_t>(s.in[0].dims.size()) - 1;
    (b.*add)(s.in[0], axis, true, s.out);
  });
  made.primitive.in_place = false;
  return made;
}

// With KEEP_DTYPE fp32 is multiplied as it is, not so on Atlas training and inference devices, which take neither fp32
// nor bf16 then. Of 16 bits the cube unit adds products up in fp32 (Mmad of Ascend C), and the output is rounded once:
// the page of aclnnMatmul does not say so, and the smoke tests try it. No gaps in the output.
Row product() {
  const bool keeps_fp32 = family_of(soc_name()) != Family::other;
  const Dtypes dtypes = keeps_fp32 ? Dtypes{Dtype::f32, Dtype::bf16, Dtype::f16} : Dtypes{Dtype::f16};
  Row product = row(Word::product, runtime().Matmul, dtypes,
                    [](Builder& b, const ComposedStep& s) { b.product(s.in[0], s.in[1], s.out); });
  product.primitive.takes_strides = false;
  return product;
}

std::vector<Row> rows() {
  const Runtime& r = runtime();
  std::vector<Row> rows;
  rows.push_back(row(Word::add, r.Add, kRealsAndIntegers, [](Builder& b, const ComposedStep& s) {
    b.add_scaled(s.in[0], s.in[1], scalar_of(b, 1, s.out.dtype), s.out);
  }));
  rows.push_back(row(Word::subtract, r.Sub, kRealsAndIntegers, [](Builder& b, const ComposedStep& s) {
    b.subtract(s.in[0], s.in[1], scalar_of(b, 1, s.out.dtype), s.out);
  }));
  rows.push_back(
      {row_of(Word::add, r.Adds, {Dtype::f32, Dtype::f64, Dtype::i32}, true), [](Builder& b, const ComposedStep& s) {
         const int32_t dtype = s.out.dtype;
         b.add_scalar(s.in[0], scalar_of(b, s.number, dtype), scalar_of(b, 1, dtype), s.out);
       }});
  // Of integers aclnnMuls is said to lose digits, aclnnMul is not.
  rows.push_back(with_number(Word::multiply, r.Muls, kReals));
  rows.push_back(with_number(Word::divide, r.Divs, kReals));
  rows.push_back(binary(Word::multiply, r.Mul, kRealsAndIds));
  rows.push_back(binary(Word::divide, r.Div, kReals));
  rows.push_back(unary(Word::absolute, r.Abs, kReals));
  rows.push_back(unary(Word::root, r.Sqrt, kReals));
  rows.push_back(unary(Word::exp, r.Exp, kReals));
  rows.push_back(unary(Word::log, r.Log, kReals));
  rows.push_back(unary(Word::tanh, r.Tanh, kReals));
  // Atlas inference devices have none.
  const bool floors = soc_name().rfind("Ascend310", 0) != 0;
  rows.push_back(unary(Word::floor, r.Floor, floors ? Dtypes{Dtype::f32} : Dtypes{}));
  rows.push_back(binary(Word::bit_and, r.BitwiseAndTensor, {Dtype::i64}));
  rows.push_back(binary(Word::bit_xor, r.BitwiseXorTensor, {Dtype::i64}));

  rows.push_back(binary(Word::less, r.LtTensor, kRealsAndIds));
  rows.push_back(binary(Word::less_equal, r.LeTensor, kRealsAndIntegers));
  rows.push_back(binary(Word::equal, r.EqTensor, kRealsAndMasks));
  rows.push_back(binary(Word::not_equal, r.NeTensor, kRealsAndMasks));
  rows.push_back(with_number(Word::less, r.LtScalar, kRealsAndIds));
  rows.push_back(with_number(Word::less_equal, r.LeScalar, kReals));
  rows.push_back(with_number(Word::greater, r.GtScalar, kReals));
  rows.push_back(with_number(Word::greater_equal, r.GeScalar, kRealsAndIds));
  rows.push_back(with_number(Word::equal, r.EqScalar, kRealsAndIds));
  rows.push_back(with_number(Word::not_equal, r.NeScalar, kRealsAndIds));
  rows.push_back(binary(Word::both, r.LogicalAnd, kMasks));
  rows.push_back(binary(Word::either, r.LogicalOr, kMasks));
  rows.push_back(row(Word::select, r.SWhere, kAny,
                     [](Builder& b, const ComposedStep& s) { b.where(s.in[0], s.in[1], s.in[2], s.out); }));

  // What INT32 does not hold becomes some number, which is never looked up.
  Row index = cast({Dtype::i64}, {});
  index.primitive.word = Word::index;
  rows.push_back(index);
  Row whole = cast({Dtype::f32}, {});
  whole.primitive.word = Word::whole;
  rows.push_back(whole);
  const size_t lookups = rows.size();
  rows.push_back(row(Word::gather, r.Gather, kAny,
                     [](Builder& b, const ComposedStep& s) { b.gather(s.in[0], 1, s.in[1], s.out); }));
  rows.push_back(row(Word::take_rows, r.IndexSelect, kAny, [](Builder& b, const ComposedStep& s) {
    b.index_select(s.in[0], 0, reshaped(s.in[1], {s.out.dims[0]}), s.out);
  }));
  rows.push_back(row(Word::take_columns, r.IndexSelect, kAny, [](Builder& b, const ComposedStep& s) {
    b.index_select(s.in[0], 1, reshaped(s.in[1], {s.out.dims[1]}), s.out);
  }));
  rows.push_back(row(Word::put_rows, r.InplaceIndexCopy, {Dtype::f32, Dtype::bf16, Dtype::f16},
                     [](Builder& b, const ComposedStep& s) {
                       b.index_copy(s.out, 0, reshaped(s.in[1], {s.in[1].dims[0]}), s.in[2]);
                     }));
  const size_t put_rows = rows.size() - 1;
  rows.push_back(product());
  // CANN documents it as stable for fp32 on request, not for fp64; the program uses only the places.
  rows.push_back(row(Word::order, r.Sort, {Dtype::f32}, [](Builder& b, const ComposedStep& s) {
    Operand places = b.scratch(kAclInt64, s.in[0].dims);
    b.sort(s.in[0], static_cast<int64_t>(s.in[0].dims.size()) - 1, b.scratch(kAclFloat, s.in[0].dims), places);
    places.dims.back() = s.out.dims.back();
    b.cast(places, s.out);
  }));
  for (size_t lookup = lookups; lookup < rows.size(); ++lookup) rows[lookup].primitive.in_place = lookup == put_rows;
  rows.push_back({Primitive{Word::report, false, report_functions(), reports(), kMasks}, report});

  rows.push_back(cast({Dtype::f32, Dtype::bf16, Dtype::f16}, {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64}));
  rows.push_back(cast({Dtype::f64}, {Dtype::f32}));
  rows.push_back(cast({Dtype::u8, Dtype::i8, Dtype::boolean}, {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64}));
  rows.push_back(cast({Dtype::i32}, {Dtype::f32, Dtype::f64}));
  rows.push_back(cast({Dtype::u8, Dtype::i8, Dtype::i32, Dtype::boolean}, {Dtype::i32, Dtype::i64}));

  rows.push_back(cast({Dtype::u8, Dtype::i8, Dtype::i32}, {Dtype::boolean}));

  rows.push_back(copy(Word::copy));
  rows.push_back(copy(Word::expand));
  constexpr Dtypes kFillable = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i32, Dtype::i64};
  rows.push_back(row(Word::fill, r.InplaceFillScalar, kFillable, [](Builder& b, const ComposedStep& s) {
    // Zeros by a call that needs no phase 1.
    const bool is_zero = composed::bits_of(s.number) == 0 && composed::is_dense(s.out.dims, s.out.strides);
    if (is_zero) return b.fill_bytes(s.out, 0);
    b.fill_with(s.out, scalar_of(b, s.number, s.out.dtype));
  }));
  Row fill_mask{Primitive{Word::fill, false, "aclrtMemsetAsync", true, kMasks},
                [](Builder& b, const ComposedStep& s) { b.fill_bytes(s.out, s.number != 0 ? 1 : 0); }};
  rows.push_back(fill_mask);
  rows.push_back(row(Word::positions, r.Arange, {Dtype::f32}, [](Builder& b, const ComposedStep& s) {
    const int64_t count = element_count(s.out.dims);
    b.arange(0.0F, static_cast<float>(count), 1.0F, reshaped(s.out, {count}));
  }));
  rows.push_back(reduction(Word::sum, r.ReduceSum, kRealsAndIntegers, false, &Builder::sum));
  rows.push_back(reduction(Word::sum_rows, r.ReduceSum, kReals, true, &Builder::sum));
  rows.push_back(reduction(Word::largest, r.Amax, kReals, false, &Builder::largest));
  Row largest_at = row(Word::largest_at, r.MaxDim, {Dtype::f32}, [](Builder& b, const ComposedStep& s) {
    const Operand largest = b.scratch(kAclFloat, s.out.dims);
    b.max(s.in[0], static_cast<int64_t>(s.in[0].dims.size()) - 1, true, largest, s.out);
  });
  largest_at.primitive.in_place = false;
  rows.push_back(largest_at);
  return rows;
}

const std::vector<Row>& table() {
  static const std::vector<Row> made = rows();
  return made;
}

}  // namespace

const composed::Primitives& primitives() {
  static const composed::Primitives made = [] {
    composed::Primitives all{"the installed CANN",
                             {},
                             512,
                             static_cast<uint64_t>(workspace_limit()),
                             {true, true, true, workspace_limit() / 2, true},
                             kSpeed};
    for (const Row& row : table()) all.table.push_back(row.primitive);
    return all;
  }();
  return made;
}

const Emit& emit_of(size_t primitive) {
  return table()[primitive].emit;
}

}  // namespace rlk::ascend
