// What becomes of a formula: one step for each value that an output needs, memory that is shared and never too early,
// chunks with the same numbers, and the name of what a vendor lacks.
#include <gtest/gtest.h>

#include "interpreter.hpp"
#include "plugins/composed/projection.hpp"

#include <rlk/formula/activation.hpp>

namespace {

using namespace composed_test;

View view(View::Place place, uint32_t index, Dims dims) {
  View made;
  made.place = place;
  made.index = index;
  made.dtype = Dtype::f32;
  made.strides = dense_strides(dims);
  made.dims = std::move(dims);
  return made;
}
View in(uint32_t index, Dims dims) {
  return view(View::Place::input, index, std::move(dims));
}
View out(uint32_t index, Dims dims) {
  return view(View::Place::output, index, std::move(dims));
}

std::vector<float> numbers(size_t count) {
  std::vector<float> made(count);
  for (size_t i = 0; i < count; ++i) made[i] = static_cast<float>(i * 37 % 29) / 4 - 3;
  return made;
}

// The gradients of a gate, of [rows, 4].
void record_gate(Recorder& recorder, int64_t rows, const View& grad_gate, const View& grad_input) {
  const Recording<float> d{&recorder};
  const auto value = [&](uint32_t index) { return Value{&recorder, recorder.input(in(index, {rows, 4}))}; };
  const Two<Value> gradients = silu_gate_gradients(d, value(0), value(1), value(2));
  recorder.output(grad_gate, gradients.first.node);
  recorder.output(grad_input, gradients.second.node);
}

// What record_gate says of three inputs, on a vendor; aliased: the first gradient is in the gate's memory.
std::vector<std::vector<float>> gate_gradients(const Primitives& primitives, bool aliased, uint64_t* bytes = nullptr) {
  constexpr int64_t kRows = 37;
  std::vector<float> grad = numbers(kRows * 4), gate = numbers(kRows * 4), input = numbers(kRows * 4);
  std::vector<float> first(kRows * 4), second(kRows * 4);
  const auto record = [&](Recorder& recorder) { record_gate(recorder, kRows, out(0, {kRows, 4}), out(1, {kRows, 4})); };
  const std::vector<Alias> aliases = aliased ? std::vector<Alias>{{0, 1}} : std::vector<Alias>{};
  const Program program = chunked_program_of(record, primitives, aliases, primitives.workspace_bytes);
  EXPECT_FALSE(program.refusal);
  if (bytes != nullptr) *bytes = program.workspace_bytes;
  Interpreter(primitives, {&grad, &gate, &input}, {aliased ? &gate : &first, &second}).run(program);
  return {aliased ? gate : first, second};
}

std::vector<std::vector<float>> expected_gate_gradients() {
  const std::vector<float> x = numbers(37 * 4);
  std::vector<float> first, second;
  for (const float v : x) {
    const double s = 1 / (1 + std::exp(-static_cast<double>(v)));
    first.push_back(static_cast<float>(v * v * s * (1 + v * (1 - s))));
    second.push_back(static_cast<float>(v * v * s));
  }
  return {first, second};
}

void expect_near(const std::vector<std::vector<float>>& seen, const std::vector<std::vector<float>>& expected) {
  for (size_t k = 0; k < expected.size(); ++k) {
    for (size_t i = 0; i < expected[k].size(); ++i) {
      EXPECT_NEAR(seen[k][i], expected[k][i], 1e-6F * (1 + std::fabs(expected[k][i]))) << k << " " << i;
    }
  }
}

TEST(ComposedProgram, ComputesTheFormulaOnALenientAndOnAStrictVendor) {
  for (const bool is_strict : {false, true})
    expect_near(gate_gradients(vendor(is_strict), false), expected_gate_gradients());
}

TEST(ComposedProgram, AnOutputInAnInputsMemoryIsWrittenAfterItsLastReader) {
  for (const bool is_strict : {false, true})
    expect_near(gate_gradients(vendor(is_strict), true), expected_gate_gradients());
}

TEST(ComposedProgram, ChunksOfRowsKeepTheBoundAndTheNumbers) {
  uint64_t whole = 0, chunked = 0;
  const auto expected = gate_gradients(vendor(false), false, &whole);
  EXPECT_EQ(gate_gradients(vendor(false, whole / 3), false, &chunked), expected);
  EXPECT_LE(chunked, whole / 3);
  EXPECT_EQ(gate_gradients(vendor(true, 4096), true), gate_gradients(vendor(true), true));
}

TEST(ComposedProgram, WhatRowsShareComesBeforeTheChunksAndWhatIsMadeOfAllBehindThem) {
  constexpr int64_t kRows = 370;
  const auto record = [](Recorder& recorder) {
    const Value x{&recorder, recorder.input(in(0, {kRows, 4}))};
    const Value of_all = ahead(sum_of_rows(row_sum(x)));
    const Value y = Mul(x, of_all);
    recorder.output(out(0, {kRows, 4}), y.node);
    recorder.output(out(1, {1, 1}), sum_of_rows(collected(row_sum(Mul(y, x)))).node);
  };
  std::vector<float> x = numbers(kRows * 4);
  double sum = 0, squares = 0;
  for (const float v : x) sum += static_cast<double>(v), squares += static_cast<double>(v) * static_cast<double>(v);
  for (const bool is_strict : {false, true}) {
    const uint64_t whole = chunked_program_of(record, vendor(is_strict), {}, ~uint64_t{0}).workspace_bytes;
    size_t fewest = 0;
    for (const uint64_t bytes : {whole, whole * 3 / 4, whole / 2}) {
      const Primitives primitives = vendor(is_strict, bytes);
      const Program program = chunked_program_of(record, primitives, {}, primitives.workspace_bytes);
      ASSERT_FALSE(program.refusal);
      EXPECT_GT(program.steps.size(), fewest);
      fewest = program.steps.size();
      EXPECT_LE(program.workspace_bytes, bytes);
      for (const Step& step : program.steps) EXPECT_NE(step.out.place, Operand::Place::kept);
      std::vector<float> y(kRows * 4), all(1);
      Interpreter(primitives, {&x}, {&y, &all}).run(program);
      for (size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(static_cast<double>(y[i]), static_cast<double>(x[i]) * sum, 1e-3);
      EXPECT_NEAR(static_cast<double>(all[0]), squares * sum, std::fabs(squares * sum) * 1e-5);
    }
  }
}

// Of 3 sequences of 5 tokens of 2 columns each, with gaps behind every sequence.
TEST(ComposedProgram, TokensOfSequencesThatStandApartAreRowsInChunksToo) {
  View x = in(0, {3, 5, 2}), y = out(0, {3, 5, 2});
  x.strides = {12, 2, 1};
  y.strides = {13, 2, 1};
  std::vector<float> from = numbers(36);
  const auto record = [&](Recorder& recorder) {
    const Recording<float> d{&recorder};
    const Value rows{&recorder, recorder.token_rows(x)};
    // Of each sequence one number, for its tokens.
    const Value first{&recorder, recorder.table(in(1, {3, 1}))}, each{&recorder, recorder.table(in(2, {3, 5}))};
    const Value shared = ahead_of_rows(reshaped(Add(each, first), {15, 1}));
    recorder.output_token_rows(y, Add(Mul(rows, number(d, 2)), shared).node);
  };
  for (const bool is_strict : {false, true}) {
    const uint64_t whole = chunked_program_of(record, vendor(is_strict), {}, ~uint64_t{0}).workspace_bytes;
    for (const uint64_t bytes : {whole, whole / 2}) {
      const Primitives primitives = vendor(is_strict, bytes);
      const Program program = chunked_program_of(record, primitives, {}, primitives.workspace_bytes);
      ASSERT_FALSE(program.refusal);
      std::vector<float> firsts = {100, 200, 300}, tokens = numbers(15), to(39, -1);
      Interpreter(primitives, {&from, &firsts, &tokens}, {&to}).run(program);
      for (size_t i = 0; i < 39; ++i) {
        const size_t sequence = i / 13, at = i % 13, token = sequence * 5 + at / 2;
        const float expected = at < 10 ? 2 * from[sequence * 12 + at] + tokens[token] + firsts[sequence] : -1;
        EXPECT_EQ(to[i], expected) << i << " " << bytes;
      }
    }
  }
}

TEST(ComposedProgram, WhatNoOutputNeedsIsNoStep) {
  const auto steps = [](const View& grad_gate, const View& grad_input) {
    Recorder recorder;
    record_gate(recorder, 2, grad_gate, grad_input);
    return program_of(recorder, vendor(false), {}).steps.size();
  };
  EXPECT_LT(steps(View(), out(1, {2, 4})), steps(out(0, {2, 4}), out(1, {2, 4})));
  EXPECT_EQ(steps(View(), View()), 0u);
}

TEST(ComposedProgram, AValueIsMadeOnceAndNumbersAreComputedWhenRecorded) {
  Recorder recorder;
  const Recording<float> d{&recorder};
  const Value x{&recorder, recorder.input(in(0, {5}))};
  EXPECT_EQ(Mul(x, x).node, Mul(x, x).node);
  EXPECT_EQ(Mul(x, number(d, 1)).node, x.node);
  EXPECT_EQ(Add(number(d, 2), number(d, 3)).node, number(d, 5).node);
  EXPECT_EQ(Sub(number(d, 0.1), number(d, 0)).node, number(d, static_cast<double>(0.1F)).node);
  const Mask below = Lt(x, Zero(d));
  EXPECT_EQ(Not(Not(Lt(x, Zero(d)))).node, Lt(x, Zero(d)).node);
  EXPECT_EQ(IfThenElse(Not(below), x, Zero(d)).node, IfThenElse(below, Zero(d), x).node);
  EXPECT_NE(Not(Lt(x, Zero(d))).node, Ge(x, Zero(d)).node);  // of a NaN the one holds, the other does not
}

TEST(ComposedProgram, IntermediatesShareMemory) {
  Recorder recorder;
  const Recording<float> d{&recorder};
  Value x{&recorder, recorder.input(in(0, {1000}))};
  for (int i = 0; i < 10; ++i) x = Add(exp(d, x), Mul(x, x));
  recorder.output(out(0, {1000}), x.node);
  const Program program = program_of(recorder, vendor(false), {});
  EXPECT_EQ(program.steps.size(), 30u);
  EXPECT_LE(program.workspace_bytes, 3u * 4032);  // x, its power and its square
}

TEST(ComposedProgram, RowsBroadcastAndNothingIsSummedOfNothing) {
  for (const bool is_strict : {false, true}) {
    for (const int64_t rows : {3, 0}) {
      Recorder recorder;
      const Value x{&recorder, recorder.input(in(0, {rows, 2}))}, w{&recorder, recorder.input(in(1, {2}))};
      recorder.output(out(0, {rows, 2}), Mul(Sub(x, row_largest(x)), w).node);
      recorder.output(out(1, {1, 2}), sum_of_rows(x).node);
      const Primitives primitives = vendor(is_strict);
      std::vector<float> data = {1, 2, 5, 3, 4, 4}, weight = {10, 100}, y(6), sums(2, 7.0F);
      Interpreter(primitives, {&data, &weight}, {&y, &sums}).run(program_of(recorder, primitives, {}));
      EXPECT_EQ(y, rows == 3 ? (std::vector<float>{-10, 0, 0, -200, 0, 0}) : std::vector<float>(6));
      EXPECT_EQ(sums, rows == 3 ? (std::vector<float>{10, 9}) : std::vector<float>(2));
    }
  }
}

// Of a batch of two and one matrix for both, which is passed with its dimensions exchanged; then over the batch.
TEST(ComposedProgram, MatricesAreMultipliedAndSummedOverABatch) {
  const std::vector<float> a = numbers(2 * 3 * 4), b = numbers(5 * 4);
  for (const bool is_strict : {false, true}) {
    for (const bool has_gaps : {false, true}) {
      View left = in(0, {2, 3, 4});
      std::vector<float> from = a, weight = b, y(2 * 3 * 5), sums(3 * 5);
      if (has_gaps) {  // the first matrix for both
        left.strides = {0, 4, 1};
        std::copy_n(a.begin(), 12, from.begin() + 12);
      }
      Recorder recorder;
      const Value x{&recorder, recorder.input(left)}, w{&recorder, recorder.input(in(1, {1, 5, 4}))};
      const Value made = product(x, transposed(w));
      recorder.output(out(0, {2, 3, 5}), made.node);
      recorder.output(out(1, {1, 3, 5}), sum_along(made, 0).node);
      const Primitives primitives = vendor(is_strict);
      const Program program = program_of(recorder, primitives, {});
      ASSERT_FALSE(program.refusal) << program.refusal->reason;
      Interpreter(primitives, {&from, &weight}, {&y, &sums}).run(program);
      for (size_t i = 0; i < y.size(); ++i) {
        float expected = 0;
        for (size_t k = 0; k < 4; ++k) expected += from[i / 5 * 4 + k] * b[i % 5 * 4 + k];
        EXPECT_FLOAT_EQ(y[i], expected) << i;
      }
      for (size_t i = 0; i < sums.size(); ++i) EXPECT_FLOAT_EQ(sums[i], y[i] + y[i + sums.size()]);
    }
  }
  Recorder recorder;
  const Value none = product({&recorder, recorder.input(in(0, {3, 0}))}, {&recorder, recorder.input(in(1, {0, 2}))});
  EXPECT_EQ(none.node, recorder.number(0, Dtype::f32));
}

struct GradientsOfProducts {
  View grad_hidden, grad_weight, grad_bias;
};

// Scores of 130 entries, of which blocks have 64, and half of them as their gradients; the rows of weights have gaps.
TEST(ComposedProgram, WeightsAreReadInBlocksAndTheirGradientsSummedOverChunks) {
  constexpr size_t kRows = 150, kEntries = 130, kSize = 3, kStride = 5;
  const std::vector<float> hidden = numbers(kRows * kSize), weight = numbers(kEntries * kStride);
  std::vector<double> sums(kRows), grad_hidden(kRows * kSize), grad_weight(kEntries * kSize), grad_bias(kEntries);
  for (size_t n = 0; n < kRows; ++n) {
    for (size_t v = 0; v < kEntries; ++v) {
      double score = 0;
      for (size_t k = 0; k < kSize; ++k)
        score += static_cast<double>(hidden[n * kSize + k]) * static_cast<double>(weight[v * kStride + k]);
      sums[n] += score;
      grad_bias[v] += score / 2;
      for (size_t k = 0; k < kSize; ++k) {
        grad_hidden[n * kSize + k] += score / 2 * static_cast<double>(weight[v * kStride + k]);
        grad_weight[v * kSize + k] += score / 2 * static_cast<double>(hidden[n * kSize + k]);
      }
    }
  }
  const auto record = [&](Recorder& recorder) {
    const Recording<float> d{&recorder};
    View table = in(1, {kEntries, kSize});
    table.strides = {kStride, 1};
    const Projection<Recording<float>> model(d, in(0, {kRows, kSize}), table,
                                             {&recorder, recorder.number(1, Dtype::boolean)});
    const Value scores = model.scores();
    recorder.output(out(0, {kRows, 1}), row_sum(scores).node);
    const GradientsOfProducts gradients{out(1, {kRows, kSize}), out(2, {kEntries, kSize}), out(3, {kEntries})};
    model.gradients(gradients, Mul(scores, number(d, 0.5)));
  };
  const auto expect = [](const char* what, const std::vector<float>& seen, const std::vector<double>& expected) {
    for (size_t i = 0; i < seen.size(); ++i)
      EXPECT_NEAR(static_cast<double>(seen[i]), expected[i], 1e-4 * (1 + std::fabs(expected[i]))) << what << " " << i;
  };
  for (const bool is_strict : {false, true}) {
    Primitives primitives = vendor(is_strict);
    primitives.abilities.block_bytes = 1;
    uint64_t bytes = ~uint64_t{0};
    for (const uint64_t share : {1, 2, 4}) {
      const Program program = chunked_program_of(record, primitives, {}, bytes / share);
      SCOPED_TRACE(testing::Message() << "strict " << is_strict << ", share " << share);
      ASSERT_FALSE(program.refusal);
      if (share == 1) bytes = program.workspace_bytes;
      EXPECT_LE(program.workspace_bytes, bytes / share);
      std::vector<float> from = hidden, table = weight;
      std::vector<float> y(sums.size()), of_hidden(grad_hidden.size()), of_weight(grad_weight.size()),
          of_bias(kEntries);
      Interpreter(primitives, {&from, &table}, {&y, &of_hidden, &of_weight, &of_bias}).run(program);
      expect("sums", y, sums), expect("grad_hidden", of_hidden, grad_hidden);
      expect("grad_weight", of_weight, grad_weight), expect("grad_bias", of_bias, grad_bias);
    }
  }
}

// Sums over all rows, and a table that is begun with what is told, by a number, and by a value that repeats.
TEST(ComposedProgram, WhatChunksAddUpAndRowsThatArePutInATable) {
  constexpr int64_t kRows = 370;
  std::vector<float> x = numbers(kRows * 4), places = {3, 0, 2, 3}, base = {7};
  const auto record = [](Recorder& recorder) {
    const Value rows{&recorder, recorder.input(in(0, {kRows, 4}))}, at{&recorder, recorder.table(in(1, {4, 1}))};
    const Value first{&recorder, recorder.table(in(2, {1, 1}))};
    recorder.output(out(0, {kRows, 4}), Mul(rows, rows).node);
    recorder.output(out(1, {1, 4}), Add(summed(sum_of_rows(rows)), first).node);
    const Value own = Add(at, at);  // of one place the same
    recorder.output(out(2, {5, 1}), placed(5, -1, at, own).node);
    recorder.output(out(3, {5, 1}), recorder.placed({5, 1}, Mul(first, first).node, at.node, own.node));
  };
  for (const bool is_strict : {false, true}) {
    const Primitives primitives = vendor(is_strict);
    const uint64_t whole = chunked_program_of(record, primitives, {}, ~uint64_t{0}).workspace_bytes;
    for (const uint64_t bytes : {whole, whole / 4}) {
      const Program program = chunked_program_of(record, primitives, {}, bytes);
      ASSERT_FALSE(program.refusal);
      std::vector<float> squares(kRows * 4), sums(4), by_number(5, 9), by_value(5, 9);
      Interpreter(primitives, {&x, &places, &base}, {&squares, &sums, &by_number, &by_value}).run(program);
      for (size_t column = 0; column < 4; ++column) {
        float expected = 7;
        for (size_t row = 0; row < kRows; ++row) expected += x[row * 4 + column];
        EXPECT_FLOAT_EQ(sums[column], expected) << bytes;
      }
      EXPECT_EQ(by_number, (std::vector<float>{0, -1, 4, 6, -1}));
      EXPECT_EQ(by_value, (std::vector<float>{0, 49, 4, 6, 49}));
    }
  }
}

// In the memory of an input, in two parts.
TEST(ComposedProgram, RowsArePutInOneTableSeveralTimes) {
  for (const bool is_strict : {false, true}) {
    Recorder recorder;
    const Value table{&recorder, recorder.input(in(0, {4, 2}))}, places{&recorder, recorder.input(in(1, {3, 1}))};
    const Value rows{&recorder, recorder.input(in(2, {3, 2}))};
    int made = recorder.put_rows(table.node, places.node, Add(rows, rows).node);
    made = recorder.put_rows(made, Add(places, rlk::composed::detail::beside(places, 1)).node, rows.node);
    recorder.output(out(0, {4, 2}), made);
    const Primitives primitives = vendor(is_strict);
    const Program program = program_of(recorder, primitives, {{0, 0}});
    ASSERT_FALSE(program.refusal);
    std::vector<float> memory = {1, 1, 2, 2, 3, 3, 4, 4}, at = {0, 2, 0}, given = {10, 11, 20, 21, 10, 11};
    Interpreter(primitives, {&memory, &at, &given}, {&memory}).run(program);
    EXPECT_EQ(memory, (std::vector<float>{20, 22, 10, 11, 40, 42, 20, 21}));
  }
}

TEST(ComposedProgram, WhatIsLackingIsNamed) {
  Recorder recorder;
  record_gate(recorder, 2, out(0, {2, 4}), View());
  Primitives primitives = vendor(false);
  for (Primitive& one : primitives.table) one.is_present = one.word != Word::exp && one.word != Word::absolute;
  const Program absent = program_of(recorder, primitives, {});
  ASSERT_TRUE(absent.refusal);
  EXPECT_EQ(absent.refusal->reason_code, "RUNTIME_SYMBOL_MISSING");
  EXPECT_NE(absent.refusal->reason.find("the interpreter has no abs, exp"), std::string::npos)
      << absent.refusal->reason;
  EXPECT_TRUE(absent.steps.empty());

  View wide = out(0, {2, 4});
  wide.dtype = Dtype::bf16;
  Recorder to_bf16;
  record_gate(to_bf16, 2, wide, View());
  const Program unknown = program_of(to_bf16, vendor(false), {});
  ASSERT_TRUE(unknown.refusal);
  EXPECT_EQ(unknown.refusal->reason_code, "PRIMITIVE");
  EXPECT_NE(unknown.refusal->reason.find("a cast from f32 to bf16"), std::string::npos) << unknown.refusal->reason;
}

}  // namespace
