// Which calls stand for a smoke test whose every case the build's tests have tried?
#pragma once

#include "core/conformance/cases.hpp"

namespace rlk::core::conformance {

// How good a call is as a canary. It has rows and columns, ordinary numbers, no option that its variant can do without,
// and is as large as it can be without taking long: so large that it fills vectors and leaves a tail.
int64_t worth_as_canary(const Case& c, const ConcreteCall& call);

// The classes that the case would prove of an implementation that claims them: what case_run.cpp does with it.
uint32_t earned_by(const Case& c, const ConcreteCall& call, uint32_t claimed);

}  // namespace rlk::core::conformance
