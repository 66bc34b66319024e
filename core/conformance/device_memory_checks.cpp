// Memory: distinct, aligned, whole; copies and fills: every byte that is meant, and no other.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/conformance/device_checks.hpp"

namespace rlk::core::conformance {
namespace {

constexpr uint64_t kKiB = 1024;
// Odd sizes, one beside each power that allocators like, and equal ones: a block that is given twice is given to equal
// requests first.
constexpr uint64_t kSizes[] = {1,    255,  256,  257,           4096,          4096,          4096,          4097,
                               4096, 4096, 4099, 64 * kKiB + 1, 64 * kKiB + 1, 64 * kKiB + 1, 256 * kKiB + 3};

void memory_info(Session& session) {
  uint64_t available = 0, total = 0;
  rlk_error error = empty_error();
  expect_ok(call_plugin(session.device().memory_info, session.target().owner_device, &available, &total, &error),
            "DEVICE_INFO", "memory_info", error);
  const std::string seen = fmt::format("memory_info says that {} of {} bytes are free", available, total);
  if (total == 0 || available > total) broken("DEVICE_INFO", seen + "; expected a total above 0 that is the larger");
  const uint64_t described = session.target().owner_memory_bytes;
  if (described != 0 && (total > 2 * described || total < described / 2)) {
    broken("DEVICE_INFO", fmt::format("{}, the device was described with {} bytes", seen, described));
  }
}

void expect_apart(const std::vector<Block>& blocks) {
  std::vector<const Block*> order;
  for (const Block& block : blocks) order.push_back(&block);
  std::sort(order.begin(), order.end(), [](const Block* a, const Block* b) { return a->data() < b->data(); });
  for (size_t i = 1; i < order.size(); ++i) {
    const Block &before = *order[i - 1], &behind = *order[i];
    if (before.data() + before.bytes() <= behind.data()) continue;
    char text[160];
    std::snprintf(text, sizeof(text), "two live allocations overlap: %llu bytes at %p and %llu bytes at %p",
                  static_cast<unsigned long long>(before.bytes()), static_cast<void*>(before.data()),
                  static_cast<unsigned long long>(behind.bytes()), static_cast<void*>(behind.data()));
    broken("ALLOCATION_OVERLAP", text);
  }
}

// Each block holds its own bytes over its whole length after all of them were written.
void expect_whole(Session& session, StreamHandle& stream, std::vector<Block>& blocks) {
  const auto largest = std::max_element(blocks.begin(), blocks.end(),
                                        [](const Block& a, const Block& b) { return a.bytes() < b.bytes(); });
  const Block staging = session.pinned_block(largest->bytes());
  const auto bytes_of = [&](const Block& block) {
    return std::span<std::byte>(block.kind() == RLK_MEMORY_PINNED ? block.data() : staging.data(), block.bytes());
  };
  for (size_t i = 0; i < blocks.size(); ++i) {
    write_pattern(static_cast<uint32_t>(i), bytes_of(blocks[i]));
    if (blocks[i].kind() == RLK_MEMORY_PINNED) continue;
    stream.copy(blocks[i].data(), staging.data(), blocks[i].bytes(), RLK_COPY_HOST_TO_DEVICE);
    stream.settle();
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].kind() == RLK_MEMORY_DEVICE) {
      write_pattern(~static_cast<uint32_t>(i), bytes_of(blocks[i]));
      stream.copy(staging.data(), blocks[i].data(), blocks[i].bytes(), RLK_COPY_DEVICE_TO_HOST);
      stream.settle();
    }
    const std::span<const std::byte> got = bytes_of(blocks[i]);
    const uint64_t at = first_unlike(static_cast<uint32_t>(i), got);
    if (at == got.size()) continue;
    broken("ALLOCATION_OVERLAP",
           "memory that was written and read back after other allocations were written: " +
               unlike_text(at, got.size(), got[at], pattern(static_cast<uint32_t>(i), at)) +
               "; do two of them share memory, or does synchronize answer before the stream's copies are done?");
  }
}

