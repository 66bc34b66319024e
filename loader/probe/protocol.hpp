// What the loader and a child process say to each other: frames over one socket, at a descriptor of their own so that
// nothing a plugin prints can get between them. Both ends are here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rlk::loader {

inline constexpr int kProtocolFd = 3;  // where the child finds the socket

// In the child: a copy of the socket out of reach of code that guesses small descriptors, as far as the limit of open
// files allows, and not passed on to what a plugin starts. -1: there is none left.
int move_protocol_socket();

enum class FrameKind : uint32_t {
  request = 1,  // parent to child, once: what to do
  phase = 2,    // child: the named phase begins, with a time budget of its own
  beat = 3,     // child: still alive; the text says what is being done now, for attribution
  message = 4,  // child: an intermediate result, kept even when the child dies later
  result = 5,   // child, last: the answer
};

struct Frame {
  FrameKind kind = FrameKind::beat;
  std::string payload;
};

// On the wire: "RLK1", kind and payload length as 32-bit numbers of this machine, payload.
std::string encode_frame(FrameKind kind, std::string_view payload);

// Turns a stream of bytes into frames. Bytes that are no frame break it for good.
class FrameDecoder {
public:
  static constexpr uint32_t kMaxPayload = 64u << 20;

  void feed(std::string_view bytes);
  std::optional<Frame> next();
  bool broken() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

private:
  std::string pending_;
  std::string error_;
};

// The child's end. Blocking; every function is false or empty when the parent is gone.
class ChildChannel {
public:
  explicit ChildChannel(int fd) : fd_(fd) {}

  std::optional<std::string> receive_request();
  bool send(FrameKind kind, std::string_view payload);

private:
  int fd_;
};

}  // namespace rlk::loader
