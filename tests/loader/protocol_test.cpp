// Frames: whole in any pieces, broken for good by anything else.
#include "loader/probe/protocol.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace rlk::loader {
namespace {

TEST(Frames, ComeBackWholeHoweverTheyAreCut) {
  const std::string stream = encode_frame(FrameKind::phase, "load") + encode_frame(FrameKind::beat, "") +
                             encode_frame(FrameKind::result, std::string(3000, 'r'));
  for (const size_t step : {1u, 2u, 3u, 7u, 100u, 5000u}) {
    FrameDecoder decoder;
    std::vector<Frame> frames;
    for (size_t at = 0; at < stream.size(); at += step) {
      decoder.feed(std::string_view(stream).substr(at, step));
      while (auto frame = decoder.next()) frames.push_back(std::move(*frame));
    }
    ASSERT_EQ(frames.size(), 3u) << step;
    EXPECT_EQ(frames[0].kind, FrameKind::phase);
    EXPECT_EQ(frames[0].payload, "load");
    EXPECT_EQ(frames[1].payload, "");
    EXPECT_EQ(frames[2].payload.size(), 3000u);
    EXPECT_FALSE(decoder.broken());
  }
}

TEST(Frames, AFirstWrongByteBreaksTheStreamAtOnce) {
  FrameDecoder decoder;
  decoder.feed("h");
  EXPECT_FALSE(decoder.next());
  EXPECT_TRUE(decoder.broken());
  decoder.feed(encode_frame(FrameKind::result, "later"));
  EXPECT_FALSE(decoder.next());  // what comes after is not believed
}

TEST(Frames, UnknownKindsAndHugeLengthsBreakTheStream) {
  std::string unknown = encode_frame(FrameKind::beat, "x");
  unknown[4] = 77;
  std::string huge = encode_frame(FrameKind::beat, "x");
  huge[11] = '\x7f';
  for (const std::string& bytes : {unknown, huge}) {
    FrameDecoder decoder;
    decoder.feed(bytes);
    EXPECT_FALSE(decoder.next());
    EXPECT_TRUE(decoder.broken());
  }
}

TEST(Frames, RandomBytesAreSurvived) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = encode_frame(FrameKind::message, "hello");
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    FrameDecoder decoder;
    decoder.feed(bytes);
    while (decoder.next()) {
    }
  }
}

}  // namespace
}  // namespace rlk::loader
