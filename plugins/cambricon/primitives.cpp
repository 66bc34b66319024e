// The table. No public text says which dtypes, gaps and broadcasts a function of CNNL takes: what is here is what
// public frameworks ask of it, fp32 tensors without gaps, of which the second may repeat. Nor is a rounding documented:
// sums, products, quotients and roots are relied on to round once, exp and log to be good to a few units ("high
// precision" where there is a choice); the smoke tests try it before an implementation serves.
//
// Of CNNL's casts only those between fp16 and fp32 have public numbers: bf16 is read as the upper halves of fp32, and
// rounded to those by sums and products (halves.cpp). fp64 is in no public call.
#include "primitives.hpp"

#include <array>

#include "ids.hpp"

namespace rlk::cambricon {
namespace {

using composed::Dtypes;
using composed::Primitive;
using composed::Word;
using sdk::Dtype;

constexpr Dtypes kFloats = {Dtype::f32};
constexpr Dtypes kMasks = {Dtype::boolean};
constexpr uint32_t kSecond = 0b10;

// Of an MLU370-X4: 0.3 TB/s, 24 TFLOP/s of fp32. A call takes the host some microseconds.
constexpr composed::Speed kSpeed = {5, 0.3e6, 24e6};

struct Row {
  Primitive primitive;
  Emit emit;
};

Row row(Word word, Needed function, Dtypes dtypes, Emit emit) {
  return {Primitive{word, false, function.name, function.present, dtypes}, std::move(emit)};
}
// Element by element, in place where it must be.
Row elementwise(Word word, Needed function, Emit emit) {
  Row made = row(word, function, kFloats, std::move(emit));
  made.primitive.in_place = true;
  made.primitive.repeats = kSecond;
  return made;
}
Row with_number(Word word, Needed function, Emit emit) {
  Row made = elementwise(word, function, std::move(emit));
  made.primitive.has_number = true;
  return made;
}
bool compares() {
  return runtime().cnnlGetLogicOpWorkspaceSize != nullptr && runtime().cnnlLogicOp != nullptr;
}
Row compare(Word word, int operation, Dtypes dtypes) {
  return row(word, {"cnnlLogicOp", compares()}, dtypes,
             [operation](Calls& c, const ComposedStep& s) { c.compare(operation, s.in[0], s.in[1], s.out); });
}
// Along one dimension, which stays.
Row reduction(Word word, bool over_rows, void (*emit)(Calls&, const Operand&, int axis, const Operand&)) {
  const Runtime& r = runtime();
  const bool reduces = (r.cnnlReduce_v2 != nullptr && r.cnnlGetReduceOpWorkspaceSize_v2 != nullptr) ||
                       (r.cnnlReduce != nullptr && r.cnnlGetReduceOpWorkspaceSize != nullptr);
  const bool describes = r.cnnlCreateReduceDescriptor != nullptr && r.cnnlSetReduceDescriptor_v2 != nullptr &&
                         r.cnnlDestroyReduceDescriptor != nullptr;
  return row(word, {"cnnlReduce", reduces && describes}, kFloats, [emit, over_rows](Calls& c, const ComposedStep& s) {
    emit(c, s.in[0], over_rows ? static_cast<int>(s.number) : static_cast<int>(s.in[0].dims.size()) - 1, s.out);
  });
}

// Bits of 16 as CNNL looks them up.
Operand as_half(Operand operand) {
  if (operand.dtype == kInt16) operand.dtype = kHalf;
  return operand;
}

// Operands: masks of rows without a finite score and, if there are ids, of rows whose id is unknown, then the ids; if
// ids have places in a table, the same of those.
void report(Calls& c, const ComposedStep& s) {
  static_assert(RLK_DATA_ID_OUT_OF_RANGE == 1 && RLK_DATA_NO_FINITE_LOGIT == 2 && RLK_DATA_ROW_OUT_OF_RANGE == 3);
  const int n = static_cast<int>(count(s.in[0].dims));
  const auto filled = [&](auto dtype, auto value) {
    Operand out = c.scratch(dtype, {n});
    c.fill(out, value);
    return out;
  };
  const Operand zero = filled(kFloat, 0.0F), one = filled(kFloat, 1.0F);
  Operand score = c.scratch(kFloat, {n});
  c.select(reshaped(s.in[0], {n}), one, zero, score);
  const Operand told = c.scratch(kInt32, {3, n});
  const auto told_row = [&](int i) { return reshaped(cambricon::rows(told, i, 1), {n}); };
  // What has been told so far; the last to tell writes the rows of `told`.
  const bool has_ids = s.in.size() >= 3, has_places = s.in.size() == 5;
  std::array<Operand, 3> fields;
  for (int i = 0; i < 3; ++i) {
    fields[static_cast<size_t>(i)] = has_ids ? c.scratch(kInt32, {n}) : told_row(i);
    c.fill(fields[static_cast<size_t>(i)], i == 0 ? int32_t{RLK_DATA_NO_FINITE_LOGIT} : 0);
  }
  const auto tell = [&](const Operand& mask, const Operand& numbers, int32_t kind, bool is_last) {
    const Operand is_wrong = reshaped(mask, {n}), both = c.scratch(kFloat, {n});
    c.select(is_wrong, one, score, both);
    score = both;
    const IdWords words = words_of(c, numbers, count(numbers.dims) == 2 * int64_t{n});
    const std::array<Operand, 3> own = {filled(kInt32, kind), words.low, words.high};
    for (int i = 0; i < 3; ++i) {
      Operand& field = fields[static_cast<size_t>(i)];
      const Operand to = is_last ? told_row(i) : c.scratch(kInt32, {n});
      c.select(is_wrong, own[static_cast<size_t>(i)], field, to);
      field = to;
    }
  };
  // Of a row with both errors it is the id.
  if (has_places) tell(s.in[3], s.in[4], RLK_DATA_ROW_OUT_OF_RANGE, false);
  if (has_ids) tell(s.in[1], s.in[2], RLK_DATA_ID_OUT_OF_RANGE, true);
  record_first_error(c, {score, told, static_cast<int32_t>(s.number), s.tag, s.record});
}

std::vector<Row> rows() {
  const Runtime& r = runtime();
  const bool combines = r.cnnlCreateOpTensorDescriptor != nullptr && r.cnnlSetOpTensorDescriptor != nullptr &&
                        r.cnnlDestroyOpTensorDescriptor != nullptr && r.cnnlGetOpTensorWorkspaceSize != nullptr &&
                        r.cnnlOpTensor != nullptr;
  const Needed op_tensor{"cnnlOpTensor", combines};
  const Needed div{"cnnlDiv_v2", r.cnnlDiv_v2 != nullptr && r.cnnlGetDivWorkspaceSize != nullptr};
  const Needed select{"cnnlSelectV2", r.cnnlSelectV2 != nullptr && r.cnnlGetSelectV2WorkspaceSize != nullptr};
  const Needed copy{"cnnlCopy", r.cnnlCopy != nullptr && r.cnnlSetTensorDescriptorEx != nullptr};

  std::vector<Row> rows;
  rows.push_back(
      elementwise(Word::add, op_tensor, [](Calls& c, const ComposedStep& s) { c.add(s.in[0], 1, s.in[1], 1, s.out); }));
  rows.push_back(elementwise(Word::subtract, op_tensor,
                             [](Calls& c, const ComposedStep& s) { c.add(s.in[0], 1, s.in[1], -1, s.out); }));
  rows.push_back(elementwise(Word::multiply, op_tensor,
                             [](Calls& c, const ComposedStep& s) { c.multiply(s.in[0], s.in[1], s.out); }));
  rows.push_back(
      elementwise(Word::divide, div, [](Calls& c, const ComposedStep& s) { c.divide(s.in[0], s.in[1], s.out); }));
  rows.push_back(with_number(Word::add, RLK_CNNL_NEEDS(cnnlTransform_v2),
                             [](Calls& c, const ComposedStep& s) { c.affine(s.in[0], 1.0F, s.real(), s.out); }));
  // Public frameworks give it factors of 32 bits for tensors of those.
  Row add_whole = with_number(Word::add, RLK_CNNL_NEEDS(cnnlTransform_v2), [](Calls& c, const ComposedStep& s) {
    c.affine(s.in[0], int32_t{1}, static_cast<int32_t>(s.number), s.out);
  });
  add_whole.primitive.dtypes = {Dtype::i32};
  rows.push_back(add_whole);
  rows.push_back(with_number(Word::multiply, RLK_CNNL_NEEDS(cnnlTransform_v2),
                             [](Calls& c, const ComposedStep& s) { c.scale(s.in[0], s.real(), s.out); }));
  rows.push_back(elementwise(Word::absolute, RLK_CNNL_NEEDS(cnnlAbs),
                             [](Calls& c, const ComposedStep& s) { c.absolute(s.in[0], s.out); }));
  rows.push_back(elementwise(Word::root, RLK_CNNL_NEEDS(cnnlSqrt_v2),
                             [](Calls& c, const ComposedStep& s) { c.root(s.in[0], s.out); }));
  rows.push_back(elementwise(Word::exp, RLK_CNNL_NEEDS(cnnlExp_v2),
                             [](Calls& c, const ComposedStep& s) { c.exp(s.in[0], s.out); }));
  rows.push_back(elementwise(Word::log, RLK_CNNL_NEEDS(cnnlLog_v2),
                             [](Calls& c, const ComposedStep& s) { c.log(s.in[0], s.out); }));

  constexpr Dtypes kBoth = {Dtype::f32, Dtype::boolean};
  rows.push_back(compare(Word::less, kLess, kFloats));
  rows.push_back(compare(Word::less, kLess, {Dtype::i32}));
  rows.push_back(compare(Word::less_equal, kLessEqual, kFloats));
  rows.push_back(compare(Word::greater, kGreater, kFloats));
  rows.push_back(compare(Word::greater_equal, kGreaterEqual, kFloats));
  rows.push_back(compare(Word::equal, kEqual, kBoth));
  rows.push_back(compare(Word::not_equal, kNotEqual, kBoth));
  rows.push_back(compare(Word::both, kAnd, kMasks));
  rows.push_back(compare(Word::either, kOr, kMasks));
  rows.push_back(row(Word::select, select, {Dtype::f32, Dtype::i32},
                     [](Calls& c, const ComposedStep& s) { c.select(s.in[0], s.in[1], s.in[2], s.out); }));

  // Ids and what they look up.
  const auto compare_ids = [&](Word word, int operation) {
    Row narrow = row(word, {"cnnlLogicOp", compares()}, {Dtype::i32}, [operation](Calls& c, const ComposedStep& s) {
      const Operand number = c.scratch(kInt32, s.in[0].dims);
      c.fill(number, static_cast<int32_t>(s.number));
      c.compare(operation, s.in[0], number, s.out);
    });
    Row wide =
        row(word, {"cnnlLogicOp", compares() && copy.present}, {Dtype::i64},
            [operation](Calls& c, const ComposedStep& s) { compare_wide_ids(c, operation, s.in[0], s.whole, s.out); });
    narrow.primitive.has_number = wide.primitive.has_number = true;
    rows.push_back(narrow);
    rows.push_back(wide);
  };
  compare_ids(Word::less, kLess);
  compare_ids(Word::greater_equal, kGreaterEqual);
  compare_ids(Word::equal, kEqual);
  compare_ids(Word::not_equal, kNotEqual);
  rows.push_back(row(Word::index, copy, {Dtype::i64}, [](Calls& c, const ComposedStep& s) {
    const int n = static_cast<int>(count(s.out.dims));
    c.copy({s.in[0].data, kInt32, {n}, {2}}, reshaped(s.out, {n}));
  }));
  // Bits are moved. Public frameworks look up in halves: bits of 16 are called that.
  constexpr Dtypes kTakeable = {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::i32};
  const auto select_along = [&](Word word, int axis) {
    rows.push_back(row(word, RLK_CNNL_NEEDS(cnnlIndexSelect), kTakeable, [axis](Calls& c, const ComposedStep& s) {
      const int places = s.out.dims[static_cast<size_t>(axis)];
      c.index_select(as_half(s.in[0]), axis, reshaped(s.in[1], {places}), as_half(s.out));
    }));
  };
  select_along(Word::take_rows, 0);
  select_along(Word::take_columns, 1);
  rows.push_back(row(Word::gather, RLK_CNNL_NEEDS(cnnlGather), kTakeable,
                     [](Calls& c, const ComposedStep& s) { c.gather(as_half(s.in[0]), 1, s.in[1], as_half(s.out)); }));
  rows.push_back(row(Word::gather, {"cnnlGather", r.cnnlGather != nullptr && copy.present}, {Dtype::i64},
                     [](Calls& c, const ComposedStep& s) { gather_wide_ids(c, s.in[0], s.in[1], s.out); }));
  Row put = row(Word::put_rows, RLK_CNNL_NEEDS(cnnlScatterNd_v2), {Dtype::f32, Dtype::bf16, Dtype::f16},
                [](Calls& c, const ComposedStep& s) { c.put_rows(as_half(s.in[2]), s.in[1], as_half(s.out)); });
  put.primitive.in_place = true;
  rows.push_back(put);
  // Numbers of bf16 are in no public call, and what fp16 is added up in depends on a descriptor of which none tells.
  const bool multiplies = r.cnnlMatMulDescCreate != nullptr && r.cnnlMatMulDescDestroy != nullptr &&
                          r.cnnlSetMatMulDescAttr != nullptr && r.cnnlMatMulAlgoCreate != nullptr &&
                          r.cnnlMatMulAlgoDestroy != nullptr && r.cnnlCreateMatMulHeuristicResult != nullptr &&
                          r.cnnlDestroyMatMulHeuristicResult != nullptr && r.cnnlGetMatMulAlgoHeuristic != nullptr &&
                          r.cnnlGetMatMulHeuristicResult != nullptr && r.cnnlMatMul_v2 != nullptr &&
                          r.cnnlGetBatchMatMulAlgoHeuristic != nullptr &&
                          r.cnnlGetBatchMatMulHeuristicResult != nullptr && r.cnnlBatchMatMulBCast_v2 != nullptr;
  rows.push_back(row(Word::product, {"cnnlMatMul_v2, cnnlBatchMatMulBCast_v2", multiplies}, kFloats,
                     [](Calls& c, const ComposedStep& s) { c.product(s.in[0], s.in[1], s.out); }));
  // The opposite numbers are a copy, too: cnnlTopKTensor_v3 has been seen to change what it reads.
  const bool orders = r.cnnlTopKTensor_v3 != nullptr && r.cnnlGetTopKTensorWorkspaceSize != nullptr;
  rows.push_back(row(Word::order, {"cnnlTopKTensor_v3", orders && r.cnnlTransform_v2 != nullptr}, kFloats,
                     [](Calls& c, const ComposedStep& s) {
                       const Operand opposite = c.scratch(kFloat, s.in[0].dims);
                       c.scale(s.in[0], -1, opposite);
                       c.largest_places(opposite, s.out);
                     }));
  Row reports = reduction(Word::report, false, nullptr);
  reports.primitive.dtypes = kMasks;
  reports.primitive.is_present = reports.primitive.is_present && select.present && compares() && copy.present &&
                                 r.cnnlFill_v3 != nullptr && r.cnnlIndexSelect != nullptr && r.cnnlExpand != nullptr;
  reports.emit = report;
  rows.push_back(reports);

  // Bits of 16, as the upper halves of fp32.
  rows.push_back(row(Word::select, {"cnnlSelectV2", select.present && copy.present}, {Dtype::bf16, Dtype::f16},
                     [](Calls& c, const ComposedStep& s) {
                       const Operand x = c.scratch(kFloat, s.in[1].dims), y = c.scratch(kFloat, s.in[2].dims);
                       const Operand chosen = c.scratch(kFloat, s.out.dims);
                       c.widen(s.in[1], x);
                       c.widen(s.in[2], y);
                       c.select(s.in[0], x, y, chosen);
                       c.upper_halves(chosen, s.out);
                     }));
  const auto cast = [&](Dtypes from, Dtypes to, Needed function, Emit emit) {
    Row made = row(Word::cast, function, from, std::move(emit));
    made.primitive.to = to;
    rows.push_back(made);
  };
  cast({Dtype::i32}, {Dtype::i64}, {"cnnlCopy", copy.present && select.present && compares()},
       [](Calls& c, const ComposedStep& s) {
         const IdWords words = words_of(c, s.in[0], false);
         const int n = words.low.dims[0];
         c.copy(words.low, {s.out.data, kInt32, {n}, {2}});
         c.copy(words.high, {static_cast<std::byte*>(s.out.data) + sizeof(int32_t), kInt32, {n}, {2}});
       });
  const bool halves_are_numbers = copy.present && select.present && compares() && op_tensor.present &&
                                  r.cnnlTransform_v2 != nullptr && r.cnnlFill_v3 != nullptr;
  cast({Dtype::i32}, kFloats, {"cnnlCopy", halves_are_numbers},
       [](Calls& c, const ComposedStep& s) { numbers_of(c, s.in[0], s.out); });
  const Needed narrow{"cnnlCopy", copy.present && select.present && compares() && op_tensor.present &&
                                      r.cnnlTransform_v2 != nullptr && r.cnnlAbs != nullptr &&
                                      r.cnnlFill_v3 != nullptr};
  cast({Dtype::bf16}, kFloats, copy, [](Calls& c, const ComposedStep& s) { c.widen(s.in[0], s.out); });
  cast(kFloats, {Dtype::bf16}, narrow, [](Calls& c, const ComposedStep& s) { c.narrow(s.in[0], s.out); });
  cast({Dtype::f16}, kFloats, RLK_CNNL_NEEDS(cnnlCastDataType), [](Calls& c, const ComposedStep& s) {
    c.convert(kHalfToFloat, {s.in[0].data, kHalf, s.in[0].dims}, s.out);
  });
  cast(kFloats, {Dtype::f16}, RLK_CNNL_NEEDS(cnnlCastDataType), [](Calls& c, const ComposedStep& s) {
    c.convert(kFloatToHalf, s.in[0], {s.out.data, kHalf, s.out.dims});
  });
  Row truth = row(Word::cast, {"cnnlLogicOp", compares()}, {Dtype::u8, Dtype::i8}, [](Calls& c, const ComposedStep& s) {
    const Operand zero = c.scratch(kUint8, s.in[0].dims);
    c.fill_bytes(zero, 0);
    c.compare(kNotEqual, s.in[0], zero, s.out);
  });
  truth.primitive.to = kMasks;
  rows.push_back(truth);
  Row any_strides = row(Word::copy, copy, {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::i32, Dtype::i64},
                        [](Calls& c, const ComposedStep& s) { c.copy(s.in[0], s.out); });
  any_strides.primitive.takes_strides = true;
  rows.push_back(any_strides);
  rows.push_back(row(Word::expand, RLK_CNNL_NEEDS(cnnlExpand), {Dtype::f32, Dtype::i32},
                     [](Calls& c, const ComposedStep& s) { c.expand(s.in[0], s.out); }));
  rows.push_back(row(Word::expand, {"cnnlExpand", r.cnnlExpand != nullptr && copy.present}, {Dtype::bf16, Dtype::f16},
                     [](Calls& c, const ComposedStep& s) {
                       const Operand x = c.scratch(kFloat, s.in[0].dims), wide = c.scratch(kFloat, s.out.dims);
                       c.widen(s.in[0], x);
                       c.expand(x, wide);
                       c.upper_halves(wide, s.out);
                     }));
  // cnnlExpand is known to take numbers.
  rows.push_back(row(Word::expand, {"cnnlExpand", r.cnnlExpand != nullptr && select.present && compares()}, kMasks,
                     [](Calls& c, const ComposedStep& s) {
                       const Operand one = c.scratch(kFloat, s.in[0].dims), zero = c.scratch(kFloat, s.in[0].dims);
                       c.fill(one, 1.0F);
                       c.fill(zero, 0.0F);
                       const Operand chosen = c.scratch(kFloat, s.in[0].dims);
                       c.select(s.in[0], one, zero, chosen);
                       const Operand wide = c.scratch(kFloat, s.out.dims), zeros = c.scratch(kFloat, s.out.dims);
                       c.expand(chosen, wide);
                       c.fill(zeros, 0.0F);
                       c.compare(kNotEqual, wide, zeros, s.out);
                     }));
  rows.push_back(row(Word::positions, RLK_CNNL_NEEDS(cnnlArange_v2), kFloats,
                     [](Calls& c, const ComposedStep& s) { c.positions(s.out); }));
  rows.push_back(row(Word::fill, RLK_CNNL_NEEDS(cnnlFill_v3), kFloats,
                     [](Calls& c, const ComposedStep& s) { c.fill(s.out, s.real()); }));
  rows.push_back(row(Word::fill, RLK_CNNL_NEEDS(cnnlFill_v3), {Dtype::i32}, [](Calls& c, const ComposedStep& s) {
    c.fill(s.out, static_cast<int32_t>(composed::nearest(s.number, 31)));
  }));
  const auto fill_rounded = [&](Dtype dtype, Needed function, void (*round)(Calls&, const Operand&, const Operand&)) {
    rows.push_back(row(Word::fill, function, {dtype}, [round](Calls& c, const ComposedStep& s) {
      const Operand wide = c.scratch(kFloat, s.out.dims);
      c.fill(wide, s.real());
      round(c, wide, s.out);
    }));
  };
  fill_rounded(Dtype::bf16, narrow, [](Calls& c, const Operand& x, const Operand& out) { c.narrow(x, out); });
  fill_rounded(Dtype::f16, RLK_CNNL_NEEDS(cnnlCastDataType), [](Calls& c, const Operand& x, const Operand& out) {
    c.convert(kFloatToHalf, x, {out.data, kHalf, out.dims});
  });
  rows.push_back(row(Word::fill, {"cnrtMemsetAsync", true}, kMasks,
                     [](Calls& c, const ComposedStep& s) { c.fill_bytes(s.out, s.number != 0 ? 1 : 0); }));
  const auto sum = [](Calls& c, const Operand& x, int axis, const Operand& out) { c.sum(x, axis, out); };
  const auto largest = [](Calls& c, const Operand& x, int axis, const Operand& out) { c.max(x, axis, out); };
  rows.push_back(reduction(Word::sum, false, sum));
  rows.push_back(reduction(Word::sum_rows, true, sum));
  rows.push_back(reduction(Word::largest, false, largest));
  rows.push_back(reduction(Word::largest_at, false, [](Calls& c, const Operand& x, int axis, const Operand& out) {
    const Operand best = c.scratch(kFloat, out.dims);
    c.max(x, axis, best, &out);
  }));
  return rows;
}

const std::vector<Row>& table() {
  static const std::vector<Row> made = rows();
  return made;
}

}  // namespace

const composed::Primitives& primitives() {
  static const std::string name = "the installed CNNL " + runtime().cnnl_version;
  static const composed::Primitives made = [] {
    composed::Primitives all{
        name.c_str(), {}, 256, static_cast<uint64_t>(workspace_limit()), {false, false, false, workspace_limit() / 2},
        kSpeed};
    for (const Row& row : table()) all.table.push_back(row.primitive);
    return all;
  }();
  return made;
}

const Emit& emit_of(size_t primitive) {
  return table()[primitive].emit;
}

}  // namespace rlk::cambricon
