// File, ELF, ABI note, libraries, policy: the first check that fails gives the reason.
#include "loader/screen/screen.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>

namespace rlk::loader {
namespace {

std::string_view hint_of_path(int error) {
  if (error == ENOENT)
    return "the file is gone, or a symbolic link that leads nowhere: remove it, or install the plugin";
  if (error == ELOOP) return "symbolic links lead in a circle: name the shared object itself";
  return {};
}

class Screen {
public:
  Screen(PluginRecord* record, const ScreenOptions& options) : record_(*record), options_(options) {}

  std::optional<Screened> run() {
    if (!check_file() || !check_elf() || !check_note() || !check_closure() || !check_policy()) return std::nullopt;
    record_.advance(State::screened, Place::static_screen);
    return std::move(screened_);
  }

private:
  bool reject(const Reason& why, std::string text, std::string_view better_hint = {}) {
    record_.stop(State::rejected, Place::static_screen, why, std::move(text), std::string(better_hint));
    return false;
  }

  bool check_file() {
    char canonical[PATH_MAX];
    if (realpath(record_.path.c_str(), canonical) == nullptr)
      return reject(reason::kFileUnreadable, record_.path + ": " + errno_text(errno), hint_of_path(errno));
    if (record_.path != canonical) record_.notes.push_back(fmt::format("{} leads to {}", record_.path, canonical));
    // From here on the canonical path is used and loaded: changing a symbolic link later has no effect.
    record_.path = canonical;
    struct stat status = {};
    file_ = open_regular(record_.path, &status);
    if (!file_ && (errno == ENOTSUP || errno == ENXIO))  // ENXIO: a socket
      return reject(reason::kNotRegularFile, record_.path + " is a folder, a pipe, a socket or a device");
    if (!file_) return reject(reason::kFileUnreadable, record_.path + ": " + errno_text(errno), hint_of_path(errno));
    screened_.identity = identity_of(status);
    if (screened_.identity.size > kMaxPluginBytes)
      return reject(reason::kFileTooLarge, fmt::format("{} has {} bytes; at most {} are accepted", record_.path,
                                                       screened_.identity.size, kMaxPluginBytes));
    TrustResult trust = check_trust(record_.path, options_.identity);
    record_.notes.insert(record_.notes.end(), trust.notes.begin(), trust.notes.end());
    return trust.problem == nullptr || reject(*trust.problem, std::move(trust.text));
  }

  bool check_elf() {
    ElfResult elf = read_elf(source_of_fd(file_.get(), screened_.identity.size));
    info_ = std::move(elf.info);
    switch (elf.status) {
      case ElfStatus::ok:
        break;
      case ElfStatus::not_elf:
        return reject(reason::kNotElf, record_.path + ": " + elf.error);
      case ElfStatus::damaged:
        return reject(reason::kElfDamaged, record_.path + ": " + elf.error);
      case ElfStatus::foreign:
        return wrong_machine(": " + elf.error);
    }
    if (info_.machine != kHostMachine) return wrong_machine("");
    constexpr uint16_t kSharedObject = 3;
    if (info_.type != kSharedObject)
      return reject(reason::kNotElf,
                    fmt::format("{} is ELF type {}, not a shared object (type 3)", record_.path, info_.type));
    screened_.build_id = info_.build_id;
    return true;
  }

  bool wrong_machine(const std::string& detail) {
    return reject(reason::kWrongMachine, fmt::format("{} is built for {}; this machine is {}{}", record_.path,
                                                     machine_name(info_.machine), machine_name(kHostMachine), detail));
  }

