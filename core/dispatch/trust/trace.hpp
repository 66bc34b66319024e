// A trace of which plugin code is about to run for the first time, left so that a later process can tell why this one
// ended. Core keeps none: the loader brings the function.
#pragma once

#include <rlk/abi.h>

#include <functional>
#include <memory>
#include <string_view>

namespace rlk::core {

struct FirstUse {
  std::string_view plugin;
  std::string_view op;  // "" is everything of the plugin
  std::string_view implementation;
  std::string_view dtype;
  std::string_view phase;           // what is about to run: "plan_create"
  const rlk_plugin* api = nullptr;  // the plugin's generation, where it is known: it is not before the entry ran
};

// The code has returned when it dies.
using Trace = std::shared_ptr<void>;

// An earlier tracer is kept: a call may still be inside it. [thread-safe]
void set_tracer(std::function<Trace(const FirstUse&)> tracer);
// nullptr without a tracer. [thread-safe]
Trace trace(const FirstUse& use) noexcept;

}  // namespace rlk::core
