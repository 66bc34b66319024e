// SHA-256 (FIPS 180-4), as `sha256sum` prints it: what an allow-list names a file by must not be forged, and librlk
// asks for no library that could do it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rlk::loader {

class Sha256 {
public:
  void add(std::string_view bytes);
  // 64 digits of base 16. Nothing is added afterwards.
  std::string finish();

private:
  void block(const unsigned char* bytes);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> pending_{};
  size_t pending_bytes_ = 0;
  uint64_t bytes_ = 0;
};

class Store;
// Of a file, kept in the store by the file's identity as content_hash is. Nothing when it cannot be read.
std::optional<std::string> sha256_of(Store* store, const std::string& path);

}  // namespace rlk::loader
