// Every reason the loader gives for a state, in one list: which codes exist, what they mean, what to do about them.
// The codes are public (`rlk-plugins list --json`, scripts, tests): a code is never renamed or reused.
#pragma once

#include <string_view>

namespace rlk::loader {

struct Reason {
  std::string_view code;
  std::string_view meaning;
  std::string_view hint;  // used when the place that found the problem has no better one
  bool broken;            // a fault that the user must fix; not absent hardware, not the user's choice
};

// X(constant, code, broken, meaning, default hint)
#define RLK_LOADER_REASONS(X)                                                                                         \
  /* discover */                                                                                                      \
  X(kFolderMissing, "FOLDER_MISSING", true, "A named file or folder does not exist.",                                 \
    "create it, or correct the variable that names it")                                                               \
  X(kFolderUnreadable, "FOLDER_UNREADABLE", true, "A named folder cannot be read.",                                   \
    "grant this user read and search permission on the folder")                                                       \
  X(kPathNotAbsolute, "PATH_NOT_ABSOLUTE", true, "A named path is relative; the current folder is never searched.",   \
    "write the path from the root, starting with /")                                                                  \
  X(kSearchReplaced, "SEARCH_REPLACED", false,                                                                        \
    "RLK_PLUGIN_PATH replaces the default search that would have found this.",                                        \
    "unset RLK_PLUGIN_PATH, or use RLK_ADD_PLUGIN_PATH to add to the default search")                                 \
  X(kNameIgnored, "NAME_IGNORED", false, "Files of a searched folder are not looked at because of their names.",      \
    "plugins in a folder are named librlk_plugin_NAME.so: rename the file, or name the file itself in the variable")  \
  X(kPrivilegedProcess, "PRIVILEGED_PROCESS", false,                                                                  \
    "Path variables are ignored in a process that gained privileges.",                                                \
    "name the path in the policy file, or install the plugin into the default folder")                                \
  X(kNotSelected, "NOT_SELECTED", false, "RLK_PLUGINS_SELECT does not name this plugin.",                             \
    "add its id to RLK_PLUGINS_SELECT")                                                                               \
  X(kDisabled, "DISABLED", false, "RLK_PLUGINS_DISABLE names this plugin.", "remove its id from RLK_PLUGINS_DISABLE") \
  X(kSameFile, "SAME_FILE", false, "The same file was already found under another path.", "name the file once")       \
  X(kSameId, "SAME_ID", false, "A plugin with the same id was found earlier in the search.",                          \
    "remove one of the two, or put the wanted one first with RLK_ADD_PLUGIN_PATH")                                    \
  X(kNoEffect, "NO_EFFECT", false, "A variable names a plugin that it cannot act on.",                                \
    "take the name out of the variable")                                                                              \
  X(kAllowListUnusable, "ALLOW_LIST_UNUSABLE", true, "The allow-list that was asked for cannot be believed.",         \
    "correct RLK_ALLOW_LIST (allow_list in the policy file), or mend the list: lines as `sha256sum FILE` prints "     \
    "them, in a file of root's or your own that no other user may write to")                                          \
  /* screen */                                                                                                        \
  X(kNotRegularFile, "NOT_A_REGULAR_FILE", true, "The path is not a regular file.", "name the shared object itself")  \
  X(kFileUnreadable, "FILE_UNREADABLE", true, "The file cannot be read.",                                             \
    "grant this user read permission on the file")                                                                    \
  X(kOwnerUntrusted, "OWNER_UNTRUSTED", true, "The file or a folder above it belongs to another user.",               \
    "make root or the current user the owner of the file and of every folder above it")                               \
  X(kWritableByOthers, "WRITABLE_BY_OTHERS", true, "Another user could replace the file.",                            \
    "remove the write permission of group and others (chmod go-w)")                                                   \
  X(kNotElf, "NOT_ELF", true, "The file is not a shared object.", "copy the plugin again; build it with -shared")     \
  X(kElfDamaged, "ELF_DAMAGED", true, "The shared object is truncated or damaged.", "copy the plugin again")          \
  X(kFileTooLarge, "FILE_TOO_LARGE", true, "The file is larger than any plugin.",                                     \
    "copy the plugin again; ship data beside the shared object, not in it")                                           \
  X(kLibraryUntrusted, "LIBRARY_UNTRUSTED", true,                                                                     \
    "A library that the plugin needs could be replaced by another user.",                                             \
    "make root or the current user the owner of the library and of every folder above it, remove the write "          \
    "permission of group and others, and link the plugin without folders that any user may write to (readelf -d)")    \
  X(kWrongMachine, "WRONG_MACHINE", true, "The plugin is built for another kind of processor.",                       \
    "install the plugin that was built for this machine")                                                             \
  X(kEntrySymbolMissing, "ENTRY_SYMBOL_MISSING", true, "The file does not export rlk_plugin_entry_v1.",               \
    "build the plugin with the export macro of the SDK and keep the symbol's default visibility")                     \
  X(kAbiNoteMissing, "ABI_NOTE_MISSING", true, "The file carries no rlk ABI note.",                                   \
    "build the plugin with the export macro of the SDK and do not strip the section .note.rlk")                       \
  X(kAbiNoteInvalid, "ABI_NOTE_INVALID", true, "The rlk ABI note cannot be understood.",                              \
    "rebuild the plugin with the SDK of this rlk")                                                                    \
  X(kAbiMismatch, "ABI_MISMATCH", true, "Plugin and host speak ABI versions that exclude each other.",                \
    "install the plugin built for this rlk, or the rlk that the plugin asks for")                                     \
  X(kRuntimeLibraryMissing, "RUNTIME_LIBRARY_MISSING", false,                                                         \
    "Shared libraries that the plugin needs are not installed.",                                                      \
    "install the vendor's runtime, or add its folder to LD_LIBRARY_PATH or /etc/ld.so.conf.d")                        \
  X(kNotAllowed, "NOT_ALLOWED", false, "The policy's allow-list does not name this plugin.",                          \
    "if the file is what it should be, add the line that `sha256sum FILE` prints to the list")                        \
  /* probe */                                                                                                         \
  X(kProbeOff, "PROBE_OFF", false, "RLK_PROBE=off: plugins are neither probed nor used.", "unset RLK_PROBE")          \
  X(kSpawnFailed, "SPAWN_FAILED", true, "The prober could not be started.",                                           \
    "install rlk-prober beside librlk, or name it with RLK_PROBER")                                                   \
  X(kLoadFailed, "LOAD_FAILED", true, "The dynamic linker refused the plugin.",                                       \
    "the text is the linker's own; an undefined symbol means a library of another version")                           \
  X(kEntryFailed, "ENTRY_FAILED", true, "The plugin's entry returned no interface.",                                  \
    "report this to the plugin's vendor")                                                                             \
  X(kSlotMissing, "SLOT_MISSING", true, "The plugin left out functions that its kind must have.",                     \
    "fill in the named functions and rebuild the plugin")                                                             \
  X(kIdentityMismatch, "IDENTITY_MISMATCH", true, "The plugin answers with another identity than its file states.",   \
    "rebuild the plugin: note and entry must come from one build")                                                    \
  X(kCreateFailed, "CREATE_FAILED", true, "The plugin could not be created.",                                         \
    "see the text and the vendor's own tools")                                                                        \
  X(kNotMine, "NOT_MINE", false, "The plugin found no hardware it is made for.",                                      \
    "nothing to do on a machine without this hardware; otherwise see the evidence")                                   \
  X(kNoDevice, "NO_DEVICE", false, "The plugin's runtime is here, but offers no usable device.",                      \
    "check driver, device permissions and the variable that hides devices")                                           \
  X(kDeviceTaken, "DEVICE_TAKEN", true, "Another plugin that was found earlier owns the same devices.",               \
    "remove one of the two plugins; one that only brings operators says so (RLK_PLUGIN_OPERATORS_ONLY)")              \
  X(kEnumerateFailed, "ENUMERATE_FAILED", true, "The plugin could not list its devices.",                             \
    "see the vendor's own tools")                                                                                     \
  X(kOperatorsInvalid, "OPERATORS_INVALID", true, "The plugin's list of operators is contradictory.",                 \
    "report this to the plugin's vendor")                                                                             \
  X(kNothingVerified, "NOTHING_VERIFIED", true, "No operator of the plugin passed its smoke tests.",                  \
    "see the failed units with `rlk-plugins inspect ID`; do not use this build of the plugin")                        \
  X(kSomeFailed, "SOME_FAILED", true, "Some operators of the plugin failed their smoke tests and are off.",           \
    "see the failed units with `rlk-plugins inspect ID`")                                                             \
  X(kCrashed, "CRASHED", true, "The plugin crashed while it was probed.", "report this to the plugin's vendor")       \
  X(kKilled, "KILLED", false, "Somebody else ended the prober while it worked; this is tried again, not remembered.", \
    "the kernel does this when memory runs out: see its log")                                                         \
  X(kExited, "EXITED", true, "The plugin ended the process while it was probed.",                                     \
    "report this to the plugin's vendor")                                                                             \
  X(kTimedOut, "TIMED_OUT", true,                                                                                     \
    "A phase of the probe exceeded its time; remembered for a short time (RLK_PROBE_RETRY), then tried again.",       \
    "raise RLK_PROBE_TIMEOUT if the machine is slow or busy, else report this to the plugin's vendor")                \
  X(kProtocolError, "PROTOCOL_ERROR", true, "The prober sent something that is not its protocol.",                    \
    "the plugin wrote to a file descriptor that is not its own, or rlk-prober is of another version")                 \
  X(kProbeBusy, "PROBE_BUSY", false, "Another process is still probing this plugin.", "try again when it is done")    \
  X(kCancelled, "CANCELLED", false, "The probe was stopped because the application ended.", "probe again")            \
  X(kQuarantined, "QUARANTINED", true,                                                                                \
    "It failed at run time, in this process or an earlier one, and is switched off.",                                 \
    "see `rlk-plugins quarantine ls`; when the cause is mended, `rlk-plugins quarantine clear ID` uses it again")     \
  X(kKnownBad, "KNOWN_BAD", true, "This version of the vendor's runtime or driver is known to compute wrong.",        \
    "install another version; to use it all the same, name the plugin in use_known_bad of the policy file")           \
  X(kFileChanged, "FILE_CHANGED", true, "The file changed between its probe and its load.",                           \
    "replace plugins by renaming a new file over the old one, then start again")                                      \
  X(kOverwritten, "OVERWRITTEN", true, "The file was written over while this process had it loaded.",                 \
    "restart this process; replace plugins by renaming a new file over the old one, never by writing into it")        \
  X(kNeedsRestart, "NEEDS_RESTART", true, "The new file cannot run beside the old one in this process.",              \
    "restart this process to use it")                                                                                 \
  X(kWorseThanLoaded, "WORSE_THAN_LOADED", true,                                                                      \
    "A new file of a plugin fails where the one that is loaded is right.",                                            \
    "see its failed units with `rlk-plugins inspect ID`; a restart would use it without them")                        \
  X(kReplaced, "REPLACED", false, "A newer file of the plugin serves new streams and calls.", "nothing to do")        \
  X(kGone, "GONE", false, "The plugin's file is not found any more, or not wanted.", "nothing to do")

#define RLK_LOADER_REASON_CONSTANT(constant, code, broken, meaning, hint) \
  inline constexpr Reason constant{code, meaning, hint, broken};
namespace reason {
RLK_LOADER_REASONS(RLK_LOADER_REASON_CONSTANT)
}
#undef RLK_LOADER_REASON_CONSTANT

#define RLK_LOADER_REASON_ROW(constant, code, broken, meaning, hint) reason::constant,
inline constexpr Reason kReasons[] = {RLK_LOADER_REASONS(RLK_LOADER_REASON_ROW)};
#undef RLK_LOADER_REASON_ROW
#undef RLK_LOADER_REASONS

// The machine lacks what the plugin is made for; a plugin's own code for that comes with one of these reasons.
constexpr bool is_absence(const Reason& why) {
  return why.code == reason::kNotMine.code || why.code == reason::kNoDevice.code ||
         why.code == reason::kRuntimeLibraryMissing.code;
}

}  // namespace rlk::loader
