// How large the elements of a dtype are, and a vendor's numbers for dtypes.
#pragma once

#include <rlk/sdk/call.hpp>

#include <array>

namespace rlk::sdk {

// 0 for what has no name here.
constexpr int64_t bytes_of(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::f64:
    case Dtype::i64:
      return 8;
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::bf16:
    case Dtype::f16:
      return 2;
    case Dtype::u8:
      return 1;
    default:
      return 0;
  }
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
