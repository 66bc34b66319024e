// Whose files a manifest may lead to, and that it is they that are opened.
#include "plugins/tvmffi/manifest.hpp"

#include <gtest/gtest.h>

#include <unistd.h>
#include <rlk/sdk/error.hpp>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include "framework/fs.hpp"

namespace rlk::test {
namespace {

constexpr const char* kManifest =
    "schema = 1\n[[kernel]]\noperator = \"rms_norm\"\nlibrary = \"k.so\"\nsymbol = \"mine\"\n"
    "arguments = [\"x\", \"y\", \"eps\"]\ndtypes = [{ x = \"f32\", y = \"f32\" }]\n";

TEST(Manifest, IsTheFileThatWasLookedAtAndNotWhatItsLinkLeadsToNow) {
  const testing::TempFolder folder;
  const std::string file = folder.file("kernels.toml", kManifest);
  folder.folder("open", 0777);
  const std::string link = folder / "open/kernels.toml";
  ASSERT_EQ(symlink(file.c_str(), link.c_str()), 0);
  EXPECT_EQ(tvmffi::trusted_path(link), file);
  EXPECT_EQ(tvmffi::read_manifest(link, "cpu").kernels.size(), 1u);
}

// In a folder that any user can write, any user may change a link.
TEST(Manifest, OfSomebodyElseIsNeverReadWhileALinkGoesToAndFro) {
  const testing::TempFolder folder;
  const std::string file = folder.file("kernels.toml", kManifest);
  std::string text = kManifest;
  text.replace(text.find("mine"), 4, "evil");
  folder.folder("open", 0777);
  const std::string foreign = folder.file("open/foreign.toml", text);
  const std::string link = folder / "open/kernels.toml", next = folder / "open/next";
  ASSERT_EQ(symlink(file.c_str(), link.c_str()), 0);
  std::atomic<bool> ended{false};
  std::thread other([&] {
    for (int turn = 0; !ended; ++turn) {
      EXPECT_EQ(symlink((turn % 2 == 0 ? foreign : file).c_str(), next.c_str()), 0);
      EXPECT_EQ(rename(next.c_str(), link.c_str()), 0);
      usleep(20);
    }
  });
  int foreign_ones = 0;
  for (int i = 0; i < 5000; ++i) {
    try {
      foreign_ones += tvmffi::read_manifest(link, "cpu").kernels.at(0).symbol == "evil" ? 1 : 0;
    } catch (const sdk::Error&) {  // the link led to the other file just then
    }
  }
  ended = true;
  other.join();
  EXPECT_EQ(foreign_ones, 0);
}

// The source tree may belong to any user; a manifest may not.
tvmffi::Manifest example(const testing::TempFolder& folder, const std::string& name) {
  const std::ifstream file(std::string(RLK_TEST_EXAMPLES "/") + name);
  std::ostringstream text;
  text << file.rdbuf();
  return tvmffi::read_manifest(folder.file(name, text.str()), "cuda");
}

TEST(Manifest, OfTheExamplesSaysWhatTheLibrariesNeed) {
  const testing::TempFolder folder;
  const tvmffi::Manifest flashinfer = example(folder, "flashinfer.toml");
  ASSERT_GE(flashinfer.kernels.size(), 4u);
  const tvmffi::Kernel& fused = flashinfer.kernels[1];
  EXPECT_EQ(fused.symbol, "fused_add_rmsnorm");
  EXPECT_EQ(fused.in_place, (std::map<uint32_t, uint32_t>{{0, 0}, {1, 1}}));
  EXPECT_EQ(fused.alignment, 16u);
  EXPECT_TRUE(flashinfer.kernels[2].takes_objects);

  EXPECT_EQ(example(folder, "quack.toml").kernels.size(), 4u);

  const tvmffi::Manifest attention = example(folder, "flash_attention.toml");
  ASSERT_EQ(attention.kernels.size(), 2u);
  const std::vector<tvmffi::Slot>& slots = attention.kernels[1].slots;
  ASSERT_EQ(slots.size(), 18u);
  EXPECT_EQ(slots[4].constant.type_index, tvmffi::kNone);
  EXPECT_EQ(slots[15].kind, tvmffi::Slot::Kind::list);
  EXPECT_EQ(slots[15].items.size(), 2u);
}

}  // namespace
}  // namespace rlk::test
