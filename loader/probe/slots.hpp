// Has a plugin filled in every function that its kind must have, and does its list of operators make sense?
#pragma once

#include <rlk/abi.h>

#include <string>
#include <vector>

namespace rlk::loader {

// Every required slot that is missing, every table that is too short, every contradiction, in one text that names each
// as the header does ("rlk_stream_api.copy"). Empty when all is there. Reads tables only, calls nothing.
std::string check_slots(const rlk_plugin& plugin);

}  // namespace rlk::loader
