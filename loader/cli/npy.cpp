// Reading and writing .npy files.
#include "loader/cli/npy.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "core/declaration/validate.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/verb.hpp"
#include "loader/store/file.hpp"

namespace rlk::cli {
namespace {

using core::Dtype;

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::string_view kZipMagic("PK\3\4", 4);
constexpr size_t kMaxHeader = 64 << 10;  // NumPy itself refuses more than 10000 characters by default

// The Python dictionary of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class DictReader {
public:
  explicit DictReader(std::string_view text) : text_(text) {}

  void read(NpyHeader* header) {
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        header->descr = quoted();
        descr = true;
      } else if (key == "fortran_order" && !order) {
        header->fortran_order = boolean();
        order = true;
      } else if (key == "shape" && !shape) {
        header->shape = tuple();
        shape = true;
      } else {
        fail("unexpected or repeated key '" + key + "'");
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size()) fail("text after the dictionary");
    if (!descr || !order || !shape) fail("the keys 'descr', 'fortran_order' and 'shape' are not all there");
  }

private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(fmt::format("damaged .npy header: {} (position {})", what, at_));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
  }
  std::string quoted() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote == '[') throw UsageError("a structured dtype is no tensor; save each field by itself");
    if (quote != '\'' && quote != '"') fail("expected a quoted word");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a quoted word does not end");
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    skip();
    for (bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("expected True or False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!take(')')) {
      skip();
      int64_t size = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0) fail("expected a size that is not negative and fits into 63 bits");
      at_ += static_cast<size_t>(end - begin);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
      sizes.push_back(size);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    if (sizes.size() > RLK_MAX_NDIM) {
      throw UsageError(fmt::format("it has {} dimensions; tensors have at most {}", sizes.size(), RLK_MAX_NDIM));
    }
    return sizes;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// What an element of the file is. Two raw bytes are bf16: NumPy has no word for it, and the package ml_dtypes, which
// has the type, writes it so. Unsigned words may be bf16, too, once the user says so.
Dtype dtype_of(const std::string& descr, std::optional<Dtype> wanted) {
  struct Known {
    const char* descr;
    Dtype dtype;
  };
  static constexpr Known kKnown[] = {{"<f4", Dtype::f32}, {"<f2", Dtype::f16}, {"<f8", Dtype::f64},
                                     {"<i4", Dtype::i32}, {"<i8", Dtype::i64}, {"|u1", Dtype::u8},
                                     {"<u1", Dtype::u8},  {"|b1", Dtype::u8},  {"|i1", Dtype::i8},
                                     {"<i2", Dtype::i16}, {"<u4", Dtype::u32}, {"<u8", Dtype::u64}};
  // NumPy has no name for these: the user says that the file's words are theirs.
  if (descr == "|b1" && wanted == Dtype::boolean) return Dtype::boolean;
  if (descr == "<u2" && wanted == Dtype::u16) return Dtype::u16;
  if ((descr == "|u1" || descr == "|V1" || descr == "<V1" || descr == "<f1") &&
      (wanted == Dtype::f8_e4m3fn || wanted == Dtype::f8_e5m2))
    return *wanted;
  for (const Known& known : kKnown)
    if (descr == known.descr) return known.dtype;
  if (descr == "<V2" || descr == "|V2" || descr == "bfloat16") return Dtype::bf16;
  if (descr == "<u2") {
    if (wanted == Dtype::bf16) return Dtype::bf16;
    throw UsageError("dtype '" + descr +
                     "' is no dtype of an operator; write name=FILE:bf16 to read the words as bf16");
  }
  std::string advice = "; expected <f2 <f4 <f8 <i2 <i4 <i8 <u4 <u8 |i1 |u1 |b1, or <V2 for bf16";
  if (!descr.empty() && descr[0] == '>') advice += " (big-endian: save array.astype('<" + descr.substr(1) + "'))";
  throw UsageError(fmt::format("dtype '{}' is not supported{}", descr, advice));
}

const char* descr_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "<f4";
    case Dtype::bf16:
      return "<V2";
    case Dtype::f16:
      return "<f2";
    case Dtype::f64:
      return "<f8";
    case Dtype::i32:
      return "<i4";
    case Dtype::i64:
      return "<i8";
    case Dtype::i8:
      return "|i1";
    case Dtype::i16:
      return "<i2";
    case Dtype::u16:
      return "<u2";
    case Dtype::u32:
      return "<u4";
    case Dtype::u64:
      return "<u8";
    case Dtype::boolean:
      return "|b1";
    case Dtype::u8:
    case Dtype::f8_e4m3fn:
    case Dtype::f8_e5m2:
    case Dtype::f4_e2m1fn:
    case Dtype::other:
      break;
  }
  return "|u1";
}

