// The policy file: both forms, the order of its preferences, and what is said of a file that is wrong.
#include "loader/api/config.hpp"
#include "loader/api/policy_files.hpp"

#include <gtest/gtest.h>

#include <rlk/rlk.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "core/dispatch/call/policy_check.hpp"
#include "framework/fs.hpp"
#include "loader/api/handles.hpp"

namespace rlk::test {
namespace {

using loader::Config;
using namespace std::string_literals;
using testing::TempFolder;

class ConfigTest : public ::testing::Test {
protected:
  // The entries as "op=value", strongest first.
  template <class PathOrPaths>
  std::vector<std::string> preferences(const PathOrPaths& path) {
    rlk_error error = RLK_ERROR_INIT;
    EXPECT_EQ(loader::read_config(path, &config_, &error), RLK_OK) << error.text;
    std::vector<std::string> list;
    for (const core::PolicyEntry& entry : config_.policy) list.push_back(entry.op + "=" + entry.value);
    return list;
  }
  std::string refusal(const std::string& path) {
    rlk_error error = RLK_ERROR_INIT;
    EXPECT_EQ(loader::read_config(path, &config_, &error), RLK_INVALID_ARGUMENT);
    return error.text;
  }

  TempFolder folder_;
  Config config_;
};

TEST_F(ConfigTest, NamesAnAllowListBesideItself) {
  for (const char* text :
       {"allow = 'warn'\nallow_list = 'plugins.sha256'\n", "allow = warn\nallow_list = plugins.sha256\n"}) {
    preferences(folder_.file("policy", text));
    const loader::Environment made = config_.complete({});
    EXPECT_EQ(made.get("RLK_ALLOW"), "warn") << text;
    EXPECT_EQ(made.get("RLK_ALLOW_LIST"), folder_ / "plugins.sha256") << text;
    EXPECT_EQ(config_.complete({{{"RLK_ALLOW", "off"}}, false}).get("RLK_ALLOW"), "off") << "the variable is stronger";
  }
  EXPECT_NE(refusal(folder_.file("wrong", "allow = 'maybe'\n")).find("allow is 'maybe'; expected off, warn or require"),
            std::string::npos);
}

using Preferences = std::vector<std::string>;

TEST_F(ConfigTest, OfTheMachineIsOneFileAndThenThoseBesideItByTheirNames) {
  for (const char* folder : {"etc", "etc/rlk", "etc/rlk/policy.d"}) std::filesystem::create_directory(folder_ / folder);
  const std::string late = folder_.file("etc/rlk/policy.d/90-site.toml", "logp = cpu\n");
  const std::string early = folder_.file("etc/rlk/policy.d/10-vendor.toml", "logp = rocm\nadd = rocm\n");
  folder_.file("etc/rlk/policy.d/README", "no policy");
  EXPECT_EQ(loader::policy_files({}, folder_.path()), (std::vector{early, late}));
  const std::string main = folder_.file("etc/rlk/policy.toml", "[dispatch]\nlogp = 'cuda'\nmax = 'cuda'\n");
  const std::vector<std::string> files = loader::policy_files({}, folder_.path());
  EXPECT_EQ(files, (std::vector{main, early, late}));
  EXPECT_EQ(preferences(files), (Preferences{"logp=cpu", "add=rocm", "logp=rocm", "max=cuda", "logp=cuda"}));

  EXPECT_EQ(loader::policy_files({{{"RLK_CONFIG", "/opt/mine"}}, false}, folder_.path()), std::vector{"/opt/mine"s});
  EXPECT_EQ(loader::policy_files({{{"RLK_CONFIG", "/opt/mine"}}, true}, folder_.path()), files)
      << "the caller of a privileged program does not choose its policy; the machine does";
  EXPECT_TRUE(loader::policy_files({}, folder_ / "nowhere").empty());
}

// toml++ takes such a file for impossible.
TEST_F(ConfigTest, WhatBreaksTheParsersOwnAssumptionsIsRefusedAsAMistake) {
  for (const char* text : {"[[[#", "[[[#[[#", "[[\n[[[a]]"}) {
    EXPECT_NE(refusal(folder_.file("policy", text)).find("policy"), std::string::npos) << text;
  }
}

TEST_F(ConfigTest, LettersBeyondAsciiStandInTextsAndCommentsAlone) {
  for (const char* text :
       {"require = []  # あ\n", "plugin_path = ['/opt/あ']\n", "plugin_path = [\"/opt/\\\"あ\"]\n",
        "\xEF\xBB\xBFrequire = []\n", "plugin_path = ['''/opt/あ''''']\n", "plugin_path = [\"\"\"\n/opt/あ\"\"\"]\n"}) {
    preferences(folder_.file("policy", text));
  }
  for (const char* text : {"require = []\nあ = 1\n", "require = [\n] あ\n",
                           "require = [] # a\n\xE3\x80\x80[dispatch]\n", "plugin_path = ['''/opt/a'''']\nあ = ''\n"}) {
    EXPECT_NE(refusal(folder_.file("policy", text)).find("policy:2: a character that is not ASCII"), std::string::npos)
        << text;
  }
}

TEST_F(ConfigTest, NoFileIsAnEmptyPolicy) {
  EXPECT_EQ(preferences(""), Preferences{});
  EXPECT_TRUE(config_.plugin_path.empty());
}

TEST_F(ConfigTest, AnEmptyFileIsAnEmptyPolicy) {
  EXPECT_EQ(preferences(folder_.file("empty.toml")), Preferences{});
}

TEST_F(ConfigTest, WhatIsOffHasItsReason) {
  const std::string path =
      folder_.file("rlk.toml", "[off]\nlogp = \"slow\"\n\"attention:fused\" = \"wrong in bf16\"\n");
  EXPECT_EQ(preferences(path), (Preferences{"logp=", "attention=fused"}));
  EXPECT_EQ(config_.policy[1].off, "wrong in bf16");
  EXPECT_EQ(config_.policy[1].source, path + ":3");
  EXPECT_EQ(refusal(folder_.file("bare.toml", "[off]\nlogp = true\n")),
            folder_.path() + "/bare.toml:2: off.logp is the reason, a text");
  folder_.file("wrong.toml", "[off]\nlogpp = \"why\"\n\"logp:a b\" = \"why\"\n");
  preferences(folder_.path() + "/wrong.toml");
  const std::vector<std::string> problems = core::problems_of(config_.policy);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_NE((problems[0] + problems[1]).find("names the operator \"logpp\""), std::string::npos);
  EXPECT_NE((problems[0] + problems[1]).find("turns \"a b\" off"), std::string::npos);
}

TEST_F(ConfigTest, VersionsThatAreKnownToBeWrongHaveWhatWasSeenAndWhy) {
  const std::string path = folder_.file("rlk.toml",
                                        "use_known_bad = [\"cu*\"]\n[[known_bad]]\nplugin = \"acme\"\n"
                                        "seen = { runtime_version = \"7.1*\" }\noperators = [\"logp:fused\"]\n"
                                        "reason = \"wrong in bf16\"\n[[known_bad]]\nplugin = \"*\"\n"
                                        "seen = { driver_version = \"1\" }\nreason = \"why\"\n");
  preferences(path);
  ASSERT_EQ(config_.known_bad.size(), 2u);
  const loader::KnownBad& bad = config_.known_bad[0];
  EXPECT_EQ(bad.plugin + "|" + bad.evidence + "|" + bad.value + "|" + bad.reason,
            "acme|runtime_version|7.1*|wrong in bf16");
  EXPECT_EQ(bad.operators, std::vector<std::string>{"logp:fused"});
  EXPECT_EQ(bad.source, path + ":2");
  EXPECT_TRUE(config_.known_bad[1].operators.empty()) << "all";
  EXPECT_EQ(config_.use_known_bad, std::vector<std::string>{"cu*"});
  for (const char* wrong :
       {"known_bad = \"acme\"\n", "[[known_bad]]\nplugin = \"acme\"\nreason = \"why\"\n",
        "[[known_bad]]\nplugin = \"acme\"\nreason = \"why\"\nseen = \"7.1\"\n", "[[known_bad]]\nplugins = \"acme\"\n",
        "[[known_bad]]\nplugin = \"a\"\nreason = \"why\"\nseen = { v = \"1\" }\noperators = [7]\n"}) {
    EXPECT_NE(refusal(folder_.file("wrong.toml", wrong)).find("known_bad"), std::string::npos) << wrong;
  }
}

TEST_F(ConfigTest, AWordOfKnownBadThatIsMistypedIsAnError) {
  const auto with = [&](const std::string& seen, const std::string& op) {
    return folder_.file("rlk.toml", "[[known_bad]]\nplugin = \"acme\"\nseen = { " + seen +
                                        " = \"1\" }\noperators = [\"" + op + "\"]\nreason = \"why\"\n");
  };
  EXPECT_NE(refusal(with("runtime_version", "logpp")).find("rlk.toml:1: known_bad has the operator 'logpp', did you"),
            std::string::npos);
  EXPECT_NE(refusal(with("runtime_version", "frobnicate:fused")).find("'frobnicate', which rlk does not have"),
            std::string::npos);
  EXPECT_NE(refusal(with("runtime_verzion", "logp")).find("'runtime_verzion', did you mean 'runtime_version'?"),
            std::string::npos);
  preferences(with("firmware_version", "logp:fused"));  // a plugin's own word
  EXPECT_EQ(config_.known_bad.size(), 1u);
  // A vendor's file may be of a newer rlk: what it says of known operators holds.
  folder_.file("one/rlk_policy_acme.toml",
               "[[known_bad]]\nplugin = \"acme\"\nseen = { runtime_version = \"1\" }\n"
               "operators = [\"frobnicate\", \"logp\"]\nreason = \"why\"\n");
  Config config;
  loader::add_platform_policies({}, {{folder_.path() + "/one", ""}}, &config);
  ASSERT_EQ(config.known_bad.size(), 1u);
  EXPECT_EQ(config.known_bad[0].operators, (std::vector<std::string>{"frobnicate", "logp"}));
}

TEST_F(ConfigTest, WhatNoPluginHereHasIsDoubtedWhereItLooksLikeASlip) {
  loader::PluginRecord acme;
  acme.id = acme.backend = "acme";
  acme.path = "/librlk_plugin_acme.so";
  acme.state = loader::State::registered;
  acme.evidence = {{"runtime_version", "7.1", 1}};
  acme.units.emplace_back();
  acme.units[0].op = "logp";
  acme.units[0].implementation = "fused";
  const auto doubts = [&](const std::string& text) {
    preferences(folder_.file("rlk.toml", text));
    const std::vector<std::string> found = loader::doubts_of(config_, {acme});
    return found.empty() ? std::string() : found[0];
  };
  EXPECT_EQ(doubts("[off]\n\"logp:fused\" = \"why\"\n"), "");
  EXPECT_NE(doubts("[off]\n\"logp:fusde\" = \"why\"\n").find("rlk.toml:2: [off] names the implementation 'fusde'"),
            std::string::npos);
  EXPECT_EQ(doubts("[off]\n\"logp:segments\" = \"why\"\n"), "") << "of another machine's plugin";
  const std::string bad = "reason = \"why\"\nseen = { firmware = \"1\" }\n";
  EXPECT_NE(doubts("[[known_bad]]\nplugin = \"acme\"\n" + bad).find("does not show"), std::string::npos);
  EXPECT_EQ(doubts("[[known_bad]]\nplugin = \"*\"\n" + bad), "");
  acme.state = loader::State::absent;
  EXPECT_EQ(doubts("[[known_bad]]\nplugin = \"acme\"\n" + bad), "");
}

TEST_F(ConfigTest, NumbersMayBeWrittenAsNumbersOrAsTexts) {
  EXPECT_EQ(preferences(folder_.file("a.toml", "[dispatch]\ncall_timeout = 60\nwatch = 0.001\n")),
            (std::vector<std::string>{"watch=0.001", "call_timeout=60"}));
  EXPECT_EQ(core::problems_of(config_.policy), std::vector<std::string>{});
  EXPECT_EQ(preferences(folder_.file("b.toml", "[dispatch]\nwatch = \"off\"\n")),
            std::vector<std::string>{"watch=off"});
  preferences(folder_.file("c.toml", "[dispatch]\nwatch = 2\ncall_timeout = inf\n"));
  EXPECT_EQ(core::problems_of(config_.policy).size(), 2u);
}

TEST_F(ConfigTest, WhatTheFileSetIsBlamedOnTheFile) {
  const std::string path = folder_.file("a.toml", "counters = \"1\"\nrequire = [\"cuda\"]\n");
  preferences(path);
  EXPECT_EQ(config_.complete({}).origin("RLK_REQUIRE"), path + ":2: require");
  EXPECT_EQ(config_.complete({}).origin("RLK_COUNTERS"), path + ":1: counters");
  EXPECT_EQ(config_.complete({{{"RLK_REQUIRE", "maca"}}, false}).origin("RLK_REQUIRE"), "RLK_REQUIRE");
  const std::string plain = folder_.file("b.conf", "logp = cpu\nallow_list = list\n");
  preferences(plain);
  EXPECT_EQ(config_.complete({}).origin("RLK_ALLOW_LIST"), plain + ":2: allow_list");
}

TEST_F(ConfigTest, APlatformsPolicyStandsBesideItsPluginAndIsForItsDevicesAlone) {
  folder_.file("one/rlk_policy_maca.toml", "[off]\nlogp = \"why\"\n[dispatch]\nadd = \"maca:packs\"\n");
  folder_.file("one/librlk_plugin_maca.so", "");
  folder_.file("two/rlk_policy_maca.toml", "[off]\nadd = \"not the first\"\n");
  folder_.file("two/rlk_policy_rocm.toml", "[off]\nattention = \"why\"\n");
  folder_.file("two/rlk_policy_cuda.toml", "require = [\"cuda\"]\n");  // not a platform's to say
  folder_.file("two/rlk_policy_wide.toml", "[dispatch]\nfallback = \"strict\"\n");
  folder_.file("two/policy_acme.toml", "[off]\nlogp = \"why\"\n");
  loader::Environment environment;
  const auto found = [&] {
    std::set<std::string> list;
    loader::Config config;
    loader::add_platform_policies(environment, {{folder_.path() + "/two", ""}}, &config);
    for (const core::PolicyEntry& entry : config.policy) {
      list.insert(entry.platform + " " + entry.op + "=" + entry.value + entry.off);
    }
    return list;
  };
  using Set = std::set<std::string>;
  EXPECT_EQ(found(), (Set{"maca add=not the first", "rocm attention=why"}));
  environment.values["RLK_ADD_PLUGIN_PATH"] = folder_.path() + "/one/librlk_plugin_maca.so";
  EXPECT_EQ(found(), (Set{"maca logp=why", "maca add=maca:packs", "rocm attention=why"}));
  environment.values = {{"RLK_PLUGIN_PATH", folder_.path() + "/one:" + folder_.path() + "/none"}};
  EXPECT_EQ(found(), (Set{"maca logp=why", "maca add=maca:packs"}));
  // One that any user may change decides nothing.
  chmod((folder_.path() + "/one/rlk_policy_maca.toml").c_str(), 0666);
  EXPECT_EQ(found(), Set{});
  environment.privileged = true;
  EXPECT_EQ(found(), (Set{"maca add=not the first", "rocm attention=why"}));
}

TEST_F(ConfigTest, TomlNamesFoldersAndBackends) {
  const std::string path = folder_.file("rlk.toml",
                                        "plugin_path = [\"/opt/acme\", \"/opt/other\"]\n"
                                        "[dispatch]\n"
                                        "attention = \"cuda:cudnn\"\n");
  EXPECT_EQ(preferences(path), Preferences{"attention=cuda:cudnn"});
  EXPECT_EQ(config_.policy[0].source, path + ":3");
  ASSERT_EQ(config_.plugin_path.size(), 2u);
  EXPECT_EQ(config_.plugin_path[0].path, "/opt/acme");
  EXPECT_EQ(config_.plugin_path[1].path, "/opt/other");
  EXPECT_EQ(config_.plugin_path[0].source, path);
  EXPECT_FALSE(config_.plugin_path[0].optional);
}

TEST_F(ConfigTest, NumericsClassesAreDemandedOfEveryCall) {
  EXPECT_EQ(preferences(folder_.file("a.toml", "[dispatch]\nnumerics = [\"accurate\", \"deterministic\"]\n")),
            Preferences{"numerics=accurate,deterministic"});
  EXPECT_EQ(preferences(folder_.file("b.toml", "[dispatch]\nnumerics = \"accurate\"\n")),
            Preferences{"numerics=accurate"});
  EXPECT_EQ(preferences(folder_.file("c.conf", "numerics = accurate\n")), Preferences{"numerics=accurate"});
  // The including file's demand replaces the other's, also by none.
  EXPECT_EQ(preferences(folder_.file("d.toml", "include = \"c.conf\"\n[dispatch]\nnumerics = []\n")),
            (Preferences{"numerics=", "numerics=accurate"}));
  EXPECT_NE(refusal(folder_.file("e.toml", "[dispatch]\nnumerics = [1]\n")).find("list of classes"), std::string::npos);
}

TEST_F(ConfigTest, OnePathNeedsNoList) {
  preferences(folder_.file("rlk.toml", "plugin_path = \"/opt/acme\"\n"));
  ASSERT_EQ(config_.plugin_path.size(), 1u);
  EXPECT_EQ(config_.plugin_path[0].path, "/opt/acme");
}

TEST_F(ConfigTest, AllIsEveryOperator) {
  EXPECT_EQ(preferences(folder_.file("rlk.toml", "[dispatch]\nall = \"cpu\"\n")), Preferences{"=cpu"});
  EXPECT_EQ(preferences(folder_.file("plain.conf", "all = cpu\n")), Preferences{"=cpu"});
}

TEST_F(ConfigTest, PlainLinesWithCommentsAreUnderstoodAndTheLaterLineIsStronger) {
  const std::string path = folder_.file("plain.conf",
                                        "# who serves what\n"
                                        "\n"
                                        "logp = cuda   # fast here\n"
                                        "  logp =  maca:fused\t\n");
  EXPECT_EQ(preferences(path), (Preferences{"logp=maca:fused", "logp=cuda"}));
  EXPECT_EQ(config_.policy[0].source, path + ":4");
}

TEST_F(ConfigTest, TheIncludingFileWinsAndPathsAreRelativeToIt) {
  folder_.file("site/site.conf", "logp = cuda\nadd = cuda\n");
  const Preferences expected = {"logp=cpu", "add=cuda", "logp=cuda"};
  EXPECT_EQ(preferences(folder_.file("a.toml", "include = [\"site/site.conf\"]\n[dispatch]\nlogp = \"cpu\"\n")),
            expected);
  EXPECT_EQ(preferences(folder_.file("b.toml", "include = \"site/site.conf\"\n[dispatch]\nlogp = \"cpu\"\n")),
            expected);
  EXPECT_EQ(preferences(folder_.file("c.conf", "include = site/site.conf\nlogp = cpu\n")), expected);
  EXPECT_EQ(preferences(folder_.file("d.conf", "include = " + folder_ / "site/site.conf" + "\nlogp = cpu\n")),
            expected);
}

TEST_F(ConfigTest, AMissingFileIsNamedWithWhatToDo) {
  const std::string text = refusal(folder_ / "nowhere.toml");
  EXPECT_NE(text.find("nowhere.toml"), std::string::npos) << text;
  EXPECT_NE(text.find("RLK_CONFIG"), std::string::npos) << text;
  const std::string included = refusal(folder_.file("a.toml", "include = [\"gone.toml\"]\n"));
  EXPECT_NE(included.find("a.toml:1: the included file " + folder_ / "gone.toml"), std::string::npos) << included;
  EXPECT_EQ(included.find("RLK_CONFIG"), std::string::npos) << included;
}

TEST_F(ConfigTest, AFileThatIncludesItselfIsRefused) {
  EXPECT_NE(refusal(folder_.file("self.conf", "include = self.conf\n")).find("include itself"), std::string::npos);
}

TEST_F(ConfigTest, ManyLinesAreReadAtOnceAndTooManyBytesAreRefused) {
  std::string lines;
  for (int i = 0; i < 50'000; ++i) lines += "logp = cuda\n";
  EXPECT_EQ(preferences(folder_.file("many.conf", lines)).size(), 50'000u);
  EXPECT_EQ(config_.policy.front().source, folder_ / "many.conf" + ":50000") << "the last line is the strongest";
  const std::string whole = folder_.file("large.conf", "logp = cuda\n");
  ASSERT_EQ(truncate(whole.c_str(), off_t{2} << 30), 0);
  EXPECT_NE(refusal(whole).find("1024 KiB"), std::string::npos);
  // The limit is that of all files together.
  folder_.file("half.conf", lines);
  EXPECT_NE(refusal(folder_.file("two.conf", "include = many.conf\ninclude = half.conf\n")).find("1024 KiB"),
            std::string::npos);
}

TEST_F(ConfigTest, APipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(mkfifo((folder_ / "pipe.toml").c_str(), 0600), 0);
  EXPECT_NE(refusal(folder_ / "pipe.toml").find("a pipe"), std::string::npos);
  EXPECT_NE(refusal(folder_ / "").find("a folder"), std::string::npos);
  EXPECT_EQ(preferences("/dev/null"), Preferences{}) << "the usual word for none";
}

TEST_F(ConfigTest, IncludesThatMultiplyAreRefused) {
  std::string lines;
  for (int level = 0; level < 8; ++level) {
    folder_.file("level" + std::to_string(level) + ".conf", lines.empty() ? "logp = cuda\n" : lines);
    lines.clear();
    for (int i = 0; i < 8; ++i) lines += "include = level" + std::to_string(level) + ".conf\n";
  }
  EXPECT_NE(refusal(folder_ / "level7.conf").find("more than 64 files"), std::string::npos);
}

TEST_F(ConfigTest, RequiresBackendsAndSetsTheFallback) {
  EXPECT_EQ(preferences(folder_.file("a.toml", "require = [\"cuda\", \"acme\"]\n[dispatch]\nfallback = \"strict\"\n")),
            Preferences{"fallback=strict"});
  EXPECT_EQ(config_.require, "cuda,acme");
  EXPECT_EQ(config_.complete({}).get("RLK_REQUIRE"), "cuda,acme");
  EXPECT_EQ(config_.complete({{{"RLK_REQUIRE", "maca"}}, false}).get("RLK_REQUIRE"), "maca");
  rlk_error error = RLK_ERROR_INIT;
  core::Policy policy;
  const auto fallback = [&](const char* variable) {
    const auto environment = [&](const char* name) {
      return std::string_view(name) == "RLK_FALLBACK" ? variable : nullptr;
    };
    EXPECT_EQ(core::Policy::make(environment, {}, config_.policy, &policy, &error), RLK_OK) << error.text;
    return policy.fallback();
  };
  EXPECT_EQ(fallback(nullptr), core::Fallback::strict);
  EXPECT_EQ(fallback("allow"), core::Fallback::allow) << "the environment is stronger";
  preferences(folder_.file("b.conf", "require = cuda\nfallback = allow\n"));
  EXPECT_EQ(config_.require, "cuda");
  EXPECT_EQ(fallback(nullptr), core::Fallback::allow);
  preferences(folder_.file("c.conf", "fallback = never\n"));
  const std::vector<std::string> problems = core::problems_of(config_.policy);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("\"never\"; expected allow, warn or strict"), std::string::npos) << problems[0];
}

TEST_F(ConfigTest, WhatIsWrongIsNamedWithItsLine) {
  const struct {
    const char *name, *content, *where, *what;
  } cases[] = {
      {"line.conf", "logp = cuda\nattention\n", "line.conf:2", "'attention'"},
      {"value.conf", "logp = cuda\nadd =\n", "value.conf:2", "'add ='"},
      {"syntax.toml", "[dispatch]\nlogp = \n", "syntax.toml:2", ""},
      {"number.toml", "[dispatch]\n\nlogp = 3\n", "number.toml:3", "dispatch.logp is a text like \"cuda:cudnn\""},
      {"watch.toml", "[dispatch]\nwatch = true\n", "watch.toml:2", "dispatch.watch is a share of calls like 0.001"},
      {"slip.toml", "[dispatch]\nfallbak = \"strict\"\n", "slip.toml:2", "did you mean 'fallback'?"},
      {"slip.conf", "logp = cpu\nrequier = cuda\n", "slip.conf:2", "did you mean 'require'?"},
      {"path.toml", "plugin_path = [\"/a\",\n 7]\n", "path.toml:2", "plugin_path"},
      {"include.toml", "include = [1]\n", "include.toml:1", "include"},
      {"key.toml", "[dispatch]\nlogp = \"cuda\"\n[logging]\nlevel = \"warn\"\n", "key.toml:3", "'logging'"},
  };
  for (const auto& c : cases) {
    const std::string text = refusal(folder_.file(c.name, c.content));
    EXPECT_NE(text.find(c.where), std::string::npos) << text;
    EXPECT_NE(text.find(c.what), std::string::npos) << text;
  }
}

TEST(Required, OperatorsBelongToTheBackendBeforeThem) {
  const auto text_of = [](const std::string& value) {
    std::string text;
    for (const loader::Required& one : loader::required_of(value)) {
      text += "[" + one.backend;
      for (const std::string& op : one.operators) text += " " + op;
      text += "]";
    }
    return text;
  };
  EXPECT_EQ(text_of(""), "");
  EXPECT_EQ(text_of("cuda"), "[cuda]");
  EXPECT_EQ(text_of("cuda,rocm"), "[cuda][rocm]");
  EXPECT_EQ(text_of("cuda:logp,attention,rocm"), "[cuda logp attention][rocm]");
  EXPECT_EQ(text_of("cuda:logp,rocm:add,mul"), "[cuda logp][rocm add mul]");
  EXPECT_EQ(text_of("cuda,logp"), "[cuda][logp]") << "an operator needs a backend: this is one that there is not";
  EXPECT_EQ(text_of("cuda:logq"), "[cuda logq]") << "told when it is looked for";
}

// The folder of a policy file may have any bytes in its name, and reasons name the file.
TEST(Explain, AReasonThatIsNoUtf8IsADocumentToo) {
  core::Explanation explanation;
  explanation.op = "add";
  explanation.refused = "/etc/\xFF/rlk.toml:2 asks for acme";
  explanation.fallback = {"NOT_FOUND", "/etc/\xFF/rlk.toml:2 asks for acme"};
  const std::string document = loader::explain_json(explanation);
  EXPECT_NE(document.find("/etc/\uFFFD/rlk.toml:2 asks for acme"), std::string::npos) << document;
  EXPECT_EQ(document.find('\xFF'), std::string::npos) << document;
}

}  // namespace
}  // namespace rlk::test
