// A case that was tried, as people look at it.
#pragma once

#include <optional>
#include <string>

#include "core/conformance/case_run.hpp"
#include "core/conformance/shown_case.hpp"

namespace rlk::core::conformance {

ShownCase shown(const std::string& title, const std::string& variant, const std::optional<Failure>& failure,
                const Seen& seen);

}  // namespace rlk::core::conformance
