// From the call of a backward to that of its forward, and back: what both have by the same name.
#pragma once

namespace rlk::sdk {

// Outputs are left alone.
template <class Forward, class Backward>
Forward forward_of(const Backward& call) {
  Forward forward;
  Backward::each_of_forward(call, forward, [](const auto& own, auto& its) { its = own; });
  return forward;
}

// Outputs, and what only the backward has, are left alone.
template <class Backward, class Forward>
Backward backward_of(const Forward& call) {
  Backward backward;
  Backward::each_of_forward(backward, call, [](auto& own, const auto& its) { own = its; });
  return backward;
}

}  // namespace rlk::sdk
