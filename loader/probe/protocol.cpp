// A frame is a magic word, its kind and its length, then its bytes.
#include "loader/probe/protocol.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace rlk::loader {
namespace {

constexpr std::string_view kMagic = "RLK1";
constexpr size_t kHeaderBytes = 12;

}  // namespace

int move_protocol_socket() {
  for (int from = 200; from > kProtocolFd; from /= 2) {
    if (const int moved = fcntl(kProtocolFd, F_DUPFD_CLOEXEC, from); moved >= 0) return moved;
  }
  return -1;
}

std::string encode_frame(FrameKind kind, std::string_view payload) {
  const uint32_t head[2] = {static_cast<uint32_t>(kind), static_cast<uint32_t>(payload.size())};
  std::string out(kMagic);
  out.append(reinterpret_cast<const char*>(head), sizeof(head));
  out.append(payload);
  return out;
}

void FrameDecoder::feed(std::string_view bytes) {
  if (!broken()) pending_.append(bytes);
}

std::optional<Frame> FrameDecoder::next() {
  if (broken()) return std::nullopt;
  const std::string_view seen = std::string_view(pending_).substr(0, kMagic.size());
  if (seen != kMagic.substr(0, seen.size())) {
    error_ = "the child sent bytes that do not begin a frame";
    return std::nullopt;
  }
  if (pending_.size() < kHeaderBytes) return std::nullopt;
  uint32_t head[2] = {};
  std::memcpy(head, pending_.data() + kMagic.size(), sizeof(head));
  if (head[0] < 1 || head[0] > 5 || head[1] > kMaxPayload) {
    error_ = fmt::format("the child sent a frame of kind {} and {} bytes", head[0], head[1]);
    return std::nullopt;
  }
  if (pending_.size() - kHeaderBytes < head[1]) return std::nullopt;
  Frame frame{static_cast<FrameKind>(head[0]), pending_.substr(kHeaderBytes, head[1])};
  pending_.erase(0, kHeaderBytes + head[1]);
  return frame;
}

std::optional<std::string> ChildChannel::receive_request() {
  FrameDecoder decoder;
  char piece[4096];
  while (true) {
    if (auto frame = decoder.next()) return std::move(frame->payload);
    const ssize_t got = recv(fd_, piece, sizeof(piece), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || decoder.broken()) return std::nullopt;
    decoder.feed({piece, static_cast<size_t>(got)});
  }
}

bool ChildChannel::send(FrameKind kind, std::string_view payload) {
  const std::string bytes = encode_frame(kind, payload);
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t got = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    sent += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace rlk::loader
