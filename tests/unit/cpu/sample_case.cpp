// The case as the kernel's arguments and as golden's, and both answers compared.
#include "unit/cpu/sample_case.hpp"

#include "core/cpu/tbb_parallel.hpp"

namespace rlk::test {
namespace {

int64_t stride_of(const Tensor& tensor, int axis) {
  return tensor.present() ? tensor.stride(axis) : 0;
}

template <typename T>
cpu::Beside<T> beside(Tensor& tensor) {
  return {static_cast<T*>(tensor.data()), stride_of(tensor, 0), stride_of(tensor, 1)};
}

void set_inputs(SampleCase& c, cpu::SampleArgs& args) {
  Tensor& logits = c[RLK_SAMPLE_IN_LOGITS];
  args.n = c.rows();
  args.vocab = c.vocab();
  args.dtype = logits.dtype();
  args.logits = logits.data();
  args.row_stride = logits.stride(0);
  args.col_stride = logits.stride(1);
  const auto real = [&](int input, double scalar) {
    return cpu::RowFloat{static_cast<const float*>(c[input].data()), stride_of(c[input], 0), scalar};
  };
  const auto integer = [&](int input, int64_t scalar) {
    return cpu::RowInteger{static_cast<const int64_t*>(c[input].data()), stride_of(c[input], 0), scalar};
  };
  args.row_ids = integer(RLK_SAMPLE_IN_ROW_IDS, 0);
  args.temperature = real(RLK_SAMPLE_IN_TEMPERATURES, c.params.temperature);
  args.top_p = real(RLK_SAMPLE_IN_TOP_PS, c.params.top_p);
  args.min_p = real(RLK_SAMPLE_IN_MIN_PS, c.params.min_p);
  args.repetition = real(RLK_SAMPLE_IN_REPETITION_PENALTIES, c.params.repetition_penalty);
  args.frequency = real(RLK_SAMPLE_IN_FREQUENCY_PENALTIES, c.params.frequency_penalty);
  args.presence = real(RLK_SAMPLE_IN_PRESENCE_PENALTIES, c.params.presence_penalty);
  args.top_k = integer(RLK_SAMPLE_IN_TOP_KS, c.params.top_k);
  args.seed = integer(RLK_SAMPLE_IN_SEEDS, c.params.seed);
  args.step = integer(RLK_SAMPLE_IN_STEPS, c.params.step);
  args.prompt_mask = beside<const uint8_t>(c[RLK_SAMPLE_IN_PROMPT_MASK]);
  args.output_counts = beside<const int32_t>(c[RLK_SAMPLE_IN_OUTPUT_COUNTS]);
  args.allowed = beside<const uint8_t>(c[RLK_SAMPLE_IN_ALLOWED]);
  Tensor& samples = c[RLK_SAMPLE_IN_UNIFORM_SAMPLES];
  args.in_rounds = samples.present();
  args.uniform_samples = static_cast<const float*>(samples.data());
  args.rounds = samples.present() ? samples.shape()[0] : 0;
  args.round_stride = stride_of(samples, 0);
  args.sample_stride = stride_of(samples, 1);
  args.joint = c.params.filter_order == RLK_SAMPLE_FILTER_ORDER_JOINT;
  args.top_k_keeps_ties = c.params.top_k_ties == RLK_SAMPLE_TOP_K_TIES_KEEP;
  args.top_p_exceeds = c.params.top_p_boundary == RLK_SAMPLE_TOP_P_BOUNDARY_EXCEED;
  args.top_p_keeps_ties = c.params.top_p_ties == RLK_SAMPLE_TOP_P_TIES_KEEP;
}

}  // namespace

SampleCase& SampleCase::per_row(int input, Dtype dtype, const std::function<double(int64_t n)>& value) {
  Tensor& tensor = (*this)[input] = Tensor(dtype, {rows()}, strides);
  for (int64_t n = 0; n < rows(); ++n) {
    if (dtype == Dtype::f32) {
      tensor.set(n, value(n));
    } else {
      tensor.set_int(n, static_cast<int64_t>(value(n)));
    }
  }
  return *this;
}

SampleCase& SampleCase::per_token(int input, Dtype dtype, const std::vector<double>& values) {
  Tensor& tensor = (*this)[input] = Tensor(dtype, {rows(), vocab()}, strides);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_int(i, static_cast<int64_t>(values[static_cast<size_t>(i) % values.size()]));
  }
  return *this;
}

std::vector<int64_t> SampleOutputs::integers(int output) const {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < (*this)[output].size(); ++i) list.push_back((*this)[output].get_int(i));
  return list;
}

