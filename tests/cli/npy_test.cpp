// .npy files: what is written is read back the same, and hostile files are refused with a reason.
#include "loader/cli/npy.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "framework/fs.hpp"
#include "loader/cli/verb.hpp"

namespace rlk::cli {
namespace {

using core::Dtype;
using testing::TempFolder;

std::string npy(const std::string& header, const std::string& data = {}, int major = 1) {
  std::string out("\x93NUMPY", 6);
  out += static_cast<char>(major);
  out += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return out + header + data;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string out;
  for (const T value : values) out.append(reinterpret_cast<const char*>(&value), sizeof(T));
  return out;
}

std::string dict(const std::string& descr, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

// The text of the UsageError that `work` throws, "" when it throws none.
template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(NpyRoundTrip, EveryDtypeAndRankComesBackTheSame) {
  const TempFolder folder;
  for (const Dtype dtype :
       {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64, Dtype::i32, Dtype::i64, Dtype::u8, Dtype::i8, Dtype::i16,
        Dtype::u16, Dtype::u32, Dtype::u64, Dtype::boolean, Dtype::f8_e4m3fn, Dtype::f8_e5m2}) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{}, {5}, {2, 3}, {0, 4}, {2, 1, 3, 2}}) {
      Array array(dtype, shape);
      for (int64_t i = 0; i < array.count(); ++i)
        is_floating(dtype) ? array.set(i, static_cast<double>(i) - 2.5) : array.set_integer(i, i + 1);
      write_npy(folder / "a.npy", array);
      const Array back = read_npy(folder / "a.npy", dtype);
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.shape(), shape);
      ASSERT_EQ(back.bytes(), array.bytes());
      EXPECT_EQ(std::memcmp(back.data(), array.data(), array.bytes()), 0);
    }
  }
}

TEST(NpyWrite, HeaderIsWhatNumPyWrites) {
  const TempFolder folder;
  write_npy(folder / "a.npy", Array(Dtype::f32, {3}));
  const std::string text = testing::read_text(folder / "a.npy");
  EXPECT_EQ(text.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(text.size() % 64, 12u);  // the data begins at a multiple of 64
  EXPECT_EQ(text.substr(10, 57), "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }");
  EXPECT_EQ(text[text.size() - 13], '\n');
}

TEST(NpyWrite, IntoAFolderThatDoesNotExistFails) {
  const TempFolder folder;
  EXPECT_THROW(write_npy(folder / "no/a.npy", Array(Dtype::f32, {3})), Failure);
}

TEST(NpyRead, FortranOrderBecomesRowMajor) {
  const TempFolder folder;
  const std::string data = bytes_of<float>({1, 4, 2, 5, 3, 6});
  const Array array = read_npy(folder.file("a.npy", npy(dict("<f4", "(2, 3)", "True"), data)), std::nullopt);
  ASSERT_EQ(array.shape(), (std::vector<int64_t>{2, 3}));
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(array.number(i), static_cast<double>(i + 1));
}

TEST(NpyRead, FortranOrderInThreeDimensions) {
  const TempFolder folder;
  std::string data;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) data += bytes_of<int64_t>({i * 100 + j * 10 + k});
  const Array array = read_npy(folder.file("a.npy", npy(dict("<i8", "(2, 3, 4)", "True"), data)), std::nullopt);
  int64_t at = 0;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) EXPECT_EQ(array.integer(at++), i * 100 + j * 10 + k);
}

TEST(NpyRead, VersionsTwoAndThreeAreRead) {
  const TempFolder folder;
  for (int major : {2, 3}) {
    const std::string path = folder.file("a.npy", npy(dict("<i4", "(2,)"), bytes_of<int32_t>({7, -9}), major));
    EXPECT_EQ(read_npy(path, std::nullopt).integer(1), -9);
  }
}

TEST(NpyRead, HeaderOfOtherWritersIsRead) {
  const TempFolder folder;
  const std::string header = "{\"shape\":(2L,),\"descr\":\"<f8\",\"fortran_order\":False}";
  EXPECT_EQ(read_npy(folder.file("a.npy", npy(header, bytes_of<double>({1.5, 2.5}))), std::nullopt).number(1), 2.5);
}

