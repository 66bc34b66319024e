// Which users could replace a plugin file: owners, modes, sticky folders.
#include "loader/screen/trust.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "framework/fs.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::TempFolder;

struct TrustCase {
  const char* name;
  mode_t folder_mode;
  mode_t file_mode;
  const Reason* expected;  // null: trusted
};

class Trust : public ::testing::TestWithParam<TrustCase> {};

TEST_P(Trust, ModesOfFolderAndFile) {
  const TempFolder folder;
  folder.folder("plugins", GetParam().folder_mode);
  const std::string file = folder.file("plugins/p.so", "x", GetParam().file_mode);
  const TrustResult result = check_trust(file, Identity::of_process());
  if (GetParam().expected == nullptr) {
    EXPECT_EQ(result.problem, nullptr) << result.text;
  } else {
    ASSERT_NE(result.problem, nullptr);
    EXPECT_EQ(result.problem->code, GetParam().expected->code);
    EXPECT_NE(result.text.find("mode"), std::string::npos) << result.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Trust,
                         ::testing::Values(TrustCase{"private", 0700, 0600, nullptr},
                                           TrustCase{"ordinary", 0755, 0755, nullptr},
                                           TrustCase{"own_group_folder", 0775, 0644, nullptr},
                                           TrustCase{"own_group_file", 0755, 0664, nullptr},
                                           TrustCase{"sticky_folder", 01777, 0644, nullptr},
                                           TrustCase{"open_folder", 0777, 0644, &reason::kWritableByOthers},
                                           TrustCase{"open_file", 0755, 0666, &reason::kWritableByOthers},
                                           // Sticky protects names in a folder, not the content of a file.
                                           TrustCase{"sticky_open_file", 0755, 01666, &reason::kWritableByOthers}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(TrustNotes, StickyFoldersAndOwnGroupsAreMentioned) {
  const TempFolder folder;
  folder.folder("sticky", 01777);
  const TrustResult result = check_trust(folder.file("sticky/p.so", "x", 0664), Identity::of_process());
  ASSERT_EQ(result.problem, nullptr);
  std::string all;
  for (const std::string& note : result.notes) all += note + "\n";
  EXPECT_NE(all.find("sticky (owner"), std::string::npos) << all;
  EXPECT_NE(all.find("p.so"), std::string::npos) << all;
}

TEST(TrustPlace, IsAFolderThatNobodyElseFillsOrMakes) {
  const TempFolder folder;
  const auto code_of = [](const std::string& path) {
    const TrustResult result = check_place(path, Identity::of_process());
    return result.problem == nullptr ? std::string() : std::string(result.problem->code);
  };
  EXPECT_EQ(code_of(folder.folder("own", 0755)), "");
  EXPECT_EQ(code_of(folder / "own/not/there"), "");
  EXPECT_EQ(code_of("/usr/not/there"), "");
  EXPECT_EQ(code_of(folder.folder("open", 0777)), "WRITABLE_BY_OTHERS");
  EXPECT_EQ(code_of(folder.folder("sticky", 01777)), "WRITABLE_BY_OTHERS");
  EXPECT_EQ(code_of(folder / "sticky/not/there"), "WRITABLE_BY_OTHERS");
  EXPECT_EQ(code_of(folder / "sticky/../own"), "");
}

TEST(TrustPlace, ThatAnotherGroupMayFillIsRefusedAlsoWhereItIsSticky) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to give a folder to another group";
  const TempFolder folder;
  for (const mode_t mode : {02775, 03775, 01775}) {
    const std::string place = folder.folder("shared", 0755);
    ASSERT_EQ(chown(place.c_str(), 0, 4242), 0);
    ASSERT_EQ(chmod(place.c_str(), mode), 0);
    const TrustResult result = check_place(place, Identity::of_process());
    ASSERT_NE(result.problem, nullptr) << std::oct << mode;
    EXPECT_EQ(result.problem->code, reason::kWritableByOthers.code);
    EXPECT_NE(result.text.find("another group"), std::string::npos) << result.text;
    EXPECT_EQ(check_place(place, {0, 4242}).problem, nullptr) << "the user's own group";
  }
}

TEST(TrustOwner, AFileOfAnotherUserIsRefused) {
  const TempFolder folder;
  const std::string file = folder.file("p.so");
  Identity asker = Identity::of_process();
  if (geteuid() == 0) {
    ASSERT_EQ(chown(file.c_str(), 4242, 4242), 0);
  } else {
    asker.user += 1;  // our files are then another user's
  }
  const TrustResult result = check_trust(file, asker);
  ASSERT_NE(result.problem, nullptr);
  EXPECT_EQ(result.problem->code, reason::kOwnerUntrusted.code);
}

TEST(TrustOwner, AFolderAboveOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to give a folder away";
  const TempFolder folder;
  folder.folder("theirs/inner");
  const std::string file = folder.file("theirs/inner/p.so");
  ASSERT_EQ(chown((folder / "theirs").c_str(), 4242, 4242), 0);
  const TrustResult result = check_trust(file, Identity::of_process());
  ASSERT_NE(result.problem, nullptr);
  EXPECT_EQ(result.problem->code, reason::kOwnerUntrusted.code);
  EXPECT_NE(result.text.find(folder / "theirs"), std::string::npos) << result.text;
}

TEST(TrustOwner, AnotherGroupThatMayWriteIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to give a file to another group";
  const TempFolder folder;
  const std::string file = folder.file("p.so");
  ASSERT_EQ(chown(file.c_str(), 0, 4242), 0);
  EXPECT_EQ(check_trust(file, Identity::of_process()).problem, nullptr);
  ASSERT_EQ(chmod(file.c_str(), 0664), 0);
  const TrustResult result = check_trust(file, Identity::of_process());
  ASSERT_NE(result.problem, nullptr);
  EXPECT_EQ(result.problem->code, reason::kWritableByOthers.code);
  Identity member = Identity::of_process();
  member.group = 4242;
  EXPECT_EQ(check_trust(file, member).problem, nullptr);
}

}  // namespace
}  // namespace rlk::loader
