// The Ascend plugin as a host sees it.
#pragma once

#include "framework/loaded_plugin.hpp"

namespace ascend_plugin {

using rlk::test::Loaded;
using rlk::test::no_error;

}  // namespace ascend_plugin