void pointer_kinds(Session& session, const Block& device, const Block& pinned) {
  if (session.device().pointer_kind == nullptr || session.is_unified()) return;
  static const char elsewhere = 0;
  const struct {
    const void* pointer;
    int32_t expected;
    const char* what;
  } rows[] = {{device.data(), RLK_POINTER_DEVICE, "device memory"},
              {pinned.data(), RLK_POINTER_PINNED, "pinned memory"},
              {&elsewhere, RLK_POINTER_UNKNOWN, "memory of the program"}};
  for (const auto& row : rows) {
    int32_t kind = -1;
    rlk_error error = empty_error();
    const rlk_status status =
        call_plugin(session.device().pointer_kind, session.target().owner_device, row.pointer, &kind, &error);
    if (status == RLK_UNSUPPORTED) return;
    expect_ok(status, "POINTER_KIND", "pointer_kind", error);
    if (kind == row.expected) continue;
    broken("POINTER_KIND", fmt::format("pointer_kind of {} is {}, expected {}", row.what, kind, row.expected));
  }
}

// ---- transfers ------------------------------------------------------------------------------------------------------

struct Piece {
  uint64_t from, to, bytes;
};
constexpr Piece kPieces[] = {{0, 0, 1},    {1, 3, 2},    {3, 0, 5},     {255, 1, 257},
                             {17, 33, 31}, {4, 8, 4099}, {0, 0, 65536}, {1, 0, 65537}};
constexpr uint64_t kRoom = 128 * kKiB;

// A piece of the source's pattern lies in memory that else holds the destination's.
void expect_piece(std::span<const std::byte> got, const Piece& piece, const char* code, const std::string& what) {
  for (uint64_t at = 0; at < got.size(); ++at) {
    const bool inside = at >= piece.to && at < piece.to + piece.bytes;
    const std::byte expected = inside ? pattern(1, at - piece.to + piece.from) : pattern(2, at);
    if (got[at] == expected) continue;
    broken(code, fmt::format("{} of {} bytes to offset {} from offset {}: {}{}", what, piece.bytes, piece.to,
                             piece.from, unlike_text(at, got.size(), got[at], expected),
                             inside ? "" : ", which is outside of what was asked for"));
  }
}

void copies(StreamHandle& stream, const Block& a, const Block& b, const Block& sent, const Block& fetched) {
  struct Way {
    int32_t kind;
    const char* name;
  };
  for (const Way way : {Way{RLK_COPY_HOST_TO_DEVICE, "a copy from host to device"},
                        Way{RLK_COPY_DEVICE_TO_HOST, "a copy from device to host"},
                        Way{RLK_COPY_DEVICE_TO_DEVICE, "a copy from device to device"}}) {
    for (const Piece& piece : kPieces) {
      const uint64_t room = std::min(kRoom, std::max(piece.from, piece.to) + piece.bytes + 512);
      const std::span<std::byte> out(sent.data(), room), in(fetched.data(), room);
      const bool to_device = way.kind != RLK_COPY_DEVICE_TO_HOST;
      const bool from_device = way.kind != RLK_COPY_HOST_TO_DEVICE;
      if (to_device) {
        write_pattern(2, out);
        stream.copy(b.data(), out.data(), room, RLK_COPY_HOST_TO_DEVICE);
        stream.settle();
      } else {
        write_pattern(2, in);
      }
      write_pattern(1, out);
      if (from_device) {
        stream.copy(a.data(), out.data(), room, RLK_COPY_HOST_TO_DEVICE);
        stream.settle();
      }
      stream.copy((to_device ? b.data() : in.data()) + piece.to, (from_device ? a.data() : out.data()) + piece.from,
                  piece.bytes, way.kind);
      if (to_device) stream.copy(in.data(), b.data(), room, RLK_COPY_DEVICE_TO_HOST);
      stream.settle();
      expect_piece(in, piece, "DEVICE_COPY", way.name);
    }
  }
  // Nothing to copy is nothing to do.
  stream.copy(a.data(), b.data(), 0, RLK_COPY_DEVICE_TO_DEVICE);
  stream.fill(a.data(), 1, 0);
  stream.settle();
}

