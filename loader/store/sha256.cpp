// A file whose identity the store knows is not read again.
#include "loader/store/sha256.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>
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
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  constexpr int64_t kSettledNs = 2'000'000'000;  // the next change might leave the same times
  const bool settled =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - identity.changed_ns > kSettledNs;
  if (settled && identity_of(path) == identity) store->put(name, text);
  return text;
}

}  // namespace rlk::loader
