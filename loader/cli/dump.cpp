// A case's folder: NAME.npy for inputs, NAME.got.npy and NAME.expected.npy for outputs, and case.txt.
#include "loader/cli/dump.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cctype>
#include <cerrno>
#include <cstring>

#include "loader/cli/npy.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verb.hpp"

namespace rlk::cli {
namespace {

constexpr int kMostCases = 16;
constexpr size_t kLongestName = 200;  // of a folder, in bytes

// "logp fused bf16 N=5,V=37" as the name of a folder.
std::string folder_name(const core::ShownCase& shown) {
  std::string name = shown.title + (shown.variant.empty() ? "" : "_" + shown.variant);
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("=,.-+", c) != nullptr;
    if (!plain) c = '_';
  }
  if (name.size() > kLongestName) name.resize(kLongestName);
  return name;
}

void make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) == 0) return;
  const int error = errno;
  struct stat found = {};
  if (stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return;
  throw UsageError(fmt::format("{}: cannot be made: {}", path, std::strerror(error)));
}

// Elements of less than a byte, and dtypes that .npy has no word for, have a byte each.
std::string file_of(const core::ShownTensor& tensor) {
  using Role = core::ShownTensor::Role;
  return fmt::format("{}{}.npy", tensor.name,
                     tensor.role == Role::got        ? ".got"
                     : tensor.role == Role::expected ? ".expected"
                                                     : "");
}

void write_tensor(const std::string& path, const core::ShownTensor& tensor) {
  Array array(tensor.dtype, tensor.shape);
  if (array.bytes() != tensor.bytes.size()) {  // packed dtypes: a byte for each element here
    array = Array(core::Dtype::u8, tensor.shape);
    if (array.bytes() != tensor.bytes.size()) return;
  }
  if (!tensor.bytes.empty()) std::memcpy(array.data(), tensor.bytes.data(), tensor.bytes.size());
  write_npy(path, array);
}

}  // namespace

void require_folder(const std::string& path) {
  make_folder(path);
}

void Dump::add(const core::ShownCase& shown) {
  if (written_ == kMostCases) return;
  const std::string folder = folder_ + "/" + folder_name(shown);
  make_folder(folder);
  std::string text = shown.title + "\n";
  if (!shown.variant.empty()) text += "variant " + shown.variant + "\n";
  text += shown.code.empty() ? "passed\n" : fmt::format("{}: {}\n", shown.code, shown.reason);
  std::string command = "rlk-plugins run " + shown.op;
  for (const std::string& param : shown.params) command += " --param " + shell_word(param);
  for (const core::ShownTensor& tensor : shown.tensors) {
    write_tensor(folder + "/" + file_of(tensor), tensor);
    if (tensor.role == core::ShownTensor::Role::input)
      command += fmt::format(" --input {}={}", tensor.name, file_of(tensor));
    if (tensor.role == core::ShownTensor::Role::expected)
      command += fmt::format(" --output {}={}.npy", tensor.name, tensor.name);
  }
  text += "\nThe same call of the registered plugins, its tensors without gaps:\n  " + command + "\n";
  write_whole(folder + "/case.txt", {text});
  ++written_;
}

}  // namespace rlk::cli
