// What a probe begins with: what variables say of it, and the built-in's record.
#include <string>

#include "loader/discover/builtin.hpp"
#include "loader/probe/probe.hpp"

namespace rlk::loader {

bool probe_mode_of(const Environment& environment, ProbeMode* mode) {
  *mode = ProbeMode::isolated;
  const std::string value = environment.get("RLK_PROBE").value_or("isolated");
  if (value == "inprocess") *mode = ProbeMode::inprocess;
  if (value == "off") *mode = ProbeMode::off;
  return value == "isolated" || *mode != ProbeMode::isolated;
}

bool is_eager_of(const Environment& environment, bool* eager) {
  const std::string value = environment.get("RLK_VERIFY").value_or("lazy");
  *eager = value == "eager";
  return *eager || value == "lazy";
}

bool is_eager(const Environment& environment) {
  bool eager = false;
  is_eager_of(environment, &eager);
  return eager;
}

PluginRecord built_in_record(std::string_view id) {
  PluginRecord record;
  record.id = id;
  record.backend = id;
  record.source = kBuiltInSource;
  record.advance(State::discovered, Place::static_screen);
  return record;
}

}  // namespace rlk::loader
