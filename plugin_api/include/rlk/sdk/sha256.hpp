// SHA-256 (FIPS 180-4), as `sha256sum` prints it: for what must not be forged, such as the files that an allow-list or
// a lock of packs names. It needs no library.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace rlk::sdk {

// The standard's own steps and names.
class Sha256 {
public:
  void add(std::string_view bytes) {
    bytes_ += bytes.size();
    while (!bytes.empty()) {
      const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
      if (pending_bytes_ == 0 && bytes.size() >= pending_.size()) {
        block(at);
        bytes.remove_prefix(pending_.size());
        continue;
      }
      const size_t taken = std::min(bytes.size(), pending_.size() - pending_bytes_);
      std::memcpy(pending_.data() + pending_bytes_, at, taken);
      bytes.remove_prefix(taken);
      pending_bytes_ += taken;
      if (pending_bytes_ < pending_.size()) return;
      block(pending_.data());
      pending_bytes_ = 0;
    }
  }

  // 64 digits of base 16. Nothing is added afterwards.
  std::string finish() {
    const uint64_t bits = bytes_ * 8;
    add(std::string_view("\x80", 1));
    const std::string zeros((120 - pending_bytes_) % 64, '\0');
    add(zeros);
    std::string length;
    for (int shift = 56; shift >= 0; shift -= 8) length += static_cast<char>(bits >> shift & 0xff);
    add(length);
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const uint32_t word : state_)
      for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 0xf];
    return text;
  }

private:
  static uint32_t big_endian(const unsigned char* bytes) {
    return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
  }
  static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

  void block(const unsigned char* bytes) {
    static constexpr uint32_t kRound[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64];
    for (size_t t = 0; t < 16; ++t) w[t] = big_endian(bytes + 4 * t);
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[t] + w[t];
      const uint32_t s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<uint32_t, 8> after = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state_[i] += after[i];
  }

  std::array<uint32_t, 8> state_ = {{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,  //
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
  std::array<unsigned char, 64> pending_{};
  size_t pending_bytes_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace rlk::sdk
