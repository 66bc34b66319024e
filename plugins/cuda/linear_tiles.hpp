// What linear_logp and its gradients on warpgroup products have in common on the host: tiles of scores of 16-bit
// tensors.
#pragma once

#include "../products/chunks.hpp"
#include "hopper.hpp"
#include "kernels/linear_logp_wgmma.h"

namespace rlk::cuda {

inline int64_t linear_column_tiles(int64_t vocab) {
  return simt::host::ceil_divide(vocab, kLinearColumns);
}

inline sdk::Refusal refuse_linear_sizes(int64_t vocab, int64_t inner) {
  constexpr int64_t kMost = int64_t{1} << 30;  // the kernels count tiles and elements of a row in 32 bits
  if (inner % 8 != 0) {
    return sdk::Support::no("SIZES",
                            sdk::format("D is %lld; the bulk copy engine takes rows of multiples of 8 elements",
                                        static_cast<long long>(inner)));
  }
  if (vocab <= kMost && inner <= kMost) return std::nullopt;
  return sdk::Support::no("SIZES", "these kernels take up to 2^30 entries of the vocabulary and elements of a row");
}

// What the build, the driver or the device lacks.
inline sdk::Refusal refuse_linear_kernels(const simt::host::Device& device, const char* image) {
  if (auto refused = refuse_without(image)) return refused;
  if (kLinearSharedBytes <= device.shared_limit()) return std::nullopt;
  return sdk::Support::no("SHARED_MEMORY", sdk::format("a block needs %d bytes of shared memory; this device has %d",
                                                       kLinearSharedBytes, device.shared_limit()));
}

// The tokens of rows from `first` on. Arguments: of linear_logp or of its backward.
template <class Arguments>
simt::TokenRows linear_tokens(const Arguments& call, int64_t first, int64_t rows) {
  simt::TokenRows tokens{};
  tokens.ids = products::from_row(call.ids, first);
  tokens.mask = static_cast<const uint8_t*>(products::from_row(call.mask, first));
  tokens.rows = tokens.logits_rows = rows;
  tokens.ignore_index = call.params.ignore_index;
  tokens.vocab = call.V;
  tokens.vocab_start = call.params.vocab_start;
  tokens.id_limit = call.params.global_vocab > 0 ? call.params.global_vocab : call.V;
  tokens.sharded = tokens.id_limit > tokens.vocab ? 1 : 0;
  tokens.ids_are_i64 = sdk::dtype_of(*call.ids) == sdk::Dtype::i64 ? 1 : 0;
  return tokens;
}

// A matrix as a tensor of one head.
inline TensorMap matrix_map(const void* data, int64_t row_stride, sdk::Dtype dtype, int64_t columns, int64_t rows,
                            int box) {
  return tensor_map({const_cast<void*>(data), 0, row_stride, 0}, dtype, columns, 1, rows, 1, box);
}

// The tiles of a launch's rows, whose hidden states these are; the driver makes tensor maps of a current context.
template <class Args>
void set_linear_tiles(Args& args, const void* hidden, int64_t hidden_stride, const rlk_tensor& weight, int64_t rows) {
  constexpr int64_t kBandRows = 2048;  // whose hidden states stay in the cache while the weights pass
  const sdk::Dtype dtype = sdk::dtype_of(weight);
  const int64_t vocab = weight.shape[0], inner = weight.shape[1];
  args.hidden = matrix_map(hidden, hidden_stride, dtype, inner, rows, kLinearRows);
  args.weight = matrix_map(sdk::data_of(&weight), weight.strides[0], dtype, inner, vocab, kLinearColumns);
  args.slabs = static_cast<int32_t>(simt::host::ceil_divide(inner, kLinearInner));
  args.column_tiles = static_cast<int32_t>(linear_column_tiles(vocab));
  args.row_tiles = static_cast<int32_t>(simt::host::ceil_divide(rows, kLinearRows));
  args.band_tiles = static_cast<int32_t>(kBandRows / kLinearRows);
}

// Blocks stay on the device and take tiles.
template <class Args>
void launch_linear_tiles(simt::host::FunctionHandle kernel, const Args& args, int64_t multiprocessors,
                         simt::host::StreamHandle stream) {
  simt::host::fill(args.taken, 0, sizeof(*args.taken), stream);
  simt::host::launch_grid(kernel, std::min(int64_t{args.row_tiles} * args.column_tiles, multiprocessors),
                          kLinearThreads, kLinearSharedBytes, stream, args);
}

// The time of all tiles. Whole ones are computed; measured against the rate of mma.sync instructions.
inline double linear_tiles_us(const simt::host::Device& device, int64_t rows, int64_t vocab, int64_t inner) {
  constexpr double kMatrixWork = 0.47;
  const auto row_tiles = static_cast<double>(simt::host::ceil_divide(rows, kLinearRows));
  const auto column_tiles = static_cast<double>(linear_column_tiles(vocab));
  const double products = row_tiles * kLinearRows * column_tiles * kLinearColumns * static_cast<double>(inner);
  const double idle = simt::host::idle_factor(device, row_tiles * column_tiles);
  const double bytes = 2.0 * static_cast<double>(inner) * static_cast<double>(rows + vocab);
  return std::max(idle * device.matrix_us(2 * products * kMatrixWork), device.bytes_us(bytes));
}

}  // namespace rlk::cuda