  bool check_note() {
    const std::string* text = find_abi_note(info_);
    std::string error;
    auto note = text == nullptr ? std::nullopt : parse_abi_note(*text, &error);
    const bool has_entry = std::find(info_.exports.begin(), info_.exports.end(), kEntrySymbol) != info_.exports.end();
    if (!has_entry) {
      const bool other_major = note && note->abi.major != options_.host_abi.major;  // its entry then has another name
      return reject(reason::kEntrySymbolMissing,
                    fmt::format("{} exports {} names, but not {}{}", record_.path, info_.exports.size(), kEntrySymbol,
                                other_major ? "; " + abi_mismatch(note->abi) : ""),
                    other_major ? reason::kAbiMismatch.hint : "");
    }
    if (text == nullptr)
      return reject(reason::kAbiNoteMissing, fmt::format("{} has {} ELF notes, none of name \"rlk\" and type 1",
                                                         record_.path, info_.notes.size()));
    if (!note) return reject(reason::kAbiNoteInvalid, record_.path + ": " + error);
    record_.id = note->id;
    record_.backend = note->backend;
    record_.version = note->version;
    record_.abi = abi_text(note->abi);
    screened_.declared_env = std::move(note->env);
    screened_.declared_files = std::move(note->files);
    // Minor versions are settled by the two sides themselves when they meet; these two can never work.
    const AbiVersion& host = options_.host_abi;
    if (note->abi.major != host.major || note->abi.draft != host.draft)
      return reject(reason::kAbiMismatch, abi_mismatch(note->abi));
    return true;
  }

  std::string abi_mismatch(const AbiVersion& plugin) const {
    const AbiVersion& host = options_.host_abi;
    return fmt::format("the plugin is built for ABI {}{}, this host speaks {}{}", abi_text(plugin), draft(plugin),
                       abi_text(host), draft(host));
  }

  static std::string draft(const AbiVersion& abi) { return abi.draft == 0 ? "" : fmt::format(" draft {}", abi.draft); }

  bool check_closure() {
    Closure closure = resolve_closure(record_.path, info_, options_.libraries);
    screened_.dependencies = std::move(closure.found);
    if (closure.missing.empty()) return check_libraries(closure);
    for (const MissingLibrary& library : closure.missing)
      record_.evidence.push_back({"runtime_library", library.name, false});
    return reject(
        reason::kRuntimeLibraryMissing,
        (closure.missing.size() == 1 ? "1 shared library is missing: "
                                     : fmt::format("{} shared libraries are missing: ", closure.missing.size())) +
            describe_missing(closure.missing));
  }

  // What is loaded with the plugin runs as the plugin does.
  bool check_libraries(const Closure& closure) {
    std::string text;
    const auto add = [&text](const std::string& one) { text += (text.empty() ? "" : "; ") + one; };
    for (const SearchedFolder& folder : closure.folders) {
      const std::string asked = fmt::format(" is searched for {}, which {} needs", folder.library, folder.needed_by);
      if (folder.path.empty() || folder.path.front() != '/') {
        add(fmt::format("the {}{}, and depends on where the process was started",
                        folder.path.empty() ? "current folder" : "folder '" + folder.path + "'", asked));
        continue;
      }
      if (const TrustResult trust = check_place(folder.path, options_.identity); trust.problem != nullptr)
        add(fmt::format("{}{}: {}", folder.path, asked, trust.text));
    }
    for (const AuditedFile& file : closure.audited)
      add(
          fmt::format("{} has the linker load auditors, {}, which see every call between libraries (DT_AUDIT); link it "
                      "without --audit and --depaudit",
                      file.path, file.auditors));
    for (const std::string& library : screened_.dependencies) {
      char canonical[PATH_MAX];
      if (realpath(library.c_str(), canonical) == nullptr) continue;  // gone since: the linker will say so
      if (const TrustResult trust = check_trust(canonical, options_.identity); trust.problem != nullptr)
        add(fmt::format("the plugin needs {}: {}", library, trust.text));
    }
    return text.empty() || reject(reason::kLibraryUntrusted, text);
  }

  bool check_policy() {
    const auto refusal = options_.refuse ? options_.refuse(record_) : std::nullopt;
    return !refusal || reject(reason::kNotAllowed, *refusal);
  }

  PluginRecord& record_;
  const ScreenOptions& options_;
  UniqueFd file_;
  ElfInfo info_;
  Screened screened_;
};

}  // namespace

std::optional<Screened> screen(PluginRecord* record, const ScreenOptions& options) {
  return Screen(record, options).run();
}

}  // namespace rlk::loader
