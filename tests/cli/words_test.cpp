// What becomes of the words on a command line: options, calls of operators, tables.
#include <gtest/gtest.h>

#include "core/declaration/numerics.hpp"
#include "loader/cli/array.hpp"
#include "loader/cli/call.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verb.hpp"

namespace rlk::cli {
namespace {

Verb call_verb() {
  std::vector<Option> options = call_options();
  options.push_back({"fresh", nullptr, "a flag"});
  options.push_back({"backend", "B", "one value"});
  return {"try", "Tries.", "", "rlk-plugins try logp", {{"OP", true}, {"MORE", false}}, options, nullptr};
}

OpCall described(const char* op, std::vector<std::string> words) {
  words.insert(words.begin(), op);
  return describe_call(find_op(op), parse_arguments(call_verb(), words));
}

template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Options, OperandsFlagsAndValues) {
  const Arguments arguments =
      parse_arguments(call_verb(), {"logp", "--json", "--shape", "N=3", "--shape=V=4", "--fresh"});
  EXPECT_EQ(arguments.operand(0), "logp");
  EXPECT_EQ(arguments.operand(1), "");
  EXPECT_TRUE(arguments.json());
  EXPECT_TRUE(arguments.has("fresh"));
  EXPECT_FALSE(arguments.has("backend"));
  EXPECT_EQ(arguments.values("shape"), (std::vector<std::string>{"N=3", "V=4"}));
  EXPECT_EQ(arguments.value("backend", "cpu"), "cpu");
}

TEST(Options, MistakesAreNamed) {
  const auto parse = [](std::vector<std::string> words) {
    return refusal([&] { parse_arguments(call_verb(), words); });
  };
  EXPECT_NE(parse({"logp", "--shap", "N=3"}).find("did you mean '--shape'?"), std::string::npos);
  EXPECT_NE(parse({}).find("missing OP"), std::string::npos);
  EXPECT_NE(parse({"a", "b", "c"}).find("unexpected word 'c'"), std::string::npos);
  EXPECT_NE(parse({"a", "--backend", "x", "--backend", "y"}).find("twice"), std::string::npos);
  EXPECT_NE(parse({"a", "--backend"}), "");
  EXPECT_EQ(parse({"a", "--backend", ""}), "--backend '': expected B, one value");
}

TEST(Options, ASuggestionIsASlipAwayOrTheOnlyOneThatBeginsSo) {
  const std::vector<std::string> names = {"temperature", "softcap", "clip_low", "clip_high", "opsm", "cuda"};
  EXPECT_EQ(nearest("cdua", names), "cuda");         // swapped
  EXPECT_EQ(nearest("temp", names), "temperature");  // begun
  EXPECT_EQ(nearest("eps", names), "");              // opsm is another word
  EXPECT_EQ(nearest("c", names), "");
  EXPECT_EQ(nearest("clip_hihg", names), "clip_high");
  EXPECT_EQ(suggestion("clip_ratio", names), "; of that kind there are: clip_low clip_high");
  EXPECT_EQ(suggestion("eps", {"a", "b"}), "; known: a b");
  EXPECT_NE(refusal([] {
              parse_arguments(call_verb(), {"logp", "-x"});
            }).find("unknown option -x;"),
            std::string::npos);
}

TEST(Options, HelpNamesEveryOptionAndAnExample) {
  const std::string help = help_text(call_verb());
  for (const char* part :
       {"rlk-plugins try OP [MORE]", "--shape NAME=N,...", "--fresh", "--json", "--help", "example:"})
    EXPECT_NE(help.find(part), std::string::npos) << part;
}

TEST(DescribeCall, DefaultsAreTheDeclarationsFirstChoices) {
  const OpCall call = described("logp", {});
  ASSERT_TRUE(call.inputs[0]);
  EXPECT_EQ(call.inputs[0]->dtype, core::Dtype::f32);
  EXPECT_EQ(call.inputs[0]->shape, (std::vector<int64_t>{5, 37}));
  EXPECT_EQ(call.inputs[1]->shape, (std::vector<int64_t>{5}));
  EXPECT_FALSE(call.inputs[2]);
  ASSERT_TRUE(call.outputs[0]);
  EXPECT_EQ(call.outputs[0]->shape, (std::vector<int64_t>{5}));
  EXPECT_FALSE(call.outputs[1]);
}

TEST(DescribeCall, SizesDtypesAndOptionalArguments) {
  const OpCall call = described("logp", {"--shape", "N=8,V=100", "--dtype", "bf16,I=i32,O=bf16", "--with", "mask,lse"});
  EXPECT_EQ(call.inputs[0]->dtype, core::Dtype::bf16);
  EXPECT_EQ(call.inputs[0]->shape, (std::vector<int64_t>{8, 100}));
  EXPECT_EQ(call.inputs[1]->dtype, core::Dtype::i32);
  ASSERT_TRUE(call.inputs[3]);
  EXPECT_EQ(call.inputs[3]->dtype, core::Dtype::u8);
  EXPECT_EQ(call.outputs[0]->dtype, core::Dtype::bf16);
  ASSERT_TRUE(call.outputs[1]);
  EXPECT_EQ(call.outputs[1]->dtype, core::Dtype::f32);
}

TEST(DescribeCall, TheFormDecidesWhichArgumentsThereAre) {
  const OpCall dense = described("attention", {"--shape", "B=2,Sq=3,Sk=4,Hq=4,Hkv=2,D=64"});
  EXPECT_EQ(dense.inputs[0]->shape, (std::vector<int64_t>{2, 3, 4, 64}));
  EXPECT_FALSE(dense.inputs[3]);
  const OpCall packed = described("attention", {"--param", "layout=packed", "--shape", "B=2,Tq=9,Tk=10"});
  EXPECT_EQ(packed.inputs[1]->shape, (std::vector<int64_t>{10, 2, 16}));
  ASSERT_TRUE(packed.inputs[3]);
  EXPECT_EQ(packed.inputs[3]->shape, (std::vector<int64_t>{3}));
  EXPECT_NE(refusal([] {
              described("attention", {"--shape", "Tq=9"});
            }).find("--param layout=packed"),
            std::string::npos);
}

TEST(DescribeCall, FreeShapesAreNamedByTheirArgument) {
  const OpCall both = described("add", {"--shape", "a=3x1x5,b=4x1"});
  EXPECT_EQ(both.outputs[0]->shape, (std::vector<int64_t>{3, 4, 5}));
  const OpCall one = described("add", {"--shape", "a=7x2"});
  EXPECT_EQ(one.inputs[1]->shape, (std::vector<int64_t>{7, 2}));
}

TEST(DescribeCall, AnInputThatHasTheShapeOfAnotherTakesItOrNamesIt) {
  for (const char* word : {"input=4x8", "gate=4x8", "gate=4x8,input=4x8"}) {
    const OpCall call = described("geglu", {"--shape", word});
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(call.inputs[i]->shape, (std::vector<int64_t>{4, 8})) << word;
  }
  const OpCall plain = described("geglu", {});
  EXPECT_FALSE(plain.inputs[0]->shape.empty());
  EXPECT_EQ(plain.inputs[1]->shape, plain.inputs[0]->shape);
  EXPECT_NE(refusal([] {
              described("geglu", {"--shape", "input=4x8,gate=8x4"});
            }).find("--shape input=4x8,gate=8x4: gate has the shape of input"),
            std::string::npos);
}

TEST(DescribeCall, SizesOfAShapeStandBetweenSingleCrosses) {
  EXPECT_TRUE(described("add", {"--shape", "a="}).inputs[0]->shape.empty());
  for (const char* word : {"a=8xx", "a=x8", "a=8x", "a=8xx8", "a=x", "a=8X8", "a=8x-1"}) {
    EXPECT_NE(refusal([&] {
                described("add", {"--shape", word});
              }).find("with an x between two of them"),
              std::string::npos)
        << word;
  }
}

TEST(DescribeCall, ADtypeIsGivenOnce) {
  for (const char* word : {"f32,bf16", "T=f32,T=bf16", "T=f32,bf16"}) {
    EXPECT_NE(refusal([&] {
                described("add", {"--dtype", word});
              }).find("the dtype of T was given twice"),
              std::string::npos)
        << word;
  }
}

TEST(DescribeCall, MistakesAreNamedWithWhatWouldDo) {
  const auto says = [](const char* op, std::vector<std::string> words) {
    return refusal([&] { described(op, words); });
  };
  EXPECT_NE(says("lgop", {}).find("did you mean 'logp'?"), std::string::npos);
  EXPECT_NE(says("logp", {"--shape", "W=3"}).find("no size 'W'"), std::string::npos);
  EXPECT_NE(says("logp", {"--shape", "N=-3"}).find("a whole number from 0"), std::string::npos);
  EXPECT_NE(says("logp", {"--shape", "N"}).find("NAME=VALUE"), std::string::npos);
  EXPECT_NE(says("logp", {"--shape", "N=2,N=3"}).find("N was given twice"), std::string::npos);
  EXPECT_NE(says("logp", {"--param", "softcap=1", "--param", "softcap=2"}).find("softcap was given twice"),
            std::string::npos);
  EXPECT_NE(says("logp", {"--dtype", "i8"}).find("expected one of f32 bf16 f16 f64"), std::string::npos);
  EXPECT_NE(says("logp", {"--dtype", "J=f32"}).find("no dtype variable 'J'"), std::string::npos);
  EXPECT_NE(says("logp", {"--with", "maks"}).find("did you mean 'mask'?"), std::string::npos);
  EXPECT_NE(says("logp", {"--param", "temprature=1"}).find("did you mean 'temperature'?"), std::string::npos);
  EXPECT_NE(says("logp", {"--param", "temperature=warm"}).find("expected a number"), std::string::npos);
  EXPECT_NE(says("logp", {"--param", "ignore_index=1.5"}).find("expected an integer"), std::string::npos);
  EXPECT_NE(says("attention", {"--param", "causal=top"}).find("expected off or on"), std::string::npos);
  EXPECT_NE(says("add", {"--shape", "a=3,b=4"}), "");
}

TEST(Numerics, WordsToBitsAndBack) {
  EXPECT_EQ(parse_numerics(""), 0u);
  EXPECT_EQ(parse_numerics("accurate"), RLK_NUMERICS_ACCURATE);
  EXPECT_EQ(parse_numerics("deterministic,batch_invariant"), RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT);
  EXPECT_EQ(core::text_of_numerics(RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_PORTABLE), "tolerance, portable");
  EXPECT_NE(refusal([] { parse_numerics("determinstic"); }).find("did you mean 'deterministic'?"), std::string::npos);
}

TEST(Text, ControlCharactersDoNotReachTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\r\nc  "), "a\\x1b[31mb\\x0d\\nc");
  EXPECT_EQ(printable("caf\xc3\xa9"), "caf\xc3\xa9");
}

TEST(Text, WordsOfACommandAreQuotedWhereAShellWouldTakeThemApart) {
  EXPECT_EQ(shell_word("/opt/a-b_c.so"), "/opt/a-b_c.so");
  EXPECT_EQ(shell_word("my plugin"), "'my plugin'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$(reboot)"), "'$(reboot)'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Text, LongLinesAreWrappedAndLongWordsStayWhole) {
  EXPECT_EQ(wrapped("one two three four", 2, 11), "  one two\n  three\n  four\n");
  EXPECT_EQ(wrapped("x /a/very/long/path/to/a/file y", 0, 10), "x\n/a/very/long/path/to/a/file\ny\n");
  EXPECT_EQ(wrapped("a\nb", 1, 10), " a\n b\n");
}

TEST(Text, CellsAreWrappedInTheirColumnAndTheLastToTheLine) {
  Table table({"name", "values", "meaning"});
  table.row({"kind", "ppo | cispo | sapo", "what the loss of a token is, one of many"});
  table.row({"beta", "real", "factor"});
  table.wrap(1, 12, 52);
  testing::internal::CaptureStdout();
  table.print();
  std::fflush(output());
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "name  values       meaning\n"
            "kind  ppo | cispo  what the loss of a token is, one\n"
            "      | sapo       of many\n"
            "beta  real         factor\n");
}

TEST(Shapes, CountsRefuseWhatDoesNotFit) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 0, 5}), 0);
  EXPECT_EQ(element_count({0, int64_t{1} << 62, 8}), std::nullopt);
  EXPECT_EQ(element_count({int64_t{1} << 40, int64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(element_count({-1}), std::nullopt);
}

}  // namespace
}  // namespace rlk::cli
