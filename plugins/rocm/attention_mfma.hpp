// attention on the matrix units of CDNA devices.
#pragma once

#include "../simt/host/attention.hpp"

namespace rlk::rocm {

// For 16-bit tensors that 16-byte accesses can address; the weights are rounded to the tensors' dtype before the second
// product.
struct AttentionMfma {
  using Op = sdk::ops::Attention;
  static constexpr const char* kName = "mfma";
  static sdk::Support query(simt::host::Device& device, const sdk::Call<Op>& described);
  static std::unique_ptr<sdk::Plan> plan(simt::host::Device& device, const sdk::Call<Op>& call);
  // The padded head sizes, the second block of rows, the second tile of keys.
  static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "D", 72},   {sizeof(rlk_switch), 0, "D", 104},
                                             {sizeof(rlk_switch), 0, "D", 136},  {sizeof(rlk_switch), 0, "Sq", 129},
                                             {sizeof(rlk_switch), 0, "Tq", 193}, {sizeof(rlk_switch), 0, "Sk", 33},
                                             {sizeof(rlk_switch), 0, "Sk", 65},  {sizeof(rlk_switch), 0, "Tk", 65}};
};

// Why the device's matrix unit does not multiply these numbers.
sdk::Refusal refuse_matrix_unit(const std::string& architecture, int width, sdk::Dtype dtype);

}  // namespace rlk::rocm