void fills(StreamHandle& stream, const Block& a, const Block& sent, const Block& fetched) {
  for (const uint8_t value : {uint8_t{0}, uint8_t{0xff}, uint8_t{0x5a}}) {
    for (const Piece& piece : kPieces) {
      const uint64_t room = piece.to + piece.bytes + 512;
      const std::span<std::byte> out(sent.data(), room), in(fetched.data(), room);
      write_pattern(2, out);
      stream.copy(a.data(), out.data(), room, RLK_COPY_HOST_TO_DEVICE);
      stream.fill(a.data() + piece.to, value, piece.bytes);
      stream.copy(in.data(), a.data(), room, RLK_COPY_DEVICE_TO_HOST);
      stream.settle();
      for (uint64_t at = 0; at < room; ++at) {
        const bool inside = at >= piece.to && at < piece.to + piece.bytes;
        const std::byte expected = inside ? std::byte{value} : pattern(2, at);
        if (in[at] == expected) continue;
        broken("DEVICE_FILL", fmt::format("a fill of {} bytes from offset {}: {}", piece.bytes, piece.to,
                                          unlike_text(at, room, in[at], expected)));
      }
    }
  }
}

// Memory in stream order, where the device has it.
void stream_memory(Session& session, StreamHandle& stream, const Block& sent, const Block& fetched) {
  const rlk_stream_api& api = session.streams();
  if (api.allocate_async == nullptr || api.deallocate_async == nullptr) return;
  constexpr uint64_t kBytes = 64 * kKiB + 1;
  std::array<void*, 3> memory{};
  for (size_t i = 0; i < memory.size(); ++i) {
    rlk_error error = empty_error();
    const rlk_status status = call_plugin(api.allocate_async, stream.get(), kBytes, &memory[i], &error);
    if (status == RLK_UNSUPPORTED && i == 0) return;
    expect_ok(status, "STREAM_MEMORY", "allocate_async", error);
    if (memory[i] == nullptr) broken("STREAM_MEMORY", "allocate_async answered RLK_OK and gave NULL");
    write_pattern(static_cast<uint32_t>(i), {sent.data(), kBytes});
    stream.copy(memory[i], sent.data(), kBytes, RLK_COPY_HOST_TO_DEVICE);
    stream.settle();
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    stream.copy(fetched.data(), memory[i], kBytes, RLK_COPY_DEVICE_TO_HOST);
    rlk_error error = empty_error();
    expect_ok(call_plugin(api.deallocate_async, stream.get(), memory[i], &error), "STREAM_MEMORY", "deallocate_async",
              error);
    stream.settle();
    const uint64_t at = first_unlike(static_cast<uint32_t>(i), {fetched.data(), kBytes});
    if (at == kBytes) continue;
    broken("STREAM_MEMORY", "memory of allocate_async does not keep what was written: " +
                                unlike_text(at, kBytes, fetched.data()[at], pattern(static_cast<uint32_t>(i), at)));
  }
}

}  // namespace

void check_memory(Session& session) {
  memory_info(session);
  StreamHandle stream = StreamHandle::create(session);
  std::vector<Block> blocks;
  for (const int32_t kind : {RLK_MEMORY_DEVICE, RLK_MEMORY_PINNED}) {
    for (const uint64_t bytes : kSizes) blocks.emplace_back(session, kind, bytes);
  }
  for (const Block& block : blocks) {
    const bool of_host = block.kind() == RLK_MEMORY_PINNED || session.is_unified();
    if (!of_host || is_readable(block.data(), block.bytes())) continue;
    broken("ALLOCATION", fmt::format("the host cannot read {} of {} bytes",
                                     block.kind() == RLK_MEMORY_PINNED ? "pinned memory"
                                                                       : "device memory, which is said to be unified",
                                     block.bytes()));
  }
  expect_apart(blocks);
  expect_whole(session, stream, blocks);
  pointer_kinds(session, blocks.front(), blocks.back());
  // What is given back and given out again is as good.
  for (size_t i = 0; i < blocks.size(); i += 2) {
    const int32_t kind = blocks[i].kind();
    const uint64_t bytes = blocks[i].bytes();
    blocks[i].release();
    blocks.emplace_back(session, kind, bytes);
    std::swap(blocks[i], blocks.back());
    blocks.pop_back();
  }
  expect_apart(blocks);
  expect_whole(session, stream, blocks);
  for (Block& block : blocks) block.release();
}

void check_transfer(Session& session) {
  const Block a = session.device_block(kRoom), b = session.device_block(kRoom);
  const Block sent = session.pinned_block(kRoom), fetched = session.pinned_block(kRoom);
  StreamHandle stream = StreamHandle::create(session);
  copies(stream, a, b, sent, fetched);
  fills(stream, a, sent, fetched);
  stream_memory(session, stream, sent, fetched);
}

}  // namespace rlk::core::conformance
