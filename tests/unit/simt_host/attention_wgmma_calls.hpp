// What the tests of attention on warpgroup products share. The driver's tensor maps and the compiled kernels are
// theirs.
#pragma once

#include "plugins/cuda/tensor_map.hpp"
#include "tests/unit/simt_host/operator_calls.hpp"

namespace rlk::cuda {

struct Mapped {
  int64_t columns, heads, tokens, sequences, token_stride;
  int rows;
  int64_t sequence_stride = 0;  // where a test looks at it
  bool operator==(const Mapped& other) const {
    return columns == other.columns && heads == other.heads && tokens == other.tokens && sequences == other.sequences &&
           token_stride == other.token_stride && rows == other.rows;
  }
};
inline std::vector<Mapped> mapped;  // since a test cleared it
inline bool has_tensor_maps = true, has_image = true;

}  // namespace rlk::cuda

namespace rlk::simt::host {

class AttentionWgmmaTest : public OperatorTest {
protected:
  void SetUp() override {
    OperatorTest::SetUp();
    set_device(132, 232448);
    device_arch = "sm_90";
    cuda::has_tensor_maps = cuda::has_image = true;
  }
  void TearDown() override {
    device_arch.clear();
    on_launch = nullptr;
    OperatorTest::TearDown();
  }
};

struct Shape {
  int64_t batch = 2, queries = 512, keys = 512, q_heads = 8, kv_heads = 2, head = 128;
  rlk_dtype dtype = kBf16;
};

// What the host tells the last kernel of an execution, and how many blocks it has.
template <class Args, class Implementation, class Op>
std::pair<unsigned, Args> told_last(Arranged<Op> call) {
  std::pair<unsigned, Args> seen{};
  on_launch = [&seen](unsigned blocks, const void* arguments) {
    seen = {blocks, *static_cast<const Args*>(arguments)};
  };
  cuda::mapped.clear();
  Device device(0);
  call.template launch<Implementation>(device);
  on_launch = nullptr;
  return seen;
}

}  // namespace rlk::simt::host
