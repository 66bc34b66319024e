// What an ELF file says about itself, read without trusting a byte of it: kind, machine, needed libraries, exported
// names, notes. Only program headers are used: they are what the dynamic linker obeys, and stripping keeps them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rlk::loader {

// The machine this program is built for, in ELF's numbers.
#if defined(__x86_64__)
inline constexpr uint16_t kHostMachine = 62;
#elif defined(__aarch64__)
inline constexpr uint16_t kHostMachine = 183;
#else
#error "rlk supports x86-64 and aarch64"
#endif
std::string machine_name(uint16_t machine);

// Random access to the bytes of a file of hostile content. `read` gives exactly n bytes at offset or false.
struct ElfSource {
  uint64_t size = 0;
  std::function<bool(uint64_t offset, void* out, size_t n)> read;
};
ElfSource source_of(std::string_view bytes);  // borrows
ElfSource source_of_fd(int fd, uint64_t size);

struct ElfNote {
  std::string name;
  uint32_t type = 0;
  std::string description;
};

struct ElfInfo {
  uint8_t bits = 0;  // 32 or 64
  bool little_endian = true;
  uint16_t type = 0;  // ET_DYN = 3
  uint16_t machine = 0;
  std::string soname;
  std::string rpath;                   // DT_RPATH as written, colon separated
  std::string runpath;                 // DT_RUNPATH as written
  std::vector<std::string> needed;     // DT_NEEDED and DT_FILTER: without one the linker refuses the file
  std::vector<std::string> auxiliary;  // DT_AUXILIARY: loaded like the others where they are found
  std::vector<std::string> auditors;   // DT_AUDIT and DT_DEPAUDIT as written, colon separated
  std::vector<std::string> exports;    // defined, global or weak, of default or protected visibility
  bool has_unique_symbols = false;     // among the exports: STB_GNU_UNIQUE
  std::vector<ElfNote> notes;
  std::string build_id;  // hexadecimal, empty without one
};

enum class ElfStatus : uint8_t {
  ok,
  not_elf,
  foreign,  // 32 bits or big endian: `bits`, `little_endian` and `machine` are filled, the rest is not
  damaged,
};

struct ElfResult {
  ElfStatus status = ElfStatus::not_elf;
  std::string error;  // what was seen and expected; empty when ok
  ElfInfo info;
};

enum class ElfDepth : uint8_t { dependencies, exports };  // `dependencies` leaves `exports` empty and is cheaper

// Bounded in time and memory for any content; never throws except bad_alloc.
ElfResult read_elf(const ElfSource& source, ElfDepth depth = ElfDepth::exports);

}  // namespace rlk::loader
