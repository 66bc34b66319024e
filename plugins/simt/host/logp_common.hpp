// How logp and logp_backward turn their common arguments into kernel arguments.
#pragma once

#include "operator.hpp"

namespace rlk::simt::host {

// Indices of the common inputs; they differ between the two operators.
struct TokenInputs {
  uint32_t logits, ids, bias, mask, row_indices;
};

// Params: rlk_logp_params or rlk_logp_backward_params, the same fields.
template <class Params>
simt::TokenRows token_rows(const sdk::Run& run, const TokenInputs& at, const Params& params) {
  const rlk_tensor& logits = *run.input(at.logits);
  const rlk_tensor& ids = *run.input(at.ids);
  simt::TokenRows tokens{};
  tokens.ids = sdk::data_of(&ids);
  tokens.mask = sdk::data_of<const uint8_t>(run.input(at.mask));
  tokens.row_indices = sdk::data_of<const int64_t>(run.input(at.row_indices));
  tokens.rows = ids.shape[0];
  tokens.logits_rows = logits.shape[0];
  tokens.vocab = logits.shape[1];
  tokens.ignore_index = params.ignore_index;
  tokens.vocab_start = params.vocab_start;
  tokens.id_limit = params.global_vocab > 0 ? params.global_vocab : tokens.vocab;
  tokens.sharded = tokens.id_limit > tokens.vocab ? 1 : 0;
  tokens.ids_are_i64 = sdk::dtype_of(ids) == sdk::Dtype::i64 ? 1 : 0;
  return tokens;
}

template <class Params>
simt::LogitTransform logit_transform(const sdk::Run& run, const TokenInputs& at, const Params& params) {
  return {sdk::data_of(run.input(at.bias)), params.temperature, params.softcap,
          static_cast<float>(kLog2e / params.temperature), 0};
}

// What the kernels compute in fp32 needs these parameters and their reciprocals to be numbers of fp32, far from its
// ends.
template <class Params>
sdk::Refusal refuse_scaling(const Params& params, sdk::Dtype logits) {
  if (logits == sdk::Dtype::f64) return std::nullopt;
  const auto is_beyond = [](double value) { return value < 0x1p-60 || value > 0x1p60; };
  if (is_beyond(params.temperature)) {
    return sdk::Support::no("TEMPERATURE", "the kernels' arithmetic takes temperatures between 2^-60 and 2^60");
  }
  if (params.softcap != 0 && is_beyond(params.softcap)) {
    return sdk::Support::no("SOFTCAP", "the kernels' arithmetic takes softcaps between 2^-60 and 2^60");
  }
  return std::nullopt;
}

// Everything but the logits (and the gradient) must be contiguous, those need dense rows. The texts name the tensor.
template <class Op>
sdk::Refusal refuse_token_strides(const sdk::Call<Op>& call, uint32_t logits, const char* const* names) {
  if (auto refused = sdk::refuse_strided_rows(call.input(logits), "logits", "vocabulary")) return refused;
  for (uint32_t i = 0; i < Op::kInputs; ++i) {
    if (i == logits) continue;
    if (auto refused = sdk::refuse_gaps(call.input(i), names[i])) return refused;
  }
  return std::nullopt;
}

}  // namespace rlk::simt::host