// Column-major elements into row-major ones.
Array transposed(const Array& from) {
  std::vector<int64_t> strides;
  int64_t stride = 1;
  for (const int64_t dimension : from.shape()) {
    strides.push_back(stride);
    stride *= std::max<int64_t>(dimension, 1);
  }
  return gathered(from, from.shape(), strides);
}

Array read_from(int fd, uint64_t file_bytes, std::optional<Dtype> wanted) {
  std::string head(std::min<uint64_t>(file_bytes, kMaxHeader + 12), '\0');
  if (!loader::read_at(fd, 0, head.data(), head.size()))
    throw UsageError("cannot be read: " + loader::errno_text(errno));
  const NpyHeader header = parse_npy_header(head);
  const Dtype dtype = dtype_of(header.descr, wanted);
  const std::optional<int64_t> count = element_count(header.shape);
  const uint64_t data_bytes = file_bytes - header.data_offset;
  const auto size = static_cast<uint64_t>(core::size_of(dtype));
  if (!count || static_cast<uint64_t>(*count) != data_bytes / size || data_bytes % size != 0) {
    uint64_t expected = 0;
    const bool is_known = count && !__builtin_mul_overflow(static_cast<uint64_t>(*count), size, &expected);
    throw UsageError(fmt::format("the header says {} of '{}', but {} bytes follow it{}", shape_text(header.shape),
                                 header.descr, data_bytes, is_known ? fmt::format("; expected {}", expected) : ""));
  }
  Array array(dtype, header.shape);
  if (!loader::read_at(fd, header.data_offset, array.data(), array.bytes()))
    throw UsageError("cannot be read: " + loader::errno_text(errno));
  if (header.fortran_order && header.shape.size() > 1) array = transposed(array);
  return wanted && *wanted != dtype ? cast(array, *wanted) : std::move(array);
}

}  // namespace

NpyHeader parse_npy_header(std::string_view bytes) {
  if (bytes.substr(0, 4) == kZipMagic)
    throw UsageError("this is a zip archive (.npz, or a checkpoint of PyTorch); save each array with numpy.save");
  if (bytes.size() < 10 || bytes.substr(0, 6) != kMagic)
    throw UsageError("not a .npy file: it does not begin with \\x93NUMPY; save it with numpy.save");
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  const uint32_t major = byte(6);
  NpyHeader header;
  size_t begin = 10;
  uint64_t length = byte(8) | byte(9) << 8;
  if (major == 2 || major == 3) {
    if (bytes.size() < 12) throw UsageError("damaged .npy header: the file ends inside it");
    begin = 12;
    length |= uint64_t{byte(10)} << 16 | uint64_t{byte(11)} << 24;
  } else if (major != 1) {
    throw UsageError(fmt::format(".npy version {}.{} is not known; expected 1.0, 2.0 or 3.0", major, byte(7)));
  }
  if (length > kMaxHeader) throw UsageError(fmt::format("damaged .npy header: it claims {} bytes", length));
  if (begin + length > bytes.size()) throw UsageError("damaged .npy header: the file ends inside it");
  DictReader(bytes.substr(begin, length)).read(&header);
  header.data_offset = begin + length;
  return header;
}

Array read_npy(const std::string& path, std::optional<core::Dtype> wanted) {
  try {
    struct stat status {};
    const loader::UniqueFd fd = loader::open_regular(path, &status);
    if (!fd && errno == ENOTSUP) throw UsageError("is a folder, a pipe or a device; expected a file");
    if (!fd) throw UsageError("cannot be opened: " + loader::errno_text(errno));
    return read_from(fd.get(), static_cast<uint64_t>(status.st_size), wanted);
  } catch (const UsageError& error) {
    throw UsageError(path + ": " + error.what());
  }
}

void write_npy(const std::string& path, const Array& array) {
  std::string shape;
  for (int64_t size : array.shape()) shape += std::to_string(size) + ", ";
  if (array.shape().size() > 1) shape.resize(shape.size() - 2);
  if (array.shape().size() == 1) shape.pop_back();
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr_of(array.dtype()), shape);
  header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ');  // the data is aligned to 64 bytes, as NumPy does it
  header += '\n';
  std::string head(kMagic);
  head += {'\1', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  head += header;
  write_whole(path, {head, {reinterpret_cast<const char*>(array.data()), array.bytes()}});
}

}  // namespace rlk::cli
