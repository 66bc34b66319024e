// SHA-256 of files: what an allow-list names a file by must not be forged.
#pragma once

#include <rlk/sdk/sha256.hpp>

#include <optional>
#include <string>

namespace rlk::loader {

using sdk::Sha256;

class Store;
// Of a file, kept in the store by the file's identity as content_hash is. Nothing when it cannot be read.
std::optional<std::string> sha256_of(Store* store, const std::string& path);

}  // namespace rlk::loader
