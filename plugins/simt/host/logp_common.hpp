// How logp and logp_backward turn their common arguments into kernel arguments.
#pragma once

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

// The logits and what is made of them; likewise the place of data errors.
template <class Args, class Arguments>
void set_logits(Args& args, const Arguments& call, const sdk::Run& run) {
  args.logits = sdk::data_of(call.logits);
  args.row_stride = call.logits->strides[0];
  args.tokens = token_rows(call);
  args.transform = {sdk::data_of(call.bias), call.params.temperature, call.params.softcap,
                    static_cast<float>(kLog2e / call.params.temperature), 0};
  args.keep_mask = sdk::data_of<const uint8_t>(call.keep_mask);
  args.errors = error_sink(run);
}

// Whether a number of each token has the accumulator's dtype and not that of the logits.
inline int32_t is_accumulator(const rlk_tensor& tensor, sdk::Dtype logits) {
  return sdk::dtype_of(tensor) == logits && accumulator_bytes(logits) != sdk::bytes_of(logits) ? 0 : 1;
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

// What both ask of a call. Inputs but the logits (and the gradient) must be contiguous, those need dense rows.
template <class Arguments>
sdk::Refusal refuse_logp(const Device& device, const Arguments& call) {
  if (auto refused = device.refusal()) return refused;
  if (auto refused = refuse_dtype(call.logits, "logits")) return refused;
  if (auto refused = refuse_scaling(call.params, sdk::dtype_of(*call.logits))) return refused;
  if (auto refused = sdk::refuse_strided_rows(call.logits, "logits", "vocabulary")) return refused;
  if (auto refused = sdk::refuse_gaps(call.ids, "ids")) return refused;
  if (auto refused = sdk::refuse_gaps(call.bias, "bias")) return refused;
  if (auto refused = sdk::refuse_gaps(call.mask, "mask")) return refused;
  if (auto refused = sdk::refuse_gaps(call.keep_mask, "keep_mask")) return refused;
  return sdk::refuse_gaps(call.row_indices, "row_indices");
}

}  // namespace rlk::simt::host
