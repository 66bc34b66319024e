// Cases of the conformance suite as files: a folder each, with the tensors as .npy.
#pragma once

#include <string>

#include "core/conformance/shown_case.hpp"

namespace rlk::cli {

// Throws UsageError when the folder is a file, or cannot be made.
void require_folder(const std::string& path);

class Dump {
public:
  explicit Dump(std::string folder) : folder_(std::move(folder)) {}
  // Of the first cases only: what does not show in so many is not looked for in more. Throws Failure.
  void add(const core::ShownCase& shown);

private:
  std::string folder_;
  int written_ = 0;
};

}  // namespace rlk::cli
