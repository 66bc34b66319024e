// The allow-list: which plugins it lets in, what it says of the others, and that nothing opens it by mistake.
#include "loader/screen/allow.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "framework/process.hpp"
#include "loader/store/sha256.hpp"
#include "tests/loader/staged_loader.hpp"

namespace rlk::loader {
namespace {

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.finish();
}

TEST(Sha256, GivesTheStandardsOwnAnswers) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  const std::string text(1000, 'x');
  for (const size_t piece : {1u, 3u, 55u, 56u, 63u, 64u, 65u, 119u, 120u, 128u}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) hash.add(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hash.finish(), sha256(text)) << piece;
  }
}

TEST(AllowListText, TakesWhatSha256sumWritesAndNothingElse) {
  const std::string hash(64, 'a');
  std::set<std::string> files;
  size_t line = 0;
  EXPECT_TRUE(parse_allow_list(
      "# ours\n\n" + hash + "  a.so\r\n\\" + std::string(64, 'B') + " *b\\\\.so\n" + std::string(64, '0'), &files,
      &line));
  EXPECT_EQ(files, (std::set<std::string>{hash, std::string(64, 'b'), std::string(64, '0')}));
  for (const std::string& wrong : {hash.substr(1), hash + "a  x.so", std::string(64, 'g'), std::string("a.so")}) {
    EXPECT_FALSE(parse_allow_list(hash + "\n" + wrong, &files, &line)) << wrong;
    EXPECT_EQ(line, 2u);
  }
}

class Allow : public StagedLoader {
protected:
  Allow() { add_plugin("fault"); }
  void write_list(const std::string& text) { set("RLK_ALLOW_LIST", folder.file("list", text)); }
  std::string hash_of_plugin() {
    const auto said = rlk::testing::run_command({"/usr/bin/sha256sum", folder / "plugins/librlk_plugin_fault.so"});
    return said.out.substr(0, 64);
  }
};

TEST_F(Allow, AListedPluginIsUsedAndAnotherIsRefusedWithTheLineToAdd) {
  write_list(hash_of_plugin() + "  librlk_plugin_fault.so\n");
  EXPECT_EQ(probe_one().state, State::smoke_tested);
  write_list(std::string(64, '0') + "  librlk_plugin_fault.so\n");
  const PluginRecord record = probe_one();
  EXPECT_EQ(record.state, State::rejected) << "although its verdict is remembered";
  EXPECT_EQ(record.reason_code, "NOT_ALLOWED");
  EXPECT_NE(record.reason.find(hash_of_plugin()), std::string::npos) << record.reason;
  EXPECT_NE(record.hint.find("sha256sum"), std::string::npos) << record.hint;
}

TEST_F(Allow, AFileThatIsReplacedIsNoLongerOnTheList) {
  write_list(hash_of_plugin() + "  librlk_plugin_fault.so\n");
  EXPECT_EQ(probe_one().state, State::smoke_tested);
  const std::string path = folder / "plugins/librlk_plugin_fault.so";
  FILE* file = std::fopen(path.c_str(), "a");
  ASSERT_NE(file, nullptr);
  std::fputc('x', file);
  std::fclose(file);
  EXPECT_EQ(probe_one().reason_code, "NOT_ALLOWED");
}

TEST_F(Allow, WarnUsesThePluginAndSaysSoUntilItIsListed) {
  write_list("");
  set("RLK_ALLOW", "warn");
  for (int i = 0; i < 2; ++i) {  // probed, then remembered
    const PluginRecord record = probe_one();
    EXPECT_EQ(record.state, State::smoke_tested);
    ASSERT_FALSE(record.notes.empty());
    EXPECT_NE(record.notes.back().find("it is used all the same"), std::string::npos) << record.notes.back();
  }
  write_list(hash_of_plugin() + "\n");
  for (const std::string& note : probe_one().notes) EXPECT_EQ(note.find("allow-list"), std::string::npos) << note;
}

TEST_F(Allow, OffAsksNobody) {
  write_list("");
  set("RLK_ALLOW", "off");
  EXPECT_EQ(probe_one().state, State::smoke_tested);
}

TEST_F(Allow, WhatIsWrongWithTheListOrTheWordClosesAndIsSaid) {
  const auto refused = [&](const char* says) {
    const std::vector<ProbedPlugin> plugins = probe();
    ASSERT_EQ(plugins.size(), 2u) << "the plugin, and the list";
    for (const ProbedPlugin& plugin : plugins) {
      EXPECT_EQ(plugin.record.reason_code, "ALLOW_LIST_UNUSABLE") << says;
      EXPECT_TRUE(plugin.record.broken) << says;
      EXPECT_NE(plugin.record.reason.find(says), std::string::npos) << plugin.record.reason;
    }
    EXPECT_TRUE(plugins[1].record.is_place);
  };
  set("RLK_ALLOW", "require");
  refused("RLK_ALLOW_LIST names no list");
  write_list(hash_of_plugin() + "\n");
  set("RLK_ALLOW", "requrie");
  EXPECT_EQ(probe_one().state, State::smoke_tested) << "taken for require";
  set("RLK_ALLOW", "require");
  write_list(hash_of_plugin() + "\nnonsense\n");
  refused("line 2 is not a SHA-256");
  set("RLK_ALLOW_LIST", folder / "nowhere");
  refused("No such file");
  set("RLK_ALLOW_LIST", "list");
  refused("its path is relative");
  write_list(hash_of_plugin() + "\n");
  chmod((folder / "list").c_str(), 0666);
  refused("/list");
}

}  // namespace
}  // namespace rlk::loader
