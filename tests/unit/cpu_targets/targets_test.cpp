// Which instruction sets does rlk find on this processor? The same as Highway's own library, where that is installed.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include "core/cpu/simd/target.hpp"

namespace {

TEST(Targets, AreThoseThatHighwaysLibraryFinds) {
  void* library = dlopen("libhwy.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "libhwy.so.1 is not installed here: nothing to compare with";
  void* symbol = dlsym(library, "_ZN3hwy16SupportedTargetsEv");
  ASSERT_NE(symbol, nullptr);
  const int64_t theirs = reinterpret_cast<int64_t (*)()>(symbol)();
  const int64_t ours = hwy::SupportedTargets();
#if HWY_ARCH_X86
  const int64_t known = HWY_SSSE3 | HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL;
  EXPECT_EQ(ours & known, theirs & known);
#endif
  EXPECT_EQ(ours & ~theirs, 0) << std::hex << "ours " << ours << ", theirs " << theirs;
}

TEST(Targets, ThatThisCodeWasCompiledForAreAmongThem) {
  EXPECT_EQ(hwy::SupportedTargets() & HWY_ENABLED_BASELINE, HWY_ENABLED_BASELINE);
}

TEST(Targets, TheKernelsUseTheBestThatTheyWereCompiledFor) {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  ASSERT_NE(usable, 0);
  EXPECT_STREQ(rlk::cpu::target_name(), hwy::TargetName(usable & -usable));
}

}  // namespace
