// Where is this code itself? What is installed with it is found from there.
#pragma once

#include <string>

namespace rlk::loader {

// The canonical folder of the file this code was loaded from: of librlk, or of a program with rlk inside. Empty when it
// cannot be found out.
std::string own_folder();

}  // namespace rlk::loader
