// Outputs never replace what is no file, follow links and leave them where they are.
#include "loader/cli/place.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "framework/fs.hpp"
#include "loader/cli/npy.hpp"
#include "loader/cli/verb.hpp"

namespace rlk::cli {
namespace {

using testing::read_text;
using testing::TempFolder;

mode_t kind_of(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? status.st_mode & S_IFMT : 0;
}

size_t count_files(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// The text of what `work` throws, "" when it throws nothing.
template <class Error, class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Place, ADeviceIsWrittenToAndStays) {
  const TempFolder folder;
  // Nodes of our own where the user may make them, so that no mistake touches the system's.
  struct Node {
    const char* name;
    dev_t device;
    const char* fails_with;
  };
  for (const Node& node : {Node{"null", makedev(1, 3), ""}, Node{"full", makedev(1, 7), "No space left"}}) {
    std::string path = folder / node.name;
    if (mknod(path.c_str(), S_IFCHR | 0666, node.device) != 0) path = std::string("/dev/") + node.name;
    require_place(path);
    const std::string text = refusal<Failure>([&] { write_npy(path, Array(core::Dtype::f32, {3})); });
    EXPECT_NE(text.find(node.fails_with), std::string::npos) << text;
    EXPECT_EQ(text.empty(), *node.fails_with == '\0') << text;
    EXPECT_EQ(kind_of(path), S_IFCHR) << path;
  }
}

TEST(Place, APipeIsWrittenToAndStays) {
  const TempFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  require_place(path);
  std::string seen;
  std::thread reader([&] { seen = read_text(path); });
  write_whole(path, {"one ", "two"});
  reader.join();
  EXPECT_EQ(seen, "one two");
  EXPECT_EQ(kind_of(path), S_IFIFO);
}

TEST(Place, ALinkIsFollowedAndStays) {
  const TempFolder folder;
  const std::string old = folder.file("old/data.npy", "before", 0640);
  for (const char* target : {"old/data.npy", "old/new.npy"}) {
    SCOPED_TRACE(target);
    folder.link(target, "second");
    const std::string link = folder.link("second", "out.npy");  // a relative link to a relative link
    require_place(link);
    write_whole(link, {"after"});
    EXPECT_EQ(kind_of(link), S_IFLNK);
    EXPECT_EQ(kind_of(folder / target), S_IFREG);
    EXPECT_EQ(read_text(folder / target), "after");
    std::filesystem::remove(link);
    std::filesystem::remove(folder / "second");
  }
  struct stat status {};
  ASSERT_EQ(stat(old.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u) << "the mode of the old file stays";
}

TEST(Place, LinksInACircleAreRefused) {
  const TempFolder folder;
  const std::string a = folder.link("b", "a");
  folder.link("a", "b");
  EXPECT_NE(refusal<UsageError>([&] { require_place(a); }), "");
  EXPECT_NE(refusal<Failure>([&] { write_whole(a, {"x"}); }), "");
}

TEST(Place, EveryNameOfAFileSeesTheNewContent) {
  const TempFolder folder;
  const std::string one = folder.file("one", "a longer text before");
  std::filesystem::create_hard_link(one, folder / "two");
  write_whole(one, {"after"});
  EXPECT_EQ(read_text(folder / "two"), "after");
  EXPECT_EQ(std::filesystem::hard_link_count(one), 2u);
}

TEST(Place, FoldersSocketsAndMissingFoldersAreRefusedInWords) {
  const TempFolder folder;
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder / "socket";
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_NE(refusal<UsageError>([&] { require_place(path); }).find("is a socket"), std::string::npos);
  EXPECT_NE(refusal<UsageError>([&] { require_place(folder.path()); }).find("is a folder"), std::string::npos);
  EXPECT_NE(refusal<UsageError>([&] { require_place(folder / "none/a"); }).find("cannot be created"),
            std::string::npos);
  EXPECT_EQ(refusal<UsageError>([&] { require_place(folder / "a"); }), "");
  close(listener);
}

TEST(Place, NothingIsWrittenThroughALinkThatSomebodyLaidAtTheTemporaryName) {
  const TempFolder folder;
  const std::string victim = folder.file("victim", "untouched");
  const std::string name = "out.npy.tmp" + std::to_string(getpid());
  for (const char* end : {"", ".0", ".1"}) folder.link(victim, name + end);
  write_whole(folder / "out.npy", {"after"});
  EXPECT_EQ(read_text(victim), "untouched");
  EXPECT_EQ(read_text(folder / "out.npy"), "after");
}

TEST(Place, AFileThatCannotBeWrittenWholeKeepsItsOldContent) {
  const TempFolder folder;
  const std::string path = folder.file("out", "before");
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = refusal<Failure>([&] { write_whole(path, {"a text of many letters"}); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(text.find("cannot be written"), std::string::npos) << text;
  EXPECT_EQ(read_text(path), "before");
  EXPECT_EQ(count_files(folder.path()), 1u) << "nothing is left beside it";
}

}  // namespace
}  // namespace rlk::cli
