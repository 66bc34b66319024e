// The element types: their names, how large they are, and a vendor's numbers for them.
#pragma once

#include <rlk/abi/tensor.h>
#include <rlk/sdk/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rlk::sdk {

// In the order of the declarations' tables.
enum class Dtype : uint8_t {
  f32,
  bf16,
  f16,
  f64,
  i32,
  i64,
  u8,
  i8,
  i16,
  u16,
  u32,
  u64,
  boolean,
  f8_e4m3fn,
  f8_e5m2,
  f4_e2m1fn,
  other,
};

// Their names and DLPack's codes.
struct DtypeRow {
  const char* name;
  uint8_t code, bits;
};
inline constexpr DtypeRow kDtypes[] = {
    {"f32", 2, 32}, {"bf16", 4, 16},      {"f16", 2, 16},     {"f64", 2, 64},       {"i32", 0, 32},  {"i64", 0, 64},
    {"u8", 1, 8},   {"i8", 0, 8},         {"i16", 0, 16},     {"u16", 1, 16},       {"u32", 1, 32},  {"u64", 1, 64},
    {"bool", 6, 8}, {"f8_e4m3fn", 10, 8}, {"f8_e5m2", 12, 8}, {"f4_e2m1fn", 17, 4}, {"other", 0, 0},
};
static_assert(sizeof(kDtypes) / sizeof(DtypeRow) == static_cast<size_t>(Dtype::other) + 1, "one row each");

inline Dtype dtype_of(rlk_dtype abi) noexcept {
  for (int i = 0; i < static_cast<int>(Dtype::other); ++i) {
    if (abi.lanes == 1 && kDtypes[i].code == abi.code && kDtypes[i].bits == abi.bits) return static_cast<Dtype>(i);
  }
  return Dtype::other;
}
inline Dtype dtype_of(const rlk_tensor& tensor) noexcept {
  return dtype_of(tensor.dtype);
}
constexpr const char* name_of(Dtype dtype) noexcept {
  return kDtypes[static_cast<int>(dtype)].name;
}
// In a tensor; the smallest ones lie two in a byte.
constexpr int bits_of(Dtype dtype) noexcept {
  return kDtypes[static_cast<int>(dtype)].bits;
}
// Of an element that stands alone; 0 for what has no name here.
constexpr int64_t bytes_of(Dtype dtype) noexcept {
  return (bits_of(dtype) + 7) / 8;
}
inline rlk_dtype abi_of(Dtype dtype) noexcept {
  return {kDtypes[static_cast<int>(dtype)].code, kDtypes[static_cast<int>(dtype)].bits, 1};
}
constexpr bool is_floating(Dtype dtype) noexcept {
  return dtype <= Dtype::f64 || (dtype >= Dtype::f8_e4m3fn && dtype <= Dtype::f4_e2m1fn);
}

// A table of what the vendor has:
//   constexpr DtypeMap<int, 2> kTypes = {{{{Dtype::f32, ACME_FLOAT}, {Dtype::bf16, ACME_BF16}}}};
template <class Vendor, size_t Size>
struct DtypeMap {
  struct Row {
    Dtype dtype;
    Vendor vendor;
  };
  std::array<Row, Size> rows;

  constexpr const Vendor* find(Dtype dtype) const noexcept {
    for (const Row& row : rows) {
      if (row.dtype == dtype) return &row.vendor;
    }
    return nullptr;
  }
  // Throws for a dtype that the vendor lacks: query has declined it, or should have.
  Vendor at(Dtype dtype) const {
    if (const Vendor* vendor = find(dtype)) return *vendor;
    throw Error(RLK_UNSUPPORTED, std::string("the vendor's library has no dtype ") + name_of(dtype));
  }
};

}  // namespace rlk::sdk
