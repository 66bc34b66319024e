// The lock of packs: what is written is read, what another hand wrote is refused by its line, what differs is named.
#include "plugins/tvmffi/pack.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>
#include <rlk/sdk/error.hpp>

#include "framework/fs.hpp"

namespace rlk::test {
namespace {

using tvmffi::Pack;

constexpr const char* kManifest =
    "schema = 1\nname = \"acme\"\nversion = \"1.0\"\n[[kernel]]\noperator = \"rms_norm\"\nlibrary = \"k.so\"\n"
    "symbol = \"mine\"\narguments = [\"x\", \"y\", \"eps\"]\ndtypes = [{ x = \"f32\", y = \"f32\" }]\n";

// A folder of packs with one pack, as the lock says.
struct Packs {
  explicit Packs(const std::string& name = "acme") {
    pack = {name, "1.0", "/source of it \"here\"\n", name + "-0123", "", {}};
    for (const char* file : {"kernels.toml", "k.so"}) {
      const std::string path = folder.file("packs/" + pack.folder + "/" + file, file[1] == 'e' ? kManifest : "library");
      pack.files.push_back({file, tvmffi::sha256_of_file(path)});
    }
    lock();
  }
  void lock() const { folder.file("packs/packs.lock", tvmffi::lock_text({pack})); }
  std::string path(const std::string& file) const { return folder / ("packs/" + pack.folder + "/" + file); }
  std::string packs() const { return folder / "packs"; }
  tvmffi::Kernels read(const std::string& backend = "cpu") const {
    return tvmffi::read_kernels(packs(), backend, tvmffi::sha256_of_file);
  }

