// One call of sample as tensors and parameters, run through the kernel and through the golden reference.
#pragma once

#include <rlk/sdk/ops/sample.hpp>

#include "unit/cpu/operator.hpp"

namespace rlk::test {

// Every output is asked for.
struct SampleCase : CallOf<ops::Sample> {
  SampleCase() { logp = processed_logp = status = success = keep_mask = wanted(); }
  Dtype id_dtype = Dtype::i64;
  Strides strides = Strides::contiguous;  // of what is added later, outputs included

  int64_t rows() const { return logits.shape()[0]; }
  int64_t vocab() const { return logits.shape()[1]; }
  // Sets an input: one number per row, or a [N, V] tensor of one row's numbers repeated.
  void per_row(Tensor& input, Dtype dtype, const std::function<double(int64_t n)>& value) const;
  void per_token(Tensor& input, Dtype dtype, const std::vector<double>& values) const;
};
using SampleOutputs = Result<SampleCase>;

std::vector<int64_t> integers_of(const Tensor& tensor);

// Rows of the same scores, with row ids 0, 1, ...
SampleCase rows_of(const std::vector<double>& logits, int64_t rows = 1);
// Rows of random scores (scale 3), with row ids 100, 101, ...
SampleCase random_rows(Dtype dtype, int64_t rows, int64_t vocab, uint32_t seed, Strides strides = Strides::contiguous);

SampleOutputs run_sample(const SampleCase& c, const cpu::ParallelFor& hook = cpu::serial_parallel());
// Both agree: integers exactly, log-probabilities by the golden rule, the data error, and other hooks and a call
// without the mask, which need not look at every token, give the same bits.
void expect_golden(const SampleCase& c);

// The kept tokens of a row.
std::vector<int64_t> kept(const SampleOutputs& outputs, int64_t row = 0);

}  // namespace rlk::test
