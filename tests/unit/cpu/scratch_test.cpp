// Scratch of a thread: kept, grown, and watched in all tests of this program; and what kernels do that get none.
#include "core/cpu/simd/scratch.hpp"

#include <rlk/sdk/error.hpp>
#include <rlk/sdk/ops/linear.hpp>
#include <rlk/sdk/ops/linear_cross_entropy.hpp>
#include <rlk/sdk/ops/linear_cross_entropy_backward.hpp>
#include <rlk/sdk/ops/linear_jsd.hpp>
#include <rlk/sdk/ops/linear_jsd_backward.hpp>
#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "unit/cpu/operator.hpp"

namespace rlk::test {
namespace {

// What a kernel does not write before it reads it is NaN here, and what it did not ask for is not its own.
[[maybe_unused]] const bool watched = [] {
  cpu::check_scratch_use();
  return true;
}();

TEST(CpuScratch, IsAlignedAndFullOfNan) {
  for (const size_t count : {1, 100, 4865, 7}) {  // with what is watched 4865 are five pages and one number
    const auto* const numbers = static_cast<const float*>(cpu::thread_scratch(count * sizeof(float)));
    ASSERT_NE(numbers, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(numbers) % 64, 0u);
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(std::isnan(numbers[i])) << i << " of " << count;
  }
}

TEST(CpuScratch, WrittenAroundWhatWasAskedForEndsTheProgram) {
  for (const int at : {-1, 1000, 1511}) {
    EXPECT_DEATH(
        {
          static_cast<char*>(cpu::thread_scratch(1000))[at] = 0;
          cpu::thread_scratch(1);
        },
        "asked for 1000 bytes of scratch and wrote to byte " + std::to_string(at));
  }
}

// A hook that denies scratch to one of a call's loops.
struct Denied {
  int64_t loop, loops = 0, denials = 0;

  cpu::ParallelFor hook() {
    const auto run = [](void* ctx, int64_t n, int64_t, void (*body)(void*, int64_t, int64_t), void* user) {
      auto& self = *static_cast<Denied*>(ctx);
      cpu::deny_scratch(self.loops++ == self.loop);
      body(user, 0, n);
      self.denials += cpu::deny_scratch(false);
    };
    return {this, run, 1};
  }
};
// In each loop that wants scratch, one after the other. The call has several tasks in each.
template <class Args>
void expect_denials_are_told(const Args& call) {
  SCOPED_TRACE(Args::Op::kName);
  Denied nowhere{-1};
  run(call, nowhere.hook());
  int64_t denials = 0;
  for (int64_t loop = 0; loop < nowhere.loops; ++loop) {
    Denied denied{loop};
    bool is_told = false;
    try {
      run(call, denied.hook());
    } catch (const sdk::Error& error) {
      is_told = error.status() == RLK_OUT_OF_MEMORY;
    }
    EXPECT_EQ(is_told, denied.denials > 0) << "loop " << loop;
    denials += denied.denials;
  }
  EXPECT_GT(denials, 0);
}

TEST(CpuScratch, ALinearOperatorThatGetsNoneFailsInsteadOfAnAnswer) {
  constexpr int64_t kRows = 3, kVocab = 2100, kDepth = 130;  // two segments, and pieces of a hidden state
  const auto tensor = [](std::vector<int64_t> shape) { return random_tensor(Dtype::f32, std::move(shape), 0.1, 1); };
  CallOf<ops::Linear> product;
  product.x = tensor({kRows, kDepth});
  product.weight = tensor({kVocab, kDepth});
  expect_denials_are_told(product);

  const auto of_hidden = [&](auto call) {
    call.hidden = tensor({kRows, kDepth});
    call.weight = tensor({kVocab, kDepth});
    if constexpr (requires { call.ids; }) call.ids = Tensor(Dtype::i64, {kRows}).fill([](int64_t) { return 5; });
    if constexpr (requires { call.teacher_hidden; }) {
      call.teacher_hidden = tensor({kRows, kDepth});
      call.teacher_weight = tensor({kVocab, kDepth});
    }
    if constexpr (requires { call.grad_hidden; }) {
      call.lse = tensor({kRows});
      call.grad_weight = wanted();
    }
    return call;
  };
  expect_denials_are_told(of_hidden(CallOf<ops::LinearLogp>()));
  expect_denials_are_told(of_hidden(CallOf<ops::LinearCrossEntropy>()));
  expect_denials_are_told(of_hidden(CallOf<ops::LinearJsd>()));
  auto logp = of_hidden(CallOf<ops::LinearLogpBackward>());
  logp.grad_logp = tensor({kRows});
  expect_denials_are_told(logp);
  auto cross_entropy = of_hidden(CallOf<ops::LinearCrossEntropyBackward>());
  cross_entropy.grad_loss = tensor({1});
  expect_denials_are_told(cross_entropy);
  auto jsd = of_hidden(CallOf<ops::LinearJsdBackward>());
  jsd.teacher_lse = jsd.student_kl = jsd.grad_loss = tensor({kRows});
  expect_denials_are_told(jsd);
}

}  // namespace
}  // namespace rlk::test