  testing::TempFolder folder;
  Pack pack;
};

std::string problem_of(const std::string& text) {
  try {
    tvmffi::parse_lock(text, "packs.lock");
    return "";
  } catch (const sdk::Error& error) {
    return error.what();
  }
}

TEST(PackLock, IsReadAsItWasWritten) {
  Pack one = {"a", "1.0", "/x \"y\\ \x01\x7f", "a-1", "/lib/libtvm_ffi.so", {}},
       two = {"b+c", "2", "", "b+c-2", "", {}};
  one.files = {{"lib/b, sha256 = x.so", std::string(64, '1')}, {"kernels.toml", std::string(64, 'f')}};
  const std::string text = tvmffi::lock_text({two, one});
  const std::vector<Pack> read = tvmffi::parse_lock(text, "packs.lock");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(tvmffi::lock_text(read), text);
  EXPECT_EQ(read[0].name, "a");
  EXPECT_EQ(read[0].source, one.source);
  EXPECT_EQ(read[0].runtime, one.runtime);
  ASSERT_EQ(read[0].files.size(), 2u);
  EXPECT_EQ(read[0].files[0].path, "kernels.toml");
  EXPECT_EQ(read[0].files[1].path, "lib/b, sha256 = x.so");
  EXPECT_EQ(read[1].files.size(), 0u);
}

TEST(PackLock, OfAnotherHandIsRefusedByItsLine) {
  const Packs packs;
  const std::string good = tvmffi::lock_text({packs.pack});
  EXPECT_EQ(problem_of(good), "");
  for (const auto& [before, after] :
       std::vector<std::pair<std::string, std::string>>{{"schema = 1", "schema = 2"},
                                                        {"[[pack]]", "[[Pack]]"},
                                                        {"name = \"acme\"", "name = \"../acme\""},
                                                        {"name = \"acme\"", "name = acme"},
                                                        {"folder = \"acme-0123\"", "folder = \"acme/../..\""},
                                                        {"folder = \"acme-0123\"", "folder = \"other\""},
                                                        {"path = \"k.so\"", "path = \"../k.so\""},
                                                        {"path = \"k.so\"", "path = \"/k.so\""},
                                                        {"path = \"k.so\"", "path = \"a//k.so\""},
                                                        {"sha256 = \"", "sha256 = \"0"},
                                                        {"files = [", "files = []"},
                                                        {"]\n", "]\nmore = 1\n"},
                                                        {"]\n", "]"},
                                                        {"\\\"here", "\\qhere"},
                                                        {"\\u000a", "\\u00zz"}}) {
    std::string text = good;
    const size_t at = text.rfind(before);
    ASSERT_NE(at, std::string::npos) << before;
    text.replace(at, before.size(), after);
    EXPECT_NE(problem_of(text).find("packs.lock"), std::string::npos) << after;
  }
  EXPECT_NE(problem_of(good + good.substr(good.find("\n[[pack]]"))).find("second pack"), std::string::npos);
  for (size_t size = 0; size < good.size(); ++size) {  // a lock that was cut is none, but where a pack or the head ends
    const bool is_whole = size == good.find("\n[[pack]]");
    EXPECT_EQ(problem_of(good.substr(0, size)).empty(), is_whole) << size;
  }
}

TEST(Packs, AreOneManifestWhereTheyAreAsTheLockSays) {
  const Packs packs;
  const tvmffi::Kernels kernels = packs.read();
  ASSERT_EQ(kernels.manifest.kernels.size(), 1u);
  EXPECT_EQ(kernels.manifest.kernels[0].library, packs.path("k.so"));
  EXPECT_EQ(kernels.manifest.kernels[0].problem, "");
  EXPECT_TRUE(kernels.refused.empty());
  EXPECT_TRUE(packs.read("cuda").manifest.kernels.empty());
}

TEST(Packs, WhoseLibraryChangedHaveKernelsWithAProblem) {
  const Packs packs;
  const std::string file = packs.folder.file("packs/" + packs.pack.folder + "/k.so", "another");
  const tvmffi::Kernels kernels = packs.read();
  ASSERT_EQ(kernels.manifest.kernels.size(), 1u);
  ASSERT_EQ(kernels.refused.size(), 1u);
  EXPECT_EQ(kernels.manifest.kernels[0].problem, kernels.refused[0]);
  for (const std::string& part : {std::string("pack acme 1.0 is refused"), tvmffi::sha256_of_file(file),
                                  packs.pack.files[1].sha256, std::string("pack rm acme")})
    EXPECT_NE(kernels.refused[0].find(part), std::string::npos) << kernels.refused[0];
  // Of a pack for other devices the libraries are not read.
  EXPECT_TRUE(packs.read("cuda").refused.empty());
}

TEST(Packs, WithAFileMoreOrLessOrALinkOrAnotherManifestAreRefused) {
  {
    const Packs packs;
    packs.folder.file("packs/" + packs.pack.folder + "/lib/more.so");
    EXPECT_NE(packs.read().refused.at(0).find("lib/more.so is there, and packs.lock does not name it"),
              std::string::npos);
  }
  {
    const Packs packs;
    ASSERT_EQ(unlink(packs.path("k.so").c_str()), 0);
    EXPECT_NE(packs.read().refused.at(0).find("k.so"), std::string::npos);
    EXPECT_TRUE(packs.read().manifest.kernels.empty());
  }
  {
    const Packs packs;  // a link in the file's stead, to the same content
    const std::string elsewhere = packs.folder.file("elsewhere.so", "library");
    ASSERT_EQ(unlink(packs.path("k.so").c_str()), 0);
    ASSERT_EQ(symlink(elsewhere.c_str(), packs.path("k.so").c_str()), 0);
    EXPECT_EQ(packs.read().refused.size(), 1u);
  }
  {
    const Packs packs;
    packs.folder.file("packs/" + packs.pack.folder + "/kernels.toml", std::string(kManifest) + "# more\n");
    EXPECT_NE(packs.read("cuda").refused.at(0).find("kernels.toml has the SHA-256"), std::string::npos);
    EXPECT_TRUE(packs.read().manifest.kernels.empty());
  }
}

TEST(Packs, ThatOthersCanWriteAreRefusedAlthoughTheirContentIsRight) {
  const Packs packs;
  ASSERT_EQ(chmod(packs.path("k.so").c_str(), 0666), 0);
  EXPECT_NE(packs.read().refused.at(0).find("other users could replace"), std::string::npos);
}

TEST(Packs, InNoLineOfTheLockAreRefusedAndSoIsAFolderWithoutALock) {
  const Packs packs;
  packs.folder.file("packs/by-hand/kernels.toml", kManifest);
  const tvmffi::Kernels kernels = packs.read();
  EXPECT_EQ(kernels.manifest.kernels.size(), 1u);
  EXPECT_NE(kernels.refused.at(0).find("packs.lock does not name it"), std::string::npos);
  EXPECT_THROW(tvmffi::read_kernels(packs.packs() + "/by-hand/kernels.toml", "cpu", tvmffi::sha256_of_file),
               sdk::Error);
  EXPECT_EQ(tvmffi::read_kernels(packs.path("kernels.toml"), "cpu", tvmffi::sha256_of_file).manifest.kernels.size(),
            1u);
  ASSERT_EQ(unlink((packs.packs() + "/packs.lock").c_str()), 0);
  EXPECT_THROW(packs.read(), sdk::Error);
}

}  // namespace
}  // namespace rlk::test
