// Is the text that travels inside the plugin whole, and does AMD's compiler at run time take it? The second question is
// answered where a hipRTC can be loaded; it needs no card.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "plugins/rocm/hip.hpp"
#include "plugins/simt/host/compiler.hpp"

namespace rlk::simt::host {
namespace {

// Of every file that an image is compiled from.
std::vector<std::string> images() {
  std::vector<std::string> names;
#define RLK_SIMT_TEXT(symbol, name, path) names.push_back(name);
#include "texts.inc"
#undef RLK_SIMT_TEXT
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const size_t folder = name.find('/');
    const std::string begin = name.substr(0, folder);
    if (begin == "kernels" || begin == "operators")
      found.push_back(name.substr(folder + 1, name.find('.') - folder - 1));
  }
  return found;
}

TEST(SourceTest, ATextHasEverythingOnceAndNeedsNoHeader) {
  EXPECT_GE(images().size(), 8u);
  for (const char* platform : {"platform_hip.cuh", "platform_maca.cuh"}) {
    for (const std::string& kernels : images()) {
      const std::string text = kernel_source(kernels, platform);
      EXPECT_EQ(text.find("#include <"), std::string::npos);
      // What is left is in the branch of another platform.
      size_t includes = 0;
      for (size_t at = text.find("#include"); at != std::string::npos; at = text.find("#include", at + 1)) {
        EXPECT_EQ(text.compare(at, 28, "#include \"platform_cuda.cuh\""), 0) << text.substr(at, 60);
        ++includes;
      }
      EXPECT_LE(includes, 1u);
      for (const char* once : {"struct DataErrorRecord {", "constexpr int kLogpThreads", "struct Pack {"}) {
        const size_t first = text.find(once);
        EXPECT_NE(first, std::string::npos) << once;
        EXPECT_EQ(text.find(once, first + 1), std::string::npos) << once;
      }
    }
  }
  EXPECT_THROW(kernel_source("no_such_kernels", "platform_hip.cuh"), sdk::Error);
}

TEST(SourceTest, AKernelOfAmdsOwnHasTheSharedTextsOnceToo) {
  const std::string text = kernel_source("attention_mfma", "platform_hip.cuh", rocm::kOwnTexts);
  for (const char* once : {"struct DataErrorRecord {", "constexpr int kMfmaThreads", "struct MfmaLoader {",
                           "__builtin_amdgcn_mfma_f32_16x16x16f16(", "attention_mfma_##name("}) {
    const size_t first = text.find(once);
    EXPECT_NE(first, std::string::npos) << once;
    EXPECT_EQ(text.find(once, first + 1), std::string::npos) << once;
  }
  EXPECT_EQ(text.find("#include <"), std::string::npos);
  EXPECT_EQ(text.find("#include \"attention"), std::string::npos);
  EXPECT_EQ(text.find("#include \"../"), std::string::npos);
  EXPECT_THROW(kernel_source("attention_mfma", "platform_hip.cuh"), sdk::Error);  // of another vendor
}

Compiler hip_compiler() {
  Compiler table;
  void* library = table.symbols.require_library({"libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.5"});
#define RLK_TEST_BIND(member, function, parameters) table.symbols.require(library, "hiprtc" #function, table.member);
  RLK_SIMT_COMPILER_FUNCTIONS(RLK_TEST_BIND)
#undef RLK_TEST_BIND
  table.symbols.require(library, "hiprtcGetCodeSize", table.code_size);
  table.symbols.require(library, "hiprtcGetCode", table.code);
  table.name = "hipRTC";
  table.platform = "platform_hip.cuh";
  table.own = rocm::kOwnTexts;
  return table;
}

// Other work on the machine may make a compilation long.
const void* wait_for_image(const Compiler& compiler, const std::string& kernels, const char* target,
                           const std::vector<std::string>& options) {
  for (;;) {
    try {
      return compiled_image(compiler, kernels, target, options);
    } catch (const sdk::Error& error) {
      if (error.status() != RLK_NOT_READY) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

// RLK_TEST_ALL_TARGETS tries everything, which takes minutes.
TEST(SourceTest, HipRtcCompilesTheTextsForBothWidths) {
  static const Compiler compiler = hip_compiler();
  if (!compiler.usable()) GTEST_SKIP() << "no hipRTC here: " << compiler.symbols.problem();
  const bool all = std::getenv("RLK_TEST_ALL_TARGETS") != nullptr;
  for (const char* target : {"gfx90a", "gfx1030"}) {
    for (const std::string& kernels : images()) {
      if (!all && kernels != (target == std::string("gfx90a") ? "arithmetic" : "logp_backward")) continue;
      const void* image = nullptr;
      EXPECT_NO_THROW(image = wait_for_image(compiler, kernels, target,
                                             {"-O3", "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing",
                                              std::string("--offload-arch=") + target}))
          << kernels << " for " << target;
      EXPECT_NE(image, nullptr);
    }
  }
  if (all) {
    EXPECT_NO_THROW(
        wait_for_image(compiler, "attention_mfma", "gfx90a",
                       {"-O3", "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "--offload-arch=gfx90a"}));
  }
  // An error of ours would come with the compiler's own words.
  EXPECT_THROW(wait_for_image(compiler, "silu", "gfx90a", {"-no-such-option", "--offload-arch=gfx90a"}), sdk::Error);
}

}  // namespace

const Driver& driver() {
  static const Driver table;
  return table;
}

}  // namespace rlk::simt::host