// numpy.save of an array of ml_dtypes.bfloat16, and the void type that numpy.load makes of it.
TEST(NpyRead, RawPairsOfBytesAreBf16) {
  const TempFolder folder;
  for (const char* descr : {"<V2", "|V2", "bfloat16"}) {
    const std::string path = folder.file("a.npy", npy(dict(descr, "(2,)"), bytes_of<uint16_t>({0x3FC0, 0xFF80})));
    const Array array = read_npy(path, std::nullopt);
    EXPECT_EQ(array.dtype(), Dtype::bf16);
    EXPECT_EQ(array.number(0), 1.5);
    EXPECT_EQ(read_npy(path, Dtype::f32).number(0), 1.5);
  }
  Array array(Dtype::bf16, {1});
  array.set(0, 1.5);
  write_npy(folder / "b.npy", array);
  EXPECT_EQ(read_npy(folder / "b.npy", std::nullopt).dtype(), Dtype::bf16);
  EXPECT_NE(testing::read_text(folder / "b.npy").find("'<V2'"), std::string::npos);
}

TEST(NpyRead, WordsAreBf16OnlyWhenTheUserSaysSo) {
  const TempFolder folder;
  const std::string path = folder.file("a.npy", npy(dict("<u2", "(2,)"), bytes_of<uint16_t>({0x3FC0, 0xFF80})));
  const Array array = read_npy(path, Dtype::bf16);
  EXPECT_EQ(array.number(0), 1.5);
  EXPECT_EQ(array.number(1), -std::numeric_limits<double>::infinity());
  EXPECT_NE(refusal([&] { read_npy(path, std::nullopt); }).find(":bf16"), std::string::npos);
  EXPECT_NE(refusal([&] { read_npy(path, Dtype::f32); }).find(":bf16"), std::string::npos);
}

TEST(NpyRead, BooleansAreBytes) {
  const TempFolder folder;
  const Array array = read_npy(folder.file("a.npy", npy(dict("|b1", "(3,)"), std::string("\0\1\1", 3))), std::nullopt);
  EXPECT_EQ(array.dtype(), Dtype::u8);
  EXPECT_EQ(array.integer(0), 0);
  EXPECT_EQ(array.integer(2), 1);
}

TEST(NpyCast, RoundsOnceToNearestEven) {
  const TempFolder folder;
  // 1 + 2^-8 lies half way between two bf16 numbers, 1 + 3 * 2^-8 too; even mantissas win.
  const std::string path =
      folder.file("a.npy", npy(dict("<f8", "(3,)"), bytes_of<double>({1.00390625, 1.01171875, 1e300})));
  const Array array = read_npy(path, Dtype::bf16);
  EXPECT_EQ(array.number(0), 1.0);
  EXPECT_EQ(array.number(1), 1.015625);
  EXPECT_TRUE(std::isinf(array.number(2)));
}

TEST(NpyCast, WholeNumbersCrossBetweenIntegersAndFloatingPoint) {
  const TempFolder folder;
  const std::string whole = folder.file("a.npy", npy(dict("<f8", "(3,)"), bytes_of<double>({1, 0, -1})));
  EXPECT_EQ(read_npy(whole, Dtype::i64).integer(2), -1);
  EXPECT_NE(refusal([&] { read_npy(whole, Dtype::u8); }).find("element 2 is -1, which does not fit"),
            std::string::npos);
  for (const double value : {0.5, std::nan(""), HUGE_VAL, 0x1p63}) {
    const std::string path = folder.file("b.npy", npy(dict("<f8", "(1,)"), bytes_of<double>({value})));
    EXPECT_NE(refusal([&] { read_npy(path, Dtype::i64); }).find("element 0 is "), std::string::npos) << value;
  }
  for (const auto& [integer, fits] :
       std::vector<std::pair<int64_t, bool>>{{-7, true},
                                             {1 << 24, true},
                                             {(1 << 24) + 1, false},
                                             {std::numeric_limits<int64_t>::min(), true},
                                             {std::numeric_limits<int64_t>::max(), false}}) {
    const std::string path = folder.file("c.npy", npy(dict("<i8", "(1,)"), bytes_of<int64_t>({integer})));
    EXPECT_EQ(refusal([&] { read_npy(path, Dtype::f32); }).empty(), fits) << integer;
    if (!fits) continue;
    EXPECT_EQ(read_npy(path, Dtype::f32).number(0), static_cast<double>(integer));
  }
}

TEST(NpyCast, IntegersMustFit) {
  const TempFolder folder;
  const std::string path = folder.file("a.npy", npy(dict("<i8", "(2,)"), bytes_of<int64_t>({1, int64_t{1} << 31})));
  EXPECT_NE(refusal([&] { read_npy(path, Dtype::i32); }).find("element 1 is 2147483648"), std::string::npos);
}

