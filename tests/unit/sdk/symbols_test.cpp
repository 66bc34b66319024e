// Does a plugin that binds its runtime by name learn everything that is missing at once?
#include <gtest/gtest.h>
#include <rlk/sdk.hpp>

namespace {

using rlk::sdk::Symbols;

TEST(Symbols, FindsFunctionsInTheFirstLibraryThatLoads) {
  Symbols symbols;
  void* library = symbols.require_library({"libacme_of_nobody.so", "librlk_test_runtime.so"}, {RUNTIME_FOLDER});
  int (*init)() = nullptr;
  ASSERT_TRUE(symbols.require(library, "acme_init", init));
  EXPECT_EQ(init(), 7);
  EXPECT_TRUE(symbols.complete());
  EXPECT_EQ(symbols.problem(), "");
  EXPECT_NE(Symbols::path_of(init).find("librlk_test_runtime.so"), std::string::npos);
}

TEST(Symbols, NamesAllThatIsMissingInOneLine) {
  Symbols symbols;
  void* library = symbols.require_library({"librlk_test_runtime.so"}, {RUNTIME_FOLDER});
  void* missing = symbols.require_library({"libacme_of_nobody.so.2", "libacme_of_nobody.so"});
  symbols.require_library({"libacme_other.so"});
  EXPECT_EQ(missing, nullptr);
  int (*launch)() = nullptr;
  int (*wait)() = nullptr;
  int (*other)() = nullptr;
  EXPECT_FALSE(symbols.require(library, "acme_launch", launch));
  EXPECT_FALSE(symbols.require(library, "acme_wait", wait));
  EXPECT_FALSE(symbols.require(missing, "acme_other", other));  // its library is the news
  EXPECT_FALSE(symbols.complete());
  EXPECT_EQ(
      symbols.problem(),
      "cannot open libacme_of_nobody.so.2 or libacme_of_nobody.so, libacme_other.so, the runtime lacks acme_launch, "
      "acme_wait");
}

TEST(Symbols, AnOptionalFunctionMayBeMissing) {
  Symbols symbols;
  void* library = symbols.find_library({"librlk_test_runtime.so"}, {RUNTIME_FOLDER});
  int (*graph)() = &RUN_ALL_TESTS;
  EXPECT_FALSE(symbols.find(library, "acme_graph", graph));
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(symbols.find_library({"libacme_of_nobody.so"}), nullptr);
  EXPECT_TRUE(symbols.complete());
}

TEST(Symbols, ALibraryThatIsThereAndDoesNotLoadSaysWhy) {
  Symbols symbols;
  EXPECT_EQ(symbols.require_library({"librlk_test_damaged.so"}, {RUNTIME_FOLDER}), nullptr);
  EXPECT_NE(symbols.missing_libraries().find("librlk_test_damaged.so ("), std::string::npos);
  EXPECT_NE(symbols.missing_libraries().find("ELF"), std::string::npos) << symbols.missing_libraries();
}

// A reason of the ABI has 256 bytes, and a runtime may lack more functions than they name.
TEST(Symbols, AListThatDoesNotFitEndsBetweenNames) {
  std::string list = "the runtime lacks acmeFunctionNumber0";
  for (int i = 1; i < 40; ++i) list += ", acmeFunctionNumber" + std::to_string(i);
  char reason[256];
  rlk::sdk::detail::copy_text(reason, list.c_str());
  const std::string got = reason;
  ASSERT_GT(got.size(), 200u);
  ASSERT_EQ(got.substr(got.size() - 5), ", ...");
  const std::string kept = got.substr(0, got.size() - 5);
  EXPECT_EQ(list.compare(0, kept.size(), kept), 0) << got;
  EXPECT_EQ(list[kept.size()], ',') << got;
  rlk::sdk::detail::copy_text(reason, list.substr(0, 255).c_str());  // which just fits
  EXPECT_EQ(reason, list.substr(0, 255));
  const std::string word(300, 'x');
  rlk::sdk::detail::copy_text(reason, word.c_str());
  EXPECT_EQ(reason, word.substr(0, 255));
}

}  // namespace
