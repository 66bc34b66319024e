// The dtypes of the declarations: names, sizes, and DLPack's codes for them.
#include <cstdio>

#include "core/declaration/bind.hpp"
#include "core/declaration/validate.hpp"

namespace rlk::core {
namespace {

// DLPack 1.1's codes that a declaration may name, and those of which only the name is known here.
enum Code : uint8_t {
  kInt = 0,
  kUint = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4m3fn = 10,
  kFloat8E5m2 = 12,
  kFloat4E2m1fn = 17,
};

struct Row {
  const char* name;
  uint8_t code;
  uint8_t bits;
};
// In the order of Dtype.
constexpr Row kRows[] = {
    {"f32", kFloat, 32},
    {"bf16", kBfloat, 16},
    {"f16", kFloat, 16},
    {"f64", kFloat, 64},
    {"i32", kInt, 32},
    {"i64", kInt, 64},
    {"u8", kUint, 8},
    {"i8", kInt, 8},
    {"i16", kInt, 16},
    {"u16", kUint, 16},
    {"u32", kUint, 32},
    {"u64", kUint, 64},
    {"bool", kBool, 8},
    {"f8_e4m3fn", kFloat8E4m3fn, 8},
    {"f8_e5m2", kFloat8E5m2, 8},
    {"f4_e2m1fn", kFloat4E2m1fn, 4},
};
constexpr int kCount = sizeof(kRows) / sizeof(kRows[0]);
static_assert(kCount == static_cast<int>(Dtype::f4_e2m1fn) + 1);

// Names of what no operator here takes, for texts.
constexpr Row kOthers[] = {
    {"complex64", kComplex, 64},
    {"complex128", kComplex, 128},
    {"complex32", kComplex, 32},
    {"f8_e3m4", 7, 8},
    {"f8_e4m3", 8, 8},
    {"f8_e4m3b11fnuz", 9, 8},
    {"f8_e4m3fnuz", 11, 8},
    {"f8_e5m2fnuz", 13, 8},
    {"f8_e8m0fnu", 14, 8},
    {"f6_e2m3fn", 15, 6},
    {"f6_e3m2fn", 16, 6},
    {"u4", kUint, 4},
    {"i4", kInt, 4},
};

const Row& row(Dtype dtype) {
  return kRows[static_cast<int>(dtype)];
}

}  // namespace

const char* name_of(Dtype dtype) {
  return row(dtype).name;
}

int64_t size_of(Dtype dtype) {
  return (row(dtype).bits + 7) / 8;
}

int bits_of(Dtype dtype) {
  return row(dtype).bits;
}

bool is_floating(Dtype dtype) {
  const uint8_t code = row(dtype).code;
  return code == kFloat || code == kBfloat || code == kFloat8E4m3fn || code == kFloat8E5m2 || code == kFloat4E2m1fn;
}

rlk_dtype abi_of(Dtype dtype) {
  return {row(dtype).code, row(dtype).bits, 1};
}

bool dtype_from(rlk_dtype abi, Dtype& out) {
  for (int i = 0; i < kCount; ++i) {
    if (abi.lanes == 1 && abi.code == kRows[i].code && abi.bits == kRows[i].bits) {
      out = static_cast<Dtype>(i);
      return true;
    }
  }
  return false;
}

bool dtype_from(std::string_view name, Dtype& out) {
  for (int i = 0; i < kCount; ++i) {
    if (name == kRows[i].name) {
      out = static_cast<Dtype>(i);
      return true;
    }
  }
  return false;
}

std::string text_of_dtype(rlk_dtype dtype) {
  Dtype known;
  if (dtype_from(dtype, known)) return name_of(known);
  for (const Row& other : kOthers) {
    if (dtype.lanes == 1 && dtype.code == other.code && dtype.bits == other.bits) return other.name;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "unknown (DLPack code %d, %d bits, %d lanes)", dtype.code, dtype.bits, dtype.lanes);
  return text;
}

size_t unit_dtype_count(const OpDecl& decl) {
  return decl.dtypes.empty() ? 1 : decl.dtypes[0].choices.size();
}

const char* unit_dtype_name(const OpDecl& decl, size_t choice) {
  return decl.dtypes.empty() ? "" : name_of(decl.dtypes[0].choices[choice].dtype);
}

}  // namespace rlk::core
