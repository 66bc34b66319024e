// Folders and files that a test makes and that are gone when it ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace rlk::testing {

class TempFolder {
public:
  TempFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "rlk-test-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "cannot make " << pattern;
    path_ = std::filesystem::canonical(pattern);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  // Each returns the full path. Modes are set whatever the umask is.
  std::string folder(const std::string& name, mode_t mode = 0755) const {
    std::string full = *this / name;
    std::filesystem::create_directories(full);
    EXPECT_EQ(chmod(full.c_str(), mode), 0);
    return full;
  }
  std::string file(const std::string& name, std::string_view content = {}, mode_t mode = 0644) const {
    std::string full = *this / name;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full, std::ios::binary) << content;
    EXPECT_EQ(chmod(full.c_str(), mode), 0);
    return full;
  }
  std::string copy(const std::string& from, const std::string& name) const {
    std::string full = *this / name;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::filesystem::copy_file(from, full, std::filesystem::copy_options::overwrite_existing);
    return full;
  }
  std::string link(const std::string& target, const std::string& name) const {
    std::string full = *this / name;
    std::filesystem::create_symlink(target, full);
    return full;
  }

private:
  std::string path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace rlk::testing
