// The dtypes of the declarations: names, sizes, and DLPack's codes for them.
#include "core/declaration/validate.hpp"

namespace rlk::core {
namespace {

struct Row {
  const char* name;
  uint8_t code;
  uint8_t bits;
};
// In the order of Dtype.
constexpr Row kRows[] = {
    {"f32", RLK_DTYPE_FLOAT, 32}, {"bf16", RLK_DTYPE_BFLOAT, 16}, {"f16", RLK_DTYPE_FLOAT, 16},
    {"f64", RLK_DTYPE_FLOAT, 64}, {"i32", RLK_DTYPE_INT, 32},     {"i64", RLK_DTYPE_INT, 64},
    {"u8", RLK_DTYPE_UINT, 8},
};
constexpr int kCount = sizeof(kRows) / sizeof(kRows[0]);

const Row& row(Dtype dtype) {
  return kRows[static_cast<int>(dtype)];
}

}  // namespace

const char* name_of(Dtype dtype) {
  return row(dtype).name;
}

int64_t size_of(Dtype dtype) {
  return row(dtype).bits / 8;
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

}  // namespace rlk::core
