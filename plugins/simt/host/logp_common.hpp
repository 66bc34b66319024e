// How logp and logp_backward turn their common arguments into kernel arguments.
#pragma once

#include <rlk/sdk/arguments.hpp>

#include "operator.hpp"

namespace rlk::simt::host {

// Arguments: of logp or of logp_backward.
template <class Arguments>
simt::TokenRows token_rows(const Arguments& call) {
  simt::TokenRows tokens{};
  tokens.ids = sdk::data_of(call.ids);
  tokens.mask = sdk::data_of<const uint8_t>(call.mask);
  tokens.row_indices = sdk::data_of<const int64_t>(call.row_indices);
  tokens.rows = call.N;
  tokens.logits_rows = call.R;
  tokens.vocab = call.V;
  tokens.ignore_index = call.params.ignore_index;
  tokens.vocab_start = call.params.vocab_start;
  tokens.id_limit = call.params.global_vocab > 0 ? call.params.global_vocab : tokens.vocab;
  tokens.sharded = tokens.id_limit > tokens.vocab ? 1 : 0;
  tokens.ids_are_i64 = sdk::dtype_of(*call.ids) == sdk::Dtype::i64 ? 1 : 0;
  return tokens;
}

template <class Arguments>
simt::LogitTransform logit_transform(const Arguments& call) {
  return {sdk::data_of(call.bias), call.params.temperature, call.params.softcap,
          static_cast<float>(kLog2e / call.params.temperature), 0};
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

// Inputs but the logits (and the gradient) must be contiguous, those need dense rows.
template <class Arguments>
sdk::Refusal refuse_token_strides(const Arguments& call) {
  if (auto refused = sdk::refuse_strided_rows(call.logits, "logits", "vocabulary")) return refused;
  if (auto refused = sdk::refuse_gaps(call.ids, "ids")) return refused;
  if (auto refused = sdk::refuse_gaps(call.bias, "bias")) return refused;
  if (auto refused = sdk::refuse_gaps(call.mask, "mask")) return refused;
  if (auto refused = sdk::refuse_gaps(call.keep_mask, "keep_mask")) return refused;
  return sdk::refuse_gaps(call.row_indices, "row_indices");
}

}  // namespace rlk::simt::host
