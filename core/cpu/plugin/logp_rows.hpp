// The arguments that logp and logp_backward share.
#pragma once

#include "core/cpu/logp/logp.hpp"
#include "core/cpu/plugin/arguments.hpp"

namespace rlk::cpu {

template <class Params>
LogpRows make_rows(const Params& params, const rlk_tensor& logits, const rlk_tensor& ids, const rlk_tensor* mask,
                   const rlk_tensor* row_indices) {
  LogpRows rows;
  rows.n = ids.shape[0];
  rows.logits_rows = logits.shape[0];
  rows.vocab = logits.shape[1];
  rows.ids = sdk::data_of(&ids);
  rows.ids_are_i64 = is_i64(ids);
  rows.ids_stride = ids.strides[0];
  rows.mask = sdk::data_of<const uint8_t>(mask);
  rows.mask_stride = stride_of(mask, 0);
  rows.row_indices = sdk::data_of<const int64_t>(row_indices);
  rows.row_indices_stride = stride_of(row_indices, 0);
  rows.ignore_index = params.ignore_index;
  rows.vocab_start = params.vocab_start;
  rows.global_vocab = params.global_vocab;
  return rows;
}

}  // namespace rlk::cpu
