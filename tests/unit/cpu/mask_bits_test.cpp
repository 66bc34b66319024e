// An instance that reads no mask (with_mask) gives the bits of a mask that keeps all. Where a compiler fused a product
// into its sum in one of them, a bit would differ in one case of twenty.
#include <rlk/sdk/ops/whiten.hpp>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

TEST(CpuMaskBits, AMaskThatKeepsAllChangesNoneOfWhiten) {
  for_each_target([] {
    for (int64_t count = 1; count <= 100; ++count) {
      const CallOf<ops::Whiten> plain{.x = random_tensor(Dtype::f64, {5, count}, 1, static_cast<uint32_t>(count))};
      CallOf<ops::Whiten> masked = plain;
      masked.mask = flags(std::vector<int>(static_cast<size_t>(5 * count), 1), {5, count});
      EXPECT_EQ(list_of(run(masked).y), list_of(run(plain).y)) << count;
    }
  });
}

}  // namespace
}  // namespace rlk::test
