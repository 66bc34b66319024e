// Is an implementation right where indices of 32 bits and grids run out? A call beyond 2^31 elements is made of a small
// one, whose rows are repeated in device memory until they are enough: so the small one's right answer is that of every
// repetition, and the host needs no more memory than for the small one. Only for operators whose rows, or elements, are
// calls of their own.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/conformance/examples.hpp"
#include "core/conformance/harness.hpp"
#include "core/conformance/quality.hpp"

namespace rlk::core::conformance {

struct LargeCaseRun {
  ConcreteCall call;         // the last one that was made, without values; of no declaration: none
  std::string words, title;  // of it
  std::string variant;
  std::optional<Failure> failure;
  Quality quality{};
  std::string note;  // why calls of 2^31 elements were not tried; empty: they were, or the implementation takes none
};

struct LargeOptions {
  int64_t most_elements = 0;
  double most_seconds = 0;  // that a call may be expected to take, by what smaller ones took
  std::function<bool(const std::string& title)> is_asked_for;
  std::function<void(const std::string& title)> progress;
};

// Larger and larger calls, as far as the memory of the device and the options go. Nothing for an operator that cannot
// be repeated.
std::optional<LargeCaseRun> try_large(Harness& harness, Examples& examples, const rlk_implementation& implementation,
                                      const OpDecl& decl, int dtype_choice, int form, const LargeOptions& options);

}  // namespace rlk::core::conformance