struct Hostile {
  const char* name;
  std::string file;
  const char* says;
};

TEST(NpyHostile, EveryDamagedFileIsRefusedWithItsReason) {
  const std::string f4 = bytes_of<float>({1, 2});
  const std::vector<Hostile> cases = {
      {"empty", "", "not a .npy file"},
      {"another format", "GIF89a and so on and on", "not a .npy file"},
      {"an archive", "PK\3\4 and so on and on", "save each array with numpy.save"},
      {"magic only", std::string("\x93NUMPY", 6), "not a .npy file"},
      {"unknown version", npy(dict("<f4", "(2,)"), f4, 9), "version 9.0"},
      {"version 2 ends in its length", std::string("\x93NUMPY\2\0\1\0\0", 11), "ends inside"},
      {"header longer than the file", std::string("\x93NUMPY\1\0\xff\xff{", 11), "ends inside"},
      {"header of four gigabytes", std::string("\x93NUMPY\2\0\xff\xff\xff\xff{", 13), "claims 4294967295 bytes"},
      {"empty header", npy(""), "expected '{'"},
      {"no dictionary", npy("hello"), "expected '{'"},
      {"dictionary without end", npy("{'descr': '<f4'"), "expected '}'"},
      {"word without end", npy("{'descr': '<f4"), "does not end"},
      {"missing key", npy("{'descr': '<f4', 'shape': (2,)}", f4), "not all there"},
      {"repeated key", npy("{'descr': '<f4', 'descr': '<f4'}", f4), "repeated key"},
      {"unknown key", npy("{'descr': '<f4', 'extra': 1}", f4), "unexpected"},
      {"text behind", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", f4), "text after"},
      {"neither true nor false", npy(dict("<f4", "(2,)", "Perhaps"), f4), "True or False"},
      {"negative size", npy(dict("<f4", "(-2,)"), f4), "not negative"},
      {"size beyond 63 bits", npy(dict("<f4", "(99999999999999999999,)"), f4), "63 bits"},
      {"product beyond 63 bits", npy(dict("<f4", "(4294967296, 4294967296)"), f4), "bytes follow"},
      {"product that wraps to the right size", npy(dict("<f4", "(4611686018427387904, 4, 2)"), f4), "bytes follow"},
      {"terabytes claimed", npy(dict("<f4", "(1000000000000,)"), f4), "8 bytes follow"},
      {"sizes that are names", npy(dict("<f4", "(a,)"), f4), "expected a size"},
      {"nine dimensions", npy(dict("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 2)"), f4), "9 dimensions"},
      {"data too short", npy(dict("<f4", "(3,)"), f4), "8 bytes follow"},
      {"data too long", npy(dict("<f4", "(1,)"), f4), "8 bytes follow"},
      {"half an element", npy(dict("<f4", "(1,)"), f4.substr(0, 6)), "6 bytes follow"},
      {"big-endian", npy(dict(">f4", "(2,)"), f4), "astype('<f4')"},
      {"objects", npy(dict("|O", "(2,)"), f4), "'|O' is not supported"},
      {"structured", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", f4), "save each field"},
  };
  const TempFolder folder;
  for (const Hostile& hostile : cases) {
    const std::string path = folder.file("a.npy", hostile.file);
    const std::string text = refusal([&] { read_npy(path, std::nullopt); });
    EXPECT_NE(text.find(hostile.says), std::string::npos) << hostile.name << ": " << text;
    EXPECT_EQ(text.rfind(path, 0), 0u) << hostile.name << ": the file is not named";
  }
}

TEST(NpyHostile, EveryPrefixAndEveryFlippedByteIsSurvived) {
  const TempFolder folder;
  const std::string good = npy(dict("<f4", "(2, 1)"), bytes_of<float>({1, 2}));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(refusal([&] { read_npy(folder.file("a.npy", good.substr(0, size)), std::nullopt); }), "");
  for (size_t at = 0; at < good.size() - 8; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = good;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      refusal([&] { read_npy(folder.file("a.npy", flipped), std::nullopt); });  // refused or read, never worse
    }
  }
}

TEST(NpyHostile, FoldersAndMissingFilesAreNamed) {
  const TempFolder folder;
  EXPECT_NE(refusal([&] { read_npy(folder / "none.npy", std::nullopt); }).find("No such file"), std::string::npos);
  EXPECT_NE(refusal([&] { read_npy(folder.path(), std::nullopt); }).find("expected a file"), std::string::npos);
}

}  // namespace
}  // namespace rlk::cli
