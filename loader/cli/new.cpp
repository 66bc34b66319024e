// `rlk-plugins new`: a new plugin to begin with, copied from the template that ships with rlk.
#include <fmt/core.h>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "loader/cli/documents.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/discover.hpp"

#ifndef RLK_TEMPLATE_DIR
#error "RLK_TEMPLATE_DIR, where the plugin template will be installed, must be defined by the build"
#endif

namespace rlk::cli {
namespace {

namespace fs = std::filesystem;

// The template is a plugin that builds as it is, under this name in its three spellings.
constexpr const char* kTemplateName = "acme";

std::string upper(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// "acme_x1" to "AcmeX1".
std::string camel(const std::string& name) {
  std::string out;
  bool begin = true;
  for (const char c : name) {
    if (c == '_') {
      begin = true;
      continue;
    }
    out += begin ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begin = false;
  }
  return out;
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::string substituted(const std::string& text, const std::string& name) {
  return replace_all(replace_all(replace_all(text, kTemplateName, name), camel(kTemplateName), camel(name)),
                     upper(kTemplateName), upper(name));
}

// The folder that rlk is installed or built into.
fs::path prefix() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
}

// The package that find_package(rlk) reads, in any library folder below.
bool has_package(const fs::path& folder) {
  std::error_code error;
  for (const fs::path& base : {folder / "lib", folder / "lib64"}) {
    if (fs::exists(base / "cmake/rlk/rlkConfig.cmake", error)) return true;
    for (const fs::directory_entry& entry : fs::directory_iterator(base, error))
      if (fs::exists(entry.path() / "cmake/rlk/rlkConfig.cmake", error)) return true;
  }
  return false;
}

// The folder where the new plugin's CMake finds rlk. A build tree is none: `install` is the command that makes one.
fs::path package_prefix(std::string* install) {
  fs::path own = prefix();
  if (has_package(own)) return own;
  std::error_code error;
  if (!fs::exists(own / "CMakeCache.txt", error)) return "/where/rlk/is/installed";
  fs::path installed = own.parent_path() / "install";
  *install =
      fmt::format("  cmake --install {} --prefix {}\n", shell_word(own.string()), shell_word(installed.string()));
  return installed;
}

// Of the plugin, or with "_wheel" what makes a wheel of it.
fs::path find_template(const std::string& suffix) {
  std::error_code error;
  for (const fs::path& folder : {prefix() / "share/rlk/template", fs::path(RLK_TEMPLATE_DIR)})
    if (fs::is_directory(folder.string() + suffix, error)) return folder.string() + suffix;
  throw Failure(fmt::format("the plugin template is not installed at {}{}", RLK_TEMPLATE_DIR, suffix));
}

void copy_template(const fs::path& source, const std::string& name, const fs::path& target,
                   std::vector<std::string>* files) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source)) {
    if (!entry.is_regular_file()) continue;
    const fs::path relative = substituted(entry.path().lexically_relative(source).string(), name);
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    fs::create_directories((target / relative).parent_path());
    std::ofstream out(target / relative, std::ios::binary);
    out << substituted(text.str(), name);
    out.close();
    if (!in || !out) throw Failure((target / relative).string() + " could not be written");
    fs::permissions(target / relative, entry.status().permissions());
    files->push_back((target / relative).string());
  }
}

void check_name(const std::string& name) {
  constexpr size_t kMost = 64;
  if (name.size() > kMost)
    throw UsageError(fmt::format("new {}...: the name has {} characters; at most {} are possible", name.substr(0, 16),
                                 name.size(), kMost));
  bool good = std::isalpha(static_cast<unsigned char>(name.empty() ? '0' : name[0])) != 0;
  for (const char c : name) good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
  if (!good) throw UsageError("new " + name + ": expected a name of a-z, 0-9 and _ that begins with a letter");
}

