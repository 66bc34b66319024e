// Inputs made of seeds by small steps, the same ones for the same number on every machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace rlk::fuzz {

class Random {
public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(next() % n); }

private:
  uint64_t state_;
};

// The input of that number: a seed after one to eight steps.
inline std::string input_of(uint64_t number, const std::vector<std::string>& seeds,
                            const std::vector<std::string>& words) {
  static constexpr size_t kLongest = 1 << 16;
  static const std::vector<std::string> kNumbers = {
      "0",     "-1", "1", "255", "65536", "2147483648", "4294967295", "9223372036854775807", "18446744073709551616",
      "1e309", "nan"};
  Random random(number);
  std::string bytes = seeds[random.below(seeds.size())];
  const auto insert = [&](const std::string& what) { bytes.insert(random.below(bytes.size() + 1), what); };
  for (size_t steps = 1 + random.below(8); steps > 0; --steps) {
    const size_t at = random.below(bytes.size());
    const size_t length = std::min(bytes.size() - at, size_t{1} << random.below(10));
    switch (random.below(12)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.below(8));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random.next());
        break;
      case 2: {  // a number as a machine writes it: extremes, and near ones
        static constexpr uint64_t kExtremes[] = {0,
                                                 1,
                                                 0x7f,
                                                 0x80,
                                                 0xff,
                                                 0x7fffffff,
                                                 0x80000000,
                                                 0xffffffff,
                                                 0x7fffffffffffffff,
                                                 0x8000000000000000,
                                                 0xffffffffffffffff};
        const uint64_t value = kExtremes[random.below(std::size(kExtremes))] + random.below(3) - 1;
        const size_t width = size_t{1} << random.below(4);
        for (size_t i = 0; i < width && at + i < bytes.size(); ++i) bytes[at + i] = static_cast<char>(value >> 8 * i);
        break;
      }
      case 3: {  // a number as a person writes it
        const size_t digit = bytes.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const size_t end = std::min(bytes.find_first_not_of("0123456789", digit), bytes.size());
        bytes.replace(digit, end - digit, kNumbers[random.below(kNumbers.size())]);
        break;
      }
      case 4:
        bytes.erase(at, length);
        break;
      case 5:
        bytes.resize(at);
        break;
      case 6:
        insert(bytes.substr(at, length));
        break;
      case 7:  // deep, or long
        insert([&] {
          const std::string piece = bytes.substr(at, 1 + random.below(4));
          std::string many;
          for (size_t i = size_t{1} << random.below(10); i > 0; --i) many += piece;
          return many;
        }());
        break;
      case 8:
        if (!words.empty()) insert(words[random.below(words.size())]);
        break;
      case 9: {
        const std::string& other = seeds[random.below(seeds.size())];
        bytes = bytes.substr(0, at) + other.substr(random.below(other.size() + 1));
        break;
      }
      case 10:
        if (!bytes.empty()) std::swap(bytes[at], bytes[random.below(bytes.size())]);
        break;
      default: {
        std::string noise(1 + random.below(16), '\0');
        for (char& byte : noise) byte = static_cast<char>(random.next());
        insert(noise);
      }
    }
    if (bytes.size() > kLongest) bytes.resize(kLongest);
  }
  return bytes;
}

}  // namespace rlk::fuzz
