// What dtypes are called in texts, known here or not.
#include <cstdio>

#include "core/declaration/bind.hpp"
#include "core/declaration/validate.hpp"

namespace rlk::core {
namespace {

// DLPack 1.1's codes, for dtypes of which only the name is known here.
enum Code : uint8_t { kInt = 0, kUint = 1, kComplex = 5 };

// Names of what no operator here takes, for texts.
constexpr sdk::DtypeRow kOthers[] = {
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

}  // namespace

int64_t size_of(Dtype dtype) {
  return sdk::bytes_of(dtype);
}

bool dtype_from(rlk_dtype abi, Dtype& out) {
  out = sdk::dtype_of(abi);
  return out != Dtype::other;
}

bool dtype_from(std::string_view name, Dtype& out) {
  for (int i = 0; i < static_cast<int>(Dtype::other); ++i) {
    if (name != sdk::kDtypes[i].name) continue;
    out = static_cast<Dtype>(i);
    return true;
  }
  return false;
}

std::string text_of_dtype(rlk_dtype dtype) {
  Dtype known;
  if (dtype_from(dtype, known)) return name_of(known);
  for (const sdk::DtypeRow& other : kOthers) {
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