SampleCase rows_of(const std::vector<double>& logits, int64_t rows) {
  const auto vocab = static_cast<int64_t>(logits.size());
  SampleCase c;
  c[RLK_SAMPLE_IN_LOGITS] =
      Tensor(Dtype::f32, {rows, vocab}).fill([&](int64_t i) { return logits[static_cast<size_t>(i % vocab)]; });
  c.per_row(RLK_SAMPLE_IN_ROW_IDS, Dtype::i64, [](int64_t n) { return static_cast<double>(n); });
  return c;
}

SampleCase random_rows(Dtype dtype, int64_t rows, int64_t vocab, uint32_t seed, Strides strides) {
  SampleCase c;
  c.strides = strides;
  c[RLK_SAMPLE_IN_LOGITS] = random_tensor(dtype, {rows, vocab}, 3.0, seed, strides);
  c.per_row(RLK_SAMPLE_IN_ROW_IDS, Dtype::i64, [](int64_t n) { return static_cast<double>(100 + n); });
  return c;
}

SampleOutputs run_sample(SampleCase& c, const cpu::ParallelFor& hook) {
  const Dtype wide = accumulator(c[RLK_SAMPLE_IN_LOGITS].dtype());
  SampleOutputs got;
  const auto make = [&](int output, Dtype dtype) -> Tensor& {
    return got.outputs[static_cast<size_t>(output)] = Tensor(dtype, {c.rows()}, c.strides);
  };
  cpu::SampleArgs args;
  set_inputs(c, args);
  Tensor& ids = make(RLK_SAMPLE_OUT_IDS, c.id_dtype);
  args.ids = ids.data();
  args.ids_are_i64 = c.id_dtype == Dtype::i64;
  args.ids_stride = ids.stride(0);
  Tensor& logp = make(RLK_SAMPLE_OUT_LOGP, wide);
  args.logp = logp.data();
  args.logp_stride = logp.stride(0);
  Tensor& processed = make(RLK_SAMPLE_OUT_PROCESSED_LOGP, wide);
  args.processed_logp = processed.data();
  args.processed_logp_stride = processed.stride(0);
  Tensor& status = make(RLK_SAMPLE_OUT_STATUS, Dtype::i32);
  args.status = static_cast<int32_t*>(status.data());
  args.status_stride = status.stride(0);
  Tensor& success = make(RLK_SAMPLE_OUT_SUCCESS, Dtype::u8);
  args.success = static_cast<uint8_t*>(success.data());
  args.success_stride = success.stride(0);
  Tensor& keep = got.outputs[RLK_SAMPLE_OUT_KEEP_MASK] = Tensor(Dtype::u8, {c.rows(), c.vocab()}, c.strides);
  args.keep_mask = beside<uint8_t>(keep);
  const int64_t bytes = cpu::sample_workspace_bytes(c.rows(), c.vocab(), true, hook.threads);
  std::vector<uint64_t> workspace(static_cast<size_t>(bytes / 8 + 1), 0x7b7b7b7b7b7b7b7bu);
  args.workspace = workspace.data();
  got.error = cpu::sample(args, hook);
  return got;
}

SampleOutputs run_sample(SampleCase& c) {
  return run_sample(c, cpu::serial_parallel());
}

golden::Answer golden_sample(const SampleCase& c) {
  std::vector<golden::View> views;
  for (const Tensor& input : c.inputs) views.push_back(input.view());
  return golden::find("sample")({views, &c.params, (1u << RLK_SAMPLE_N_OUTPUTS) - 1});
}

void expect_golden(SampleCase& c) {
  const golden::Answer expected = golden_sample(c);
  const SampleOutputs got = run_sample(c);
  for (size_t i = 0; i < RLK_SAMPLE_N_OUTPUTS; ++i) {
    EXPECT_TRUE(matches(got.outputs[i], expected.outputs[i], c[RLK_SAMPLE_IN_LOGITS].dtype())) << "output " << i;
  }
  EXPECT_EQ(got.error.kind, expected.error.kind);
  EXPECT_EQ(got.error.row, expected.error.row);
  EXPECT_EQ(got.error.value, expected.error.value);
  for (const cpu::ParallelFor& hook : {cpu::tbb_parallel(), backwards_parallel()}) {
    const SampleOutputs again = run_sample(c, hook);
    for (size_t i = 0; i < RLK_SAMPLE_N_OUTPUTS; ++i) EXPECT_EQ(again.outputs[i].bytes(), got.outputs[i].bytes());
    EXPECT_EQ(again.error.row, got.error.row);
  }
}

std::vector<int64_t> kept(const SampleOutputs& outputs, int64_t row) {
  const Tensor& mask = outputs[RLK_SAMPLE_OUT_KEEP_MASK];
  std::vector<int64_t> list;
  for (int64_t v = 0; v < mask.shape()[1]; ++v) {
    if (mask.get_int(row * mask.shape()[1] + v) != 0) list.push_back(v);
  }
  return list;
}

}  // namespace rlk::test
