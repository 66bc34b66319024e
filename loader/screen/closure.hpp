// Which shared libraries a plugin pulls in, where the dynamic linker would find each, and all that are missing: the
// linker itself names only the first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "loader/discover/environment.hpp"
#include "loader/screen/elf.hpp"

namespace rlk::loader {

// Where libraries are looked for, beside the RPATH and RUNPATH that the files carry.
struct LinkerCacheEntry {
  std::string name;
  std::string path;
};

struct LibrarySearch {
  std::vector<std::string> library_path;  // LD_LIBRARY_PATH
  std::string cache_file;                 // the linker's cache, /etc/ld.so.cache
  // What it says, read once for many plugins; nullptr: not read yet.
  std::shared_ptr<const std::vector<LinkerCacheEntry>> cache = {};
  std::vector<std::string> standard;  // folders that need no mention anywhere

  static LibrarySearch of_system(const Environment& environment);
};

// Of LD_LIBRARY_PATH, between colons or semicolons as the linker takes them; empty ones are dropped.
std::vector<std::string> folders_of_library_path(std::string text);

struct MissingLibrary {
  std::string name;                    // as in DT_NEEDED or DT_FILTER
  std::vector<std::string> needed_by;  // paths of the files that ask for it
  std::vector<std::string> searched;   // folders and files that were looked at, in order
};

// A file, the plugin or a library, that asks the linker to load auditors.
struct AuditedFile {
  std::string path;
  std::string auditors;
};

// A folder that a file's own RPATH, RUNPATH or auxiliary library names, and where the linker looked.
struct SearchedFolder {
  std::string path;  // as expanded; one that does not begin with / depends on the current folder
  std::string library;
  std::string needed_by;
};

struct Closure {
  std::vector<std::string> found;  // paths, breadth first; the plugin itself is not among them
  std::vector<MissingLibrary> missing;
  std::vector<SearchedFolder> folders;  // each once
  std::vector<AuditedFile> audited;
};

// `path` is the canonical path of the file that `info` was read from. Follows the rules of ld.so(8) but for
// libraries the process has already loaded and LD_PRELOAD.
Closure resolve_closure(const std::string& path, const ElfInfo& info, const LibrarySearch& search);

// "libx.so.1 (needed by /a/liby.so; searched /lib, /usr/lib), libz.so.2 (...)"
std::string describe_missing(const std::vector<MissingLibrary>& missing);

// name -> paths, in the order of the linker's cache file; empty when the file cannot be understood.
std::vector<LinkerCacheEntry> read_linker_cache(const std::string& file);

}  // namespace rlk::loader
