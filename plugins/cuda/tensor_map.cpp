// cuTensorMapEncodeTiled of libcuda.so.1, which drivers have from CUDA 12.0 on.
#include "tensor_map.hpp"

#include "../simt/host/calls.hpp"

namespace rlk::cuda {
namespace {

using Encode = simt::host::Result(TensorMap* map, int data_type, uint32_t rank, void* data, const uint64_t* sizes,
                                  const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                                  int swizzle, int l2_promotion, int fill);
constexpr int kTypeF16 = 6, kTypeBf16 = 9;  // CU_TENSOR_MAP_DATA_TYPE_*
constexpr int kPlain = 0;                   // CU_TENSOR_MAP_INTERLEAVE_NONE
constexpr int kSwizzle128 = 3;              // CU_TENSOR_MAP_SWIZZLE_128B
constexpr int kPromote128 = 2;              // CU_TENSOR_MAP_L2_PROMOTION_L2_128B
constexpr int kFillZeros = 0;               // CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE

Encode* encode() {
  static Encode* const function = [] {
    Encode* found = nullptr;
    sdk::Symbols symbols;
    symbols.find(symbols.find_library({"libcuda.so.1"}), "cuTensorMapEncodeTiled", found);
    return found;
  }();
  return function;
}

}  // namespace

sdk::Refusal refuse_tensor_maps() {
  if (encode() != nullptr) return std::nullopt;
  return sdk::Support::no("TENSOR_MAPS", "libcuda.so.1 lacks cuTensorMapEncodeTiled, which CUDA 12.0 and later have");
}

TensorMap tensor_map(const simt::AttentionTensor& tensor, sdk::Dtype dtype, int64_t columns, int64_t heads,
                     int64_t tokens, int64_t sequences, int rows) {
  const uint64_t sizes[] = {static_cast<uint64_t>(columns), static_cast<uint64_t>(heads), static_cast<uint64_t>(tokens),
                            static_cast<uint64_t>(sequences)};
  const std::array<uint64_t, 3> strides = map_strides(tensor, columns, heads, tokens, sequences);
  const uint32_t box[] = {kWgmmaPanelColumns, 1, static_cast<uint32_t>(rows), 1};
  const uint32_t steps[] = {1, 1, 1, 1};
  TensorMap map;
  simt::host::check(encode()(&map, dtype == sdk::Dtype::bf16 ? kTypeBf16 : kTypeF16, 4, tensor.data, sizes,
                             strides.data(), box, steps, kPlain, kSwizzle128, kPromote128, kFillZeros),
                    "making a tensor map");
  return map;
}

}  // namespace rlk::cuda
