// A file whose identity the store knows is not read again.
#include "loader/store/sha256.hpp"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include "loader/store/file.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

std::optional<std::string> sha256_of(Store* store, const std::string& path) {
  struct stat status = {};
  const UniqueFd fd = open_regular(path, &status);
  if (!fd) return std::nullopt;
  const FileIdentity identity = identity_of(status);
  const std::string name = "sha256-" + hash_bytes(to_string(identity));
  if (auto known = store->get(name)) return known;
  Sha256 hash;
  std::vector<char> piece(1 << 20);
  while (true) {
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    hash.add({piece.data(), static_cast<size_t>(got)});
  }
  const std::string text = hash.finish();
  if (is_settled(identity) && identity_of(path) == identity) store->put(name, text);
  return text;
}

}  // namespace rlk::loader
