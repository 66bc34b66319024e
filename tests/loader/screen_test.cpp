// The screen: what makes a file unfit before any of its code runs.
#include "loader/screen/screen.hpp"

#include <elf.h>
#include <gtest/gtest.h>
#include <rlk/abi/version.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "framework/fs.hpp"

namespace rlk::loader {
namespace {

using rlk::testing::read_text;
using rlk::testing::TempFolder;

const std::string kObjects = RLK_TEST_OBJECTS;

class ScreenTest : public ::testing::Test {
protected:
  ScreenTest() {
    options.libraries = LibrarySearch::of_system({});
    options.host_abi = {RLK_ABI_MAJOR, RLK_ABI_MINOR, RLK_ABI_DRAFT};
  }
  std::string tiny() const { return read_text(kObjects + "/tiny_plugin.so"); }

  bool run(const std::string& path) {
    record = {};
    record.path = path;
    screened = screen(&record, options);
    return screened.has_value();
  }
  // Screens a file of this content and returns the reason code, "" when it passes.
  std::string code_of(const std::string& bytes) {
    run(folder.file("p.so", bytes, 0755));
    return record.reason_code;
  }
  TempFolder folder;
  ScreenOptions options;
  PluginRecord record;
  std::optional<Screened> screened;
};

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return at == std::string::npos ? bytes : bytes.replace(at, from.size(), to);
}

TEST_F(ScreenTest, AGoodFileIsScreenedWithItsIdentity) {
  ASSERT_TRUE(run(folder.copy(kObjects + "/tiny_plugin.so", "p.so"))) << record.reason;
  EXPECT_EQ(record.state, State::screened);
  EXPECT_EQ(record.id, "tiny");
  EXPECT_EQ(record.backend, "acme");
  EXPECT_EQ(screened->build_id.size(), 40u);
  EXPECT_EQ(screened->identity, identity_of(folder / "p.so"));
  bool has_libc = false;
  for (const std::string& path : screened->dependencies) has_libc |= path.find("libc.so.6") != std::string::npos;
  EXPECT_TRUE(has_libc);
}

TEST_F(ScreenTest, ALinkIsFollowedOnceAndThePathIsCanonicalFromThenOn) {
  folder.copy(kObjects + "/tiny_plugin.so", "real/p.so");
  ASSERT_TRUE(run(folder.link("real/p.so", "link.so"))) << record.reason;
  EXPECT_EQ(record.path, folder / "real/p.so");
}

TEST_F(ScreenTest, WhatIsNotAFileIsNamed) {
  EXPECT_FALSE(run(folder / "none.so"));
  EXPECT_EQ(record.reason_code, "FILE_UNREADABLE");
  EXPECT_FALSE(run(folder.link("gone.so", "dangling.so")));
  EXPECT_EQ(record.reason_code, "FILE_UNREADABLE");
  EXPECT_NE(record.hint.find("a symbolic link that leads nowhere"), std::string::npos) << record.hint;
  EXPECT_FALSE(run(folder.link("circle.so", "circle.so")));
  EXPECT_NE(record.hint.find("in a circle"), std::string::npos) << record.hint;
  sockaddr_un address = {AF_UNIX, {}};
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", (folder / "socket.so").c_str());
  const UniqueFd socket_fd(socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_FALSE(run(folder / "socket.so"));
  EXPECT_EQ(record.reason_code, "NOT_A_REGULAR_FILE");
  EXPECT_FALSE(run(folder.folder("folder.so")));
  EXPECT_EQ(record.reason_code, "NOT_A_REGULAR_FILE");
  ASSERT_EQ(mkfifo((folder / "pipe.so").c_str(), 0644), 0);
  EXPECT_FALSE(run(folder / "pipe.so"));  // and it does not wait for a writer
  EXPECT_EQ(record.reason_code, "NOT_A_REGULAR_FILE");
  EXPECT_FALSE(run("/dev/null"));
  EXPECT_EQ(record.reason_code, "NOT_A_REGULAR_FILE");
}

TEST_F(ScreenTest, AFileThatOthersMayWriteIsRefused) {
  EXPECT_FALSE(run(folder.file("p.so", tiny(), 0777)));
  EXPECT_EQ(record.reason_code, "WRITABLE_BY_OTHERS");
}

TEST_F(ScreenTest, ContentThatIsNoPlugin) {
  EXPECT_EQ(code_of(""), "NOT_ELF");
  EXPECT_EQ(code_of("not an object"), "NOT_ELF");
  EXPECT_EQ(code_of(tiny().substr(0, 700)), "ELF_DAMAGED");
  std::string bytes = tiny();
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(code_of(bytes), "WRONG_MACHINE");
  bytes = tiny();
  const uint16_t other = kHostMachine == EM_X86_64 ? EM_AARCH64 : EM_X86_64;
  std::memcpy(bytes.data() + 18, &other, 2);
  EXPECT_EQ(code_of(bytes), "WRONG_MACHINE");
  EXPECT_NE(record.reason.find(machine_name(other)), std::string::npos) << record.reason;
  EXPECT_NE(record.reason.find(machine_name(kHostMachine)), std::string::npos) << record.reason;
  bytes = tiny();
  bytes[16] = ET_EXEC;
  EXPECT_EQ(code_of(bytes), "NOT_ELF");
}

TEST_F(ScreenTest, AnOrdinaryLibraryIsNoPlugin) {
  EXPECT_EQ(code_of(read_text(kObjects + "/libchain_c.so")), "ENTRY_SYMBOL_MISSING");
}

TEST_F(ScreenTest, TheNoteMustBeThereAndFit) {
  EXPECT_EQ(code_of(replaced(tiny(), "rlk_plugin_entry_v1", "rlk_plugin_entry_v2")), "ENTRY_SYMBOL_MISSING");
  std::string next = replaced(tiny(), "rlk_plugin_entry_v1", "rlk_plugin_entry_v2");
  EXPECT_EQ(code_of(replaced(next, "abi=1.0", "abi=2.0")), "ENTRY_SYMBOL_MISSING");
  EXPECT_NE(record.reason.find("built for ABI 2.0"), std::string::npos) << record.reason;
  EXPECT_EQ(record.hint, reason::kAbiMismatch.hint);
  const std::string name("\x01\0\0\0rlk\0", 8);  // the note's type, then its name
  EXPECT_EQ(code_of(replaced(tiny(), name, std::string("\x01\0\0\0xyz\0", 8))), "ABI_NOTE_MISSING");
  EXPECT_EQ(code_of(replaced(tiny(), "id=tiny", "ID=tiny")), "ABI_NOTE_INVALID");
  EXPECT_EQ(code_of(replaced(tiny(), "abi=1.0", "abi=2.0")), "ABI_MISMATCH");
  EXPECT_NE(record.reason.find("2.0"), std::string::npos) << record.reason;
  EXPECT_EQ(code_of(replaced(tiny(), "draft=2", "draft=9")), "ABI_MISMATCH");
  EXPECT_NE(record.reason.find("ABI 1.0 draft 9, this host speaks 1.0 draft 2"), std::string::npos) << record.reason;
  // A newer minor version is not the screen's business: the two sides settle it when they meet.
  EXPECT_EQ(code_of(replaced(tiny(), "abi=1.0", "abi=1.7")), "");
}

TEST_F(ScreenTest, LibrariesBesideThePluginAreFoundThroughItsRunpath) {
  for (const char* name : {"needy_plugin.so", "libchain_b.so", "libchain_c.so", "libchain_d.so"})
    folder.copy(kObjects + "/" + name, name);
  ASSERT_TRUE(run(folder / "needy_plugin.so")) << record.reason;
  const std::vector<std::string>& found = screened->dependencies;
  for (const char* name : {"libchain_b.so", "libchain_c.so", "libchain_d.so"})
    EXPECT_EQ(std::count(found.begin(), found.end(), folder / name), 1) << name;
}

TEST_F(ScreenTest, FoldersOfLdLibraryPathMayStandBetweenSemicolons) {
  folder.copy(kObjects + "/needy_plugin.so", "needy_plugin.so");
  for (const char* name : {"empty", "libraries"}) folder.folder(name);
  for (const char* name : {"libchain_b.so", "libchain_c.so", "libchain_d.so"})
    folder.copy(kObjects + "/" + name, std::string("libraries/") + name);
  for (const char* separator : {":", ";"}) {
    options.libraries = LibrarySearch::of_system(
        {{{"LD_LIBRARY_PATH", (folder / "empty") + separator + (folder / "libraries")}}, false});
    EXPECT_TRUE(run(folder / "needy_plugin.so")) << record.reason;
  }
}

TEST_F(ScreenTest, AllMissingLibrariesAreNamedAtOnceWithWhoNeedsThemAndWhereTheyWereSought) {
  folder.copy(kObjects + "/needy_plugin.so", "needy_plugin.so");
  folder.copy(kObjects + "/libchain_b.so", "libchain_b.so");
  EXPECT_FALSE(run(folder / "needy_plugin.so"));
  EXPECT_EQ(record.reason_code, "RUNTIME_LIBRARY_MISSING");
  EXPECT_FALSE(record.broken);
  EXPECT_EQ(record.reason.rfind("2 shared libraries are missing", 0), 0u) << record.reason;
  EXPECT_NE(record.reason.find("libchain_c.so (needed by " + (folder / "libchain_b.so")), std::string::npos)
      << record.reason;
  EXPECT_NE(record.reason.find("libchain_d.so (needed by " + (folder / "needy_plugin.so")), std::string::npos)
      << record.reason;
  EXPECT_NE(record.reason.find("searched " + folder.path()), std::string::npos) << record.reason;
  EXPECT_NE(record.reason.find("/etc/ld.so.cache"), std::string::npos) << record.reason;
  EXPECT_EQ(record.evidence.size(), 2u);
}

TEST_F(ScreenTest, LibraryPathIsSearchedAndAWrongMachineThereIsPassedOver) {
  folder.copy(kObjects + "/needy_plugin.so", "needy_plugin.so");
  const std::string libraries = folder.folder("libraries");
  for (const char* name : {"libchain_b.so", "libchain_c.so", "libchain_d.so"})
    folder.copy(kObjects + "/" + std::string(name), "libraries/" + std::string(name));
  options.libraries.library_path = {libraries};
  EXPECT_TRUE(run(folder / "needy_plugin.so")) << record.reason;

  std::string foreign = read_text(libraries + "/libchain_d.so");
  foreign[18] = static_cast<char>(kHostMachine == EM_X86_64 ? EM_AARCH64 : EM_X86_64);
  folder.file("libraries/libchain_d.so", foreign);
  EXPECT_FALSE(run(folder / "needy_plugin.so"));
  EXPECT_NE(record.reason.find("libchain_d.so"), std::string::npos) << record.reason;
}

TEST_F(ScreenTest, AFileOfHolesIsRefusedBeforeItIsRead) {
  for (const off_t bytes : {(off_t{4} << 30) + 1, off_t{1} << 40}) {
    const std::string path = folder.copy(kObjects + "/tiny_plugin.so", "p.so");
    if (truncate(path.c_str(), bytes) != 0) GTEST_SKIP() << "this file system has no holes";
    EXPECT_FALSE(run(path));
    EXPECT_EQ(record.reason_code, "FILE_TOO_LARGE");
    EXPECT_NE(record.reason.find(std::to_string(bytes)), std::string::npos) << record.reason;
  }
}

// What is loaded with the plugin runs as the plugin does.
class NeededLibraries : public ScreenTest {
protected:
  NeededLibraries() {
    for (const char* name : {"libchain_b.so", "libchain_c.so", "libchain_d.so"})
      folder.copy(kObjects + "/" + std::string(name), "libraries/" + std::string(name));
    options.libraries.standard.push_back(folder / "libraries");
  }
  // The plugin that needs them, with another RUNPATH of seven letters.
  std::string needy(const std::string& runpath) {
    return code_of(replaced(read_text(kObjects + "/needy_plugin.so"), "$ORIGIN", runpath));
  }
};

TEST_F(NeededLibraries, ThatNobodyElseCanReplaceAreFine) {
  EXPECT_EQ(needy("/usr/no"), "") << record.reason;
}

TEST_F(NeededLibraries, ThatEverybodyMayWriteAreRefused) {
  chmod((folder / "libraries/libchain_d.so").c_str(), 0777);
  EXPECT_EQ(needy("/usr/no"), "LIBRARY_UNTRUSTED");
  EXPECT_NE(record.reason.find("libchain_d.so (owner"), std::string::npos) << record.reason;
  EXPECT_TRUE(record.broken);
}

TEST_F(NeededLibraries, OfAnotherUserAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to give a file away";
  ASSERT_EQ(chown((folder / "libraries/libchain_c.so").c_str(), 4242, 0), 0);
  EXPECT_EQ(needy("/usr/no"), "LIBRARY_UNTRUSTED");
  EXPECT_NE(record.reason.find("owner 4242"), std::string::npos) << record.reason;
}

TEST_F(NeededLibraries, SoughtInAFolderThatAnybodyCanMakeAreRefused) {
  EXPECT_EQ(needy("/tmp/~~"), "LIBRARY_UNTRUSTED");
  EXPECT_NE(record.reason.find("/tmp/~~ is searched"), std::string::npos) << record.reason;
}

TEST_F(NeededLibraries, SoughtWhereTheProcessHappensToBeAreRefused) {
  for (const char* runpath : {"./lib64", "lib/abc", "/usr:.:", ":/usr/l"}) {
    EXPECT_EQ(needy(runpath), "LIBRARY_UNTRUSTED") << runpath;
    EXPECT_NE(record.reason.find("where the process was started"), std::string::npos) << record.reason;
  }
}

// What the linker loads with a file without DT_NEEDED: `ld -f`, `ld -F`, `ld --audit`.
class LibrariesOfOtherTags : public NeededLibraries {
protected:
  // The plugin that needs them, with what it needs `library` for changed to `tag`.
  static std::string retagged(const std::string& library, int64_t tag) {
    std::string bytes = read_text(kObjects + "/needy_plugin.so");
    Elf64_Ehdr header = {};
    std::memcpy(&header, bytes.data(), sizeof(header));
    std::vector<Elf64_Phdr> segments(header.e_phnum);
    std::memcpy(segments.data(), bytes.data() + header.e_phoff, segments.size() * sizeof(Elf64_Phdr));
    const auto dynamic = std::find_if(segments.begin(), segments.end(),
                                      [](const Elf64_Phdr& segment) { return segment.p_type == PT_DYNAMIC; });
    std::vector<Elf64_Dyn> entries(dynamic->p_filesz / sizeof(Elf64_Dyn));
    std::memcpy(entries.data(), bytes.data() + dynamic->p_offset, dynamic->p_filesz);
    const auto names =
        std::find_if(entries.begin(), entries.end(), [](const Elf64_Dyn& entry) { return entry.d_tag == DT_STRTAB; });
    for (Elf64_Dyn& entry : entries) {
      if (entry.d_tag == DT_NEEDED && library == bytes.data() + names->d_un.d_ptr + entry.d_un.d_val) entry.d_tag = tag;
    }
    std::memcpy(bytes.data() + dynamic->p_offset, entries.data(), dynamic->p_filesz);
    return bytes;
  }
  bool is_dependency(const std::string& path) {
    return screened && std::count(screened->dependencies.begin(), screened->dependencies.end(), path) > 0;
  }
  const std::string library = folder / "libraries/libchain_d.so";
};

TEST_F(LibrariesOfOtherTags, AreDependenciesToo) {
  for (const int64_t tag : {DT_NEEDED, DT_FILTER, DT_AUXILIARY}) {
    EXPECT_EQ(code_of(retagged("libchain_d.so", tag)), "") << record.reason;
    EXPECT_TRUE(is_dependency(library)) << std::hex << tag;
  }
}

TEST_F(LibrariesOfOtherTags, ThatEverybodyMayWriteAreRefused) {
  chmod(library.c_str(), 0777);
  for (const int64_t tag : {DT_FILTER, DT_AUXILIARY}) {
    EXPECT_EQ(code_of(retagged("libchain_d.so", tag)), "LIBRARY_UNTRUSTED") << std::hex << tag;
    EXPECT_NE(record.reason.find("libchain_d.so (owner"), std::string::npos) << record.reason;
  }
}

TEST_F(LibrariesOfOtherTags, MayBeMissingWhereTheyAreAuxiliaryAlone) {
  ASSERT_EQ(unlink(library.c_str()), 0);
  ASSERT_EQ(unlink((folder / "libraries/libchain_c.so").c_str()), 0);
  EXPECT_EQ(code_of(retagged("libchain_d.so", DT_FILTER)), "RUNTIME_LIBRARY_MISSING");
  EXPECT_NE(record.reason.find("libchain_d.so"), std::string::npos) << record.reason;
  EXPECT_EQ(code_of(retagged("libchain_d.so", DT_AUXILIARY)), "RUNTIME_LIBRARY_MISSING");
  EXPECT_EQ(record.reason.find("libchain_d.so"), std::string::npos) << record.reason;
  folder.copy(kObjects + "/libchain_c.so", "libraries/libchain_c.so");
  EXPECT_EQ(code_of(retagged("libchain_d.so", DT_AUXILIARY)), "") << record.reason;
}

TEST_F(LibrariesOfOtherTags, MissingWhereAnybodyCanPutThemAreRefused) {
  // As long as the name that it replaces.
  std::string bytes = replaced(retagged("libchain_d.so", DT_AUXILIARY), "libchain_d.so", "/tmp/~~/~~.so");
  EXPECT_EQ(code_of(bytes), "LIBRARY_UNTRUSTED");
  EXPECT_NE(record.reason.find("/tmp/~~ is searched for /tmp/~~/~~.so"), std::string::npos) << record.reason;
  EXPECT_EQ(code_of(replaced(bytes, "/tmp/~~/~~.so", "/usr/~~/~~.so")), "") << record.reason;
}

TEST_F(LibrariesOfOtherTags, AreRefusedWhereTheyAreAuditors) {
  for (const int64_t tag : {DT_AUDIT, DT_DEPAUDIT}) {
    EXPECT_EQ(code_of(retagged("libchain_d.so", tag)), "LIBRARY_UNTRUSTED") << std::hex << tag;
    EXPECT_NE(record.reason.find("auditors, libchain_d.so"), std::string::npos) << record.reason;
    EXPECT_NE(record.reason.find("without --audit"), std::string::npos) << record.reason;
  }
}

TEST_F(ScreenTest, ThePolicyHasTheLastWord) {
  options.refuse = [](const PluginRecord& candidate) -> std::optional<std::string> {
    if (candidate.id != "tiny") return std::nullopt;
    return "not on the list";
  };
  EXPECT_FALSE(run(folder.copy(kObjects + "/tiny_plugin.so", "p.so")));
  EXPECT_EQ(record.reason_code, "NOT_ALLOWED");
  EXPECT_EQ(record.reason, "not on the list");
}

TEST(LinkerCache, TheSystemsOwnIsUnderstood) {
  const auto entries = read_linker_cache("/etc/ld.so.cache");
  if (entries.empty()) GTEST_SKIP() << "this system has none";
  const bool has_libc = std::any_of(entries.begin(), entries.end(),
                                    [](const LinkerCacheEntry& entry) { return entry.name == "libc.so.6"; });
  EXPECT_TRUE(has_libc);
  for (const LinkerCacheEntry& entry : entries) ASSERT_EQ(entry.path.front(), '/');
}

TEST(LinkerCache, EveryTruncationIsHarmless) {
  const std::string bytes = read_text("/etc/ld.so.cache");
  if (bytes.empty()) GTEST_SKIP() << "this system has none";
  const TempFolder folder;
  for (size_t length = 0; length < std::min<size_t>(bytes.size(), 6000); length += 7)
    read_linker_cache(folder.file("cache", bytes.substr(0, length)));
  EXPECT_TRUE(read_linker_cache(folder.file("cache", "garbage")).empty());
  EXPECT_TRUE(read_linker_cache(folder / "none").empty());
}

}  // namespace
}  // namespace rlk::loader
