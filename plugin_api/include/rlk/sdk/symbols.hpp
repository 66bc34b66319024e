// Binding a vendor's runtime by name. A plugin that links to no runtime can say everything that is missing in one text,
// on machines where half of it is there. Libraries stay open: runtimes start threads and do not come back from dlclose.
//
//   Symbols symbols;
//   void* library = symbols.require_library({"libacme.so.2", "libacme.so"});
//   symbols.require(library, "acmeInit", table.init);    // null and remembered when it is not there
//   symbols.find(library, "acmeGraph", table.graph);     // null: what needs it is not offered
//   if (!symbols.complete()) ... symbols.problem() ...
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace rlk::sdk {

class Symbols {
public:
  // The first of the names that loads, in this order; nullptr when none does. `aside` are folders to look in after the
  // loader's own places, for processes that were started without the vendor's environment.
  void* find_library(const std::vector<std::string>& names, const std::vector<std::string>& aside = {}) {
    why_.clear();
    for (const std::string& name : names) {
      if (void* library = open(name)) return library;
    }
    for (const std::string& folder : aside) {
      for (const std::string& name : names) {
        if (void* library = open(folder + "/" + name)) return library;
      }
    }
    return nullptr;
  }
  // The same, remembered as missing under every name that was tried, with the loader's words when a file is there and
  // does not load.
  void* require_library(const std::vector<std::string>& names, const std::vector<std::string>& aside = {}) {
    void* library = find_library(names, aside);
    if (library != nullptr) return library;
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : " or ") + name;
    append(missing_libraries_, text + (why_.empty() ? "" : " (" + why_ + ")"));
    return nullptr;
  }

  // Sets `function`; false, and null, when the library is null or lacks the name.
  template <class Function>
  bool find(void* library, const char* name, Function*& function) {
    function = library != nullptr ? reinterpret_cast<Function*>(dlsym(library, name)) : nullptr;
    return function != nullptr;
  }
  // Functions of a library that is missing itself are not counted.
  template <class Function>
  bool require(void* library, const char* name, Function*& function) {
    if (find(library, name, function)) return true;
    if (library != nullptr) append(missing_functions_, name);
    return false;
  }

  bool complete() const { return missing_libraries_.empty() && missing_functions_.empty(); }
  const std::string& missing_libraries() const { return missing_libraries_; }  // "libacme.so.2 or libacme.so"
  const std::string& missing_functions() const { return missing_functions_; }  // "acmeInit, acmeLaunch"
  // Everything that is missing, in one line; empty when nothing is.
  std::string problem() const {
    std::string text;
    if (!missing_libraries_.empty()) append(text, "cannot open " + missing_libraries_);
    if (!missing_functions_.empty()) append(text, "the runtime lacks " + missing_functions_);
    return text;
  }

  // Of the library that a function came from, links resolved; empty when it cannot be told.
  template <class Function>
  static std::string path_of(Function* function) {
    Dl_info info = Dl_info();
    if (function == nullptr || dladdr(reinterpret_cast<void*>(function), &info) == 0) return {};
    if (info.dli_fname == nullptr) return {};
    char* real = realpath(info.dli_fname, nullptr);
    std::string path = real != nullptr ? real : info.dli_fname;
    std::free(real);
    return path;
  }

private:
  static void append(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

  void* open(const std::string& name) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* text = dlerror();
    const std::string said = text != nullptr ? text : "";
    if (said.rfind(name + ": cannot open", 0) != 0) why_ = said;  // anything but "there is no such file"
    return nullptr;
  }

  std::string missing_libraries_, missing_functions_;
  std::string why_;  // the last file that was there and did not load
};

}  // namespace rlk::sdk