// The plugins that come with rlk: one by these names would be shadowed by them, or shadow them.
constexpr const char* kTaken[] = {"cpu", "cuda", "rocm", "maca", "ascend", "cambricon"};
// The name becomes a namespace of C++.
constexpr const char* kWords[] = {"alignas",       "alignof",      "and",
                                  "and_eq",        "asm",          "auto",
                                  "bitand",        "bitor",        "bool",
                                  "break",         "case",         "catch",
                                  "char",          "char8_t",      "char16_t",
                                  "char32_t",      "class",        "compl",
                                  "concept",       "const",        "consteval",
                                  "constexpr",     "constinit",    "const_cast",
                                  "continue",      "co_await",     "co_return",
                                  "co_yield",      "decltype",     "default",
                                  "delete",        "do",           "double",
                                  "else",          "enum",         "explicit",
                                  "export",        "extern",       "false",
                                  "float",         "for",          "friend",
                                  "goto",          "if",           "inline",
                                  "int",           "long",         "mutable",
                                  "namespace",     "new",          "noexcept",
                                  "not",           "not_eq",       "nullptr",
                                  "operator",      "or",           "or_eq",
                                  "private",       "protected",    "public",
                                  "register",      "requires",     "return",
                                  "rlk",           "short",        "signed",
                                  "sizeof",        "static",       "std",
                                  "struct",        "switch",       "template",
                                  "this",          "throw",        "true",
                                  "try",           "typedef",      "typeid",
                                  "typename",      "union",        "unsigned",
                                  "using",         "virtual",      "void",
                                  "volatile",      "wchar_t",      "while",
                                  "xor",           "xor_eq",       "static_cast",
                                  "static_assert", "thread_local", "reinterpret_cast",
                                  "dynamic_cast",  "linux",        "unix",
                                  "main",          "errno"};

void refuse_clash(const std::string& name) {
  for (const char* taken : kTaken) {
    if (name == taken)
      throw UsageError(fmt::format("new {}: rlk's own plugin has that id; choose another, such as my_{}", name, name));
  }
  for (const char* word : kWords) {
    if (name == word)
      throw UsageError("new " + name + ": the name becomes a C++ namespace, and this one cannot be one");
  }
  for (const auto& record : loader::discover(loader::Environment::of_process(), {{}, loader::default_folders()})) {
    if (!record.is_place && record.id == name)
      throw UsageError(fmt::format("new {}: {} has that id already; choose another, or take it out of the search", name,
                                   record.path));
  }
}

// Throws UsageError where something is there already, or no folder can be.
void make_target(const fs::path& target) {
  std::error_code error;
  const fs::file_status there = fs::symlink_status(target, error);
  if (fs::exists(there)) throw UsageError(target.string() + " exists already; choose another name or --folder");
  fs::create_directories(target, error);
  if (error)
    throw UsageError(fmt::format("{}: the folder cannot be made: {}; choose another place with --folder",
                                 target.string(), error.message()));
}

int run_new(const Arguments& arguments) {
  const std::string name = arguments.operand(0);
  check_name(name);
  refuse_clash(name);
  const fs::path target = arguments.value("folder", name);
  make_target(target);
  std::vector<std::string> files;
  copy_template(find_template(""), name, target, &files);
  if (arguments.has("wheel")) copy_template(find_template("_wheel"), name, target, &files);
  if (arguments.json()) {
    const nlohmann::ordered_json out = {{"schema", 1}, {"name", name}, {"folder", target.string()}, {"files", files}};
    print_document(out);
    return kFine;
  }
  for (const std::string& file : files) std::fprintf(output(), "%s\n", file.c_str());
  const std::string folder = target.string();
  const std::string build = shell_word(folder + "/build");
  std::string install;
  const std::string found = shell_word("-DCMAKE_PREFIX_PATH=" + package_prefix(&install).string());
  std::string next = fmt::format(
      "\nnext:\n{}  cmake -S {} -B {} {} && cmake --build {}\n  rlk-plugins conformance {}\n", install,
      shell_word(folder), build, found, build, shell_word(fmt::format("{}/build/librlk_plugin_{}.so", folder, name)));
  if (arguments.has("wheel"))
    next += fmt::format("  pip wheel --no-deps --no-build-isolation -w {} {}\n", shell_word(folder + "/dist"),
                        shell_word(folder + "/"));
  std::fprintf(output(), "%s", next.c_str());
  return kFine;
}

}  // namespace

Verb verb_new() {
  return {"new",
          "Makes the folder of a new plugin that builds, loads and passes conformance: the place to begin.",
          "",
          "rlk-plugins new acme",
          {{"NAME", true}},
          {{"folder", "PATH", "where to put it, ./NAME by default"},
           {"wheel", nullptr, "with what pip makes a wheel of it, which rlk finds once it is installed"}},
          run_new};
}

}  // namespace rlk::cli
