// .npy files of numbers in C order, read and written: f32, i64 and u8 (a file of bool reads as u8). Little-endian
// hosts.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace npy {

template <class T>
struct Array {
  std::vector<int64_t> shape;
  std::vector<T> values;  // row-major
};

namespace detail {

template <class T>
struct Descr;
template <>
struct Descr<float> {
  static constexpr const char* kText = "<f4";
  static constexpr const char* kNumpy = "float32";
};
template <>
struct Descr<int64_t> {
  static constexpr const char* kText = "<i8";
  static constexpr const char* kNumpy = "int64";
};
template <>
struct Descr<uint8_t> {
  static constexpr const char* kText = "|u1";
  static constexpr const char* kNumpy = "uint8";
};

[[noreturn]] inline void fail(const std::string& path, const std::string& text) {
  throw std::runtime_error(path + ": " + text);
}

// What stands behind 'key': in the header, a Python dictionary that NumPy writes in one known form.
inline std::string value_of(const std::string& header, const std::string& key, const std::string& path) {
  const size_t at = header.find("'" + key + "':");
  if (at == std::string::npos) {
    fail(path,
         "the header has no '" + key + "', expected descr, fortran_order and shape; write the file with numpy.save");
  }
  const size_t begin = header.find_first_not_of(' ', at + key.size() + 3);
  return begin == std::string::npos ? std::string() : header.substr(begin);
}

// "(2, 3), ..." or "(2,), ..." or "()"; every size a number of digits alone.
inline std::vector<int64_t> shape_of(const std::string& text, const std::string& path) {
  const size_t end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string::npos) {
    fail(path, "the shape is '" + text.substr(0, 40) + "', expected sizes in parentheses; write it with numpy.save");
  }
  std::vector<int64_t> shape;
  std::istringstream list(text.substr(1, end - 1));
  for (std::string word; std::getline(list, word, ',');) {
    const size_t first = word.find_first_not_of(' ');
    if (first == std::string::npos) continue;  // behind the comma of "(2,)"
    const std::string digits = word.substr(first, word.find_last_not_of(' ') + 1 - first);
    if (digits.find_first_not_of("0123456789") != std::string::npos || digits.size() > 18) {
      fail(path, "a size is '" + digits + "', expected a number; write the file with numpy.save");
    }
    shape.push_back(std::stoll(digits));
  }
  return shape;
}

inline size_t count_of(const std::vector<int64_t>& shape, size_t item_size, const std::string& path) {
  size_t count = 1;
  for (const int64_t size : shape) {
    const auto factor = static_cast<size_t>(size);
    if (factor != 0 && count > std::numeric_limits<size_t>::max() / item_size / factor) {
      fail(path, "the shape has more numbers than memory can hold; is the file damaged?");
    }
    count *= factor;
  }
  return count;
}

}  // namespace detail

// "[2, 3]", for texts.
inline std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// Throws std::runtime_error: the file, what was seen, what was expected, what to do.
template <class T>
Array<T> read(const std::string& path) {
  using detail::fail;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail(path, std::string("cannot be read (") + std::strerror(errno) + "), expected a .npy file; write it");
  const auto file_size = static_cast<uint64_t>(file.tellg());
  file.seekg(0);

  unsigned char start[12] = {};  // magic, version, size of the header in 2 bytes (version 1) or 4
  file.read(reinterpret_cast<char*>(start), 10);
  if (!file || std::memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3) {
    fail(path, "does not start like a .npy file of version 1 to 3; write it with numpy.save");
  }
  uint64_t header_size = start[8] | static_cast<uint64_t>(start[9]) << 8;
  uint64_t header_begin = 10;
  if (start[6] > 1) {
    file.read(reinterpret_cast<char*>(start) + 10, 2);
    header_size |= static_cast<uint64_t>(start[10]) << 16 | static_cast<uint64_t>(start[11]) << 24;
    header_begin = 12;
  }
  if (!file || header_size > file_size - header_begin) fail(path, "ends inside its header; copy or write it again");
  std::string header(static_cast<size_t>(header_size), ' ');
  file.read(header.data(), static_cast<std::streamsize>(header_size));

  const std::string expected = detail::Descr<T>::kText;
  const std::string descr = detail::value_of(header, "descr", path);
  const std::string seen = descr.substr(0, descr.find('\'', 1) + 1);
  if (seen != "'" + expected + "'" && !(expected == "|u1" && seen == "'|b1'")) {
    fail(path, "holds " + (seen.empty() ? "records" : seen) + ", expected '" + expected +
                   "'; save array.astype(numpy." + detail::Descr<T>::kNumpy + ")");
  }
  if (detail::value_of(header, "fortran_order", path).compare(0, 5, "False") != 0) {
    fail(path, "is in Fortran order, expected C order; save numpy.ascontiguousarray(array)");
  }

  Array<T> array;
  array.shape = detail::shape_of(detail::value_of(header, "shape", path), path);
  const size_t count = detail::count_of(array.shape, sizeof(T), path);
  const uint64_t bytes = file_size - header_begin - header_size;
  if (bytes != count * sizeof(T)) {
    fail(path, "has " + std::to_string(bytes) + " bytes of numbers, expected " + std::to_string(count * sizeof(T)) +
                   " for shape " + text_of(array.shape) + "; copy or write it again");
  }
  array.values.resize(count);
  file.read(reinterpret_cast<char*>(array.values.data()), static_cast<std::streamsize>(bytes));
  if (!file) fail(path, "could not be read to its end; copy or write it again");
  return array;
}

// Throws std::runtime_error when the file cannot be written.
template <class T>
void write(const std::string& path, const std::vector<int64_t>& shape, const std::vector<T>& values) {
  std::string sizes;
  for (const int64_t size : shape) sizes += (sizes.empty() ? "" : " ") + std::to_string(size) + ",";
  std::string header =
      std::string("{'descr': '") + detail::Descr<T>::kText + "', 'fortran_order': False, 'shape': (" + sizes + ")}";
  header.append(63 - (10 + header.size()) % 64, ' ');  // NumPy aligns the numbers to 64 bytes
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  const unsigned char start[10] = {0x93,
                                   'N',
                                   'U',
                                   'M',
                                   'P',
                                   'Y',
                                   1,
                                   0,
                                   static_cast<unsigned char>(header.size() & 255),
                                   static_cast<unsigned char>(header.size() >> 8)};
  file.write(reinterpret_cast<const char*>(start), sizeof start);
  file << header;
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  file.close();
  if (!file)
    detail::fail(path, std::string("cannot be written (") + std::strerror(errno) + "); is there room and right?");
}

}  // namespace npy
