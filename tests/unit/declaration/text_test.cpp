// What plugins write is shown, but cannot act.
#include "core/declaration/text.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace rlk::core
