// NumPy's .npy files, versions 1 to 3, little-endian. bf16, which NumPy does not have, is stored as
// '<V2', as the package ml_dtypes does it.
#pragma once

#include <string>
#include <string_view>

#include "loader/cli/array.hpp"

namespace rlk::cli {

struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<int64_t> shape;
  uint64_t data_offset = 0;  // bytes from the begin of the file
};

// From the first bytes of a file (all of it, or enough to hold the header). Throws UsageError saying what was seen.
NpyHeader parse_npy_header(std::string_view bytes);

// Reads a file; `wanted` is the dtype that the words on the command line ask for (a cast, and for 16-bit words the
// meaning bf16 or u16). Nothing is allocated for more than the file holds. Throws UsageError naming the file.
Array read_npy(const std::string& path, std::optional<core::Dtype> wanted);

// Row-major, version 1. Where and how: write_whole (place.hpp). Throws Failure naming the file.
void write_npy(const std::string& path, const Array& array);

}  // namespace rlk::cli
