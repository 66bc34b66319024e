// One call of sample as tensors and parameters, run through the kernel and through the golden reference.
#pragma once

#include <rlk/ops/sample.h>

#include <array>

#include "core/cpu/sampling/sample.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {

struct SampleCase {
  rlk_sample_params params = RLK_SAMPLE_PARAMS_INIT;
  std::array<Tensor, RLK_SAMPLE_N_INPUTS> inputs;  // by RLK_SAMPLE_IN_*; an absent one is not present
  Dtype id_dtype = Dtype::i64;
  Strides strides = Strides::contiguous;  // of what is added later, outputs included

  int64_t rows() const { return inputs[RLK_SAMPLE_IN_LOGITS].shape()[0]; }
  int64_t vocab() const { return inputs[RLK_SAMPLE_IN_LOGITS].shape()[1]; }
  Tensor& operator[](int input) { return inputs[static_cast<size_t>(input)]; }
  // One number per row, a [N, V] tensor of one row's numbers repeated.
  SampleCase& per_row(int input, Dtype dtype, const std::function<double(int64_t n)>& value);
  SampleCase& per_token(int input, Dtype dtype, const std::vector<double>& values);
};

struct SampleOutputs {
  std::array<Tensor, RLK_SAMPLE_N_OUTPUTS> outputs;  // by RLK_SAMPLE_OUT_*, all of them
  cpu::DataError error;

  const Tensor& operator[](int output) const { return outputs[static_cast<size_t>(output)]; }
  std::vector<int64_t> ids() const { return integers(RLK_SAMPLE_OUT_IDS); }
  std::vector<int64_t> integers(int output) const;
};

// Rows of the same scores, with row ids 0, 1, ...
SampleCase rows_of(const std::vector<double>& logits, int64_t rows = 1);
// Rows of random scores (scale 3), with row ids 100, 101, ...
SampleCase random_rows(Dtype dtype, int64_t rows, int64_t vocab, uint32_t seed, Strides strides = Strides::contiguous);

SampleOutputs run_sample(SampleCase& c, const cpu::ParallelFor& hook);
SampleOutputs run_sample(SampleCase& c);  // serial
golden::Answer golden_sample(const SampleCase& c);
// Both agree: integers exactly, log-probabilities by the golden rule, the data error, and other hooks give the same
// bits.
void expect_golden(SampleCase& c);

// The kept tokens of a row.
std::vector<int64_t> kept(const SampleOutputs& outputs, int64_t row = 0);

}  // namespace rlk::test
