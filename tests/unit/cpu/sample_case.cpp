// Cases, and the answers of kernel and golden compared.
#include "unit/cpu/sample_case.hpp"

namespace rlk::test {

void SampleCase::per_row(Tensor& input, Dtype dtype, const std::function<double(int64_t n)>& value) const {
  Tensor& tensor = input = Tensor(dtype, {rows()}, strides);
  for (int64_t n = 0; n < rows(); ++n) {
    if (dtype == Dtype::f32) {
      tensor.set(n, value(n));
    } else {
      tensor.set_int(n, static_cast<int64_t>(value(n)));
    }
  }
}

void SampleCase::per_token(Tensor& input, Dtype dtype, const std::vector<double>& values) const {
  Tensor& tensor = input = Tensor(dtype, {rows(), vocab()}, strides);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_int(i, static_cast<int64_t>(values[static_cast<size_t>(i) % values.size()]));
  }
}

std::vector<int64_t> integers_of(const Tensor& tensor) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < tensor.size(); ++i) list.push_back(tensor.get_int(i));
  return list;
}

SampleCase rows_of(const std::vector<double>& logits, int64_t rows) {
  const auto vocab = static_cast<int64_t>(logits.size());
  SampleCase c;
  c.logits = Tensor(Dtype::f32, {rows, vocab}).fill([&](int64_t i) { return logits[static_cast<size_t>(i % vocab)]; });
  c.per_row(c.row_ids, Dtype::i64, [](int64_t n) { return static_cast<double>(n); });
  return c;
}

SampleCase random_rows(Dtype dtype, int64_t rows, int64_t vocab, uint32_t seed, Strides strides) {
  SampleCase c;
  c.strides = strides;
  c.logits = random_tensor(dtype, {rows, vocab}, 3.0, seed, strides);
  c.per_row(c.row_ids, Dtype::i64, [](int64_t n) { return static_cast<double>(100 + n); });
  return c;
}

SampleOutputs run_sample(const SampleCase& c, const cpu::ParallelFor& hook) {
  SampleCase call = c;
  call.ids = Tensor(c.id_dtype, {c.rows()});
  complete(call);
  SampleCase::each_output(call, [&c](Tensor& output) {
    if (output.present()) output = Tensor(output.dtype(), output.shape(), c.strides);
  });
  return run(call, hook);
}

void expect_golden(const SampleCase& c) {
  const auto expected = golden_answer(c);
  const SampleOutputs got = run_sample(c);
  const auto outputs = [](const auto& call) {
    using Call = std::remove_cvref_t<decltype(call)>;
    std::vector<const typename Call::Out*> list;
    Call::each_output(call, [&list](const auto& output) { list.push_back(&output); });
    return list;
  };
  for (size_t i = 0; i < RLK_SAMPLE_N_OUTPUTS; ++i) {
    EXPECT_TRUE(matches(*outputs(got)[i], *outputs(expected)[i], c.logits.dtype())) << "output " << i;
  }
  EXPECT_EQ(got.error.kind, expected.error.kind);
  EXPECT_EQ(got.error.row, expected.error.row);
  EXPECT_EQ(got.error.value, expected.error.value);
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const SampleOutputs again = run_sample(c, hook);
    for (size_t i = 0; i < RLK_SAMPLE_N_OUTPUTS; ++i) {
      EXPECT_EQ(outputs(again)[i]->bytes(), outputs(got)[i]->bytes());
    }
    EXPECT_EQ(again.error.row, got.error.row);
  }
  SampleCase without = c;
  without.keep_mask = Tensor();
  for (const cpu::ParallelFor& hook : {cpu::serial_parallel(), threads_parallel(8)}) {
    const SampleOutputs again = run_sample(without, hook);
    EXPECT_EQ(again.ids.bytes(), got.ids.bytes());
    EXPECT_EQ(again.status.bytes(), got.status.bytes());
    EXPECT_EQ(again.processed_logp.bytes(), got.processed_logp.bytes());
    EXPECT_EQ(again.error.row, got.error.row);
  }
}

std::vector<int64_t> kept(const SampleOutputs& outputs, int64_t row) {
  const Tensor& mask = outputs.keep_mask;
  std::vector<int64_t> list;
  for (int64_t v = 0; v < mask.shape()[1]; ++v) {
    if (mask.get_int(row * mask.shape()[1] + v) != 0) list.push_back(v);
  }
  return list;
}

}  // namespace rlk::test
