// What plugins write is shown, but cannot act.
#include "core/declaration/text.hpp"
#include "core/declaration/error.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace rlk::core {
namespace {

TEST(Text, WhatSteersATerminalOrForgesALineIsMadeVisible) {
  EXPECT_EQ(printable("plain words, 7 % of caf\xc3\xa9 \xe6\xbc\xa2"), "plain words, 7 % of caf\xc3\xa9 \xe6\xbc\xa2");
  EXPECT_EQ(printable("red \x1b[31m"), "red \\x1b[31m");
  EXPECT_EQ(printable("ok\n[rlk] [error] forged\r"), "ok\\n[rlk] [error] forged\\x0d");
  EXPECT_EQ(printable("csi \xc2\x9b[31m"), "csi \\u009b[31m");  // the escape in one letter
  EXPECT_EQ(printable("a\xe2\x80\xaez"), "a\\u202ez");          // right to left
  EXPECT_EQ(printable("\xe2\x81\xa6\xe2\x80\xa8\xe2\x80\x8b"), "\\u2066\\u2028\\u200b");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Text, WhatIsNotUtf8IsMadeVisible) {
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\xc3"), "\\xc3");  // ends inside a letter
  EXPECT_EQ(printable("\xe2\x80"), "\\xe2\\x80");
  EXPECT_EQ(printable("\xc0\x8a"), "\\xc0\\x8a");                    // a line break in too many bytes
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond the last letter
}

TEST(Text, AFieldWithoutAFinalZeroIsReadToItsEnd) {
  struct {
    char field[4] = {'a', 'b', 'c', 'd'};
    char behind[4] = "xyz";
  } both;
  EXPECT_EQ(text_of(both.field), "abcd");
}

TEST(Text, AnErrorThatGoesOnEndsAndHoldsNoControls) {
  rlk_error error{};
  error.struct_size = sizeof(error);
  std::memset(error.text, 'x', sizeof(error.text));
  std::memset(error.domain, 'y', sizeof(error.domain));
  error.text[0] = '\n';
  error.text[1] = '\x1b';
  make_printable(&error);
  EXPECT_EQ(std::string(error.text), "?\?" + std::string(sizeof(error.text) - 3, 'x'));
  EXPECT_EQ(std::string(error.domain), std::string(sizeof(error.domain) - 1, 'y'));
  make_printable(nullptr);
}

TEST(Text, ACallersShorterErrorIsNotWrittenBeyondItsSize) {
  rlk_error error{};
  std::memset(error.text, 'x', sizeof(error.text));
  error.struct_size = offsetof(rlk_error, text) + 8;
  make_printable(&error);
  EXPECT_EQ(std::string(error.text, 9), std::string("xxxxxxx\0x", 9));
  error.struct_size = 4;
  error.domain[0] = '\n';
  make_printable(&error);
  EXPECT_EQ(error.domain[0], '\n');
}

// Names of one length, so that one that is cut is seen.
std::string many_names() {
  std::string text = "expected one of:";
  for (int i = 100; i < 300; ++i) text += " plugin_" + std::to_string(i) + (i < 299 ? "," : "");
  return text;
}

TEST(ErrorText, ThatIsTooLongEndsBetweenTwoNames) {
  const std::string whole = many_names();
  for (const size_t room : {sizeof(rlk_error::text), size_t{40}, size_t{41}, size_t{47}, size_t{100}}) {
    rlk_error error{};
    error.struct_size = static_cast<uint32_t>(offsetof(rlk_error, text) + room);
    std::memset(error.text, '#', sizeof(error.text));
    EXPECT_EQ(fail(&error, RLK_NOT_FOUND, whole), RLK_NOT_FOUND);
    const std::string text(error.text, strnlen(error.text, room));
    ASSERT_LT(text.size(), room);
    ASSERT_EQ(text.substr(text.size() - 4), " ...") << text;
    const std::string shown = text.substr(0, text.size() - 4);
    EXPECT_EQ(whole.compare(0, shown.size(), shown), 0) << text;
    EXPECT_EQ(whole[shown.size()], ' ') << text;
    EXPECT_TRUE(room == sizeof(error.text) || error.text[room] == '#') << "nothing is written beyond the struct";
    rlk_error formatted{};
    formatted.struct_size = error.struct_size;
    failf(&formatted, RLK_NOT_FOUND, "%s", whole.c_str());
    EXPECT_STREQ(formatted.text, text.c_str());
  }
}

TEST(ErrorText, ThatFitsIsWhole) {
  rlk_error error{};
  error.struct_size = sizeof(error);
  const std::string just(sizeof(error.text) - 1, 'x');
  fail(&error, RLK_NOT_FOUND, just);
  EXPECT_EQ(error.text, just);
}

TEST(ErrorText, OfOneLongWordEndsBetweenTwoLetters) {
  std::string word;
  for (int i = 0; i < 400; ++i) word += "\xc3\xa9";
  rlk_error error{};
  error.struct_size = sizeof(error);
  fail(&error, RLK_NOT_FOUND, word);
  const std::string text = error.text;
  EXPECT_EQ(text.size() % 2, 0u);
  EXPECT_EQ(word.compare(0, text.size(), text), 0);
  EXPECT_GT(text.size(), 400u);
}

}  // namespace
}  // namespace rlk::core
