// A reader whose every access is checked against the size of the file and a limit on what a file may ask for.
#include "loader/screen/elf.hpp"

#include <elf.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

// Far above every real plugin, far below what would hurt: a file that asks for more is called damaged.
constexpr uint64_t kMaxDynamicBytes = 1 << 20;
constexpr uint64_t kMaxNoteBytes = 1 << 20;
constexpr uint64_t kMaxStringTableBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxSymbols = uint64_t{1} << 20;
constexpr uint64_t kMaxExportBytes = uint64_t{32} << 20;  // of all names together: names may overlap in the file
constexpr size_t kMaxNeeded = 1024;
constexpr size_t kMaxNameBytes = 4096;

constexpr uint64_t kNone = ~uint64_t{0};

class Reader {
public:
  Reader(const ElfSource& source, ElfResult* result) : source_(source), result_(*result), info_(result->info) {}

  void run(ElfDepth depth) {
    if (!read_header() || !read_program_headers() || !read_notes() || !read_dynamic()) return;
    if (depth == ElfDepth::exports && !read_exports()) return;
    result_.status = ElfStatus::ok;
  }

private:
  struct Dynamic {
    uint64_t string_table = kNone;
    uint64_t string_bytes = 0;
    uint64_t symbol_table = kNone;
    uint64_t sysv_hash = kNone;
    uint64_t gnu_hash = kNone;
    uint64_t soname = kNone;
    uint64_t rpath = kNone;
    uint64_t runpath = kNone;
    std::vector<uint64_t> needed;
    std::vector<uint64_t> auxiliary;
    std::vector<uint64_t> auditors;
    size_t libraries() const { return needed.size() + auxiliary.size() + auditors.size(); }
  };

  bool fail(ElfStatus status, std::string text) {
    result_.status = status;
    result_.error = std::move(text);
    return false;
  }
  bool damaged(std::string text) { return fail(ElfStatus::damaged, std::move(text)); }

  bool inside(uint64_t offset, uint64_t bytes) const {
    return offset <= source_.size && bytes <= source_.size - offset;
  }

  // Every read of the file goes through here.
  bool read(uint64_t offset, void* out, uint64_t bytes, const char* what) {
    if (inside(offset, bytes) && source_.read(offset, out, static_cast<size_t>(bytes))) return true;
    return damaged(
        fmt::format("{} at offset {}, {} bytes, lies outside the file of {} bytes", what, offset, bytes, source_.size));
  }

  bool read_header() {
    unsigned char ident[EI_NIDENT] = {};
    if (source_.size < EI_NIDENT || !source_.read(0, ident, sizeof(ident)) || std::memcmp(ident, ELFMAG, SELFMAG) != 0)
      return fail(ElfStatus::not_elf, "the file does not begin with the ELF signature");
    info_.bits = ident[EI_CLASS] == ELFCLASS64 ? 64 : 32;
    info_.little_endian = ident[EI_DATA] != ELFDATA2MSB;
    uint16_t type_and_machine[2] = {};  // at the same place in both classes
    if (!read(EI_NIDENT, type_and_machine, sizeof(type_and_machine), "the ELF header")) return false;
    if (!info_.little_endian)
      for (uint16_t& value : type_and_machine) value = static_cast<uint16_t>(value << 8 | value >> 8);
    info_.type = type_and_machine[0];
    info_.machine = type_and_machine[1];
    if (ident[EI_CLASS] != ELFCLASS64 && ident[EI_CLASS] != ELFCLASS32)
      return damaged(fmt::format("the ELF class is {}, neither 32 nor 64 bits", ident[EI_CLASS]));
    if (info_.bits != 64 || !info_.little_endian) {
      return fail(ElfStatus::foreign, fmt::format("the file is for {}-bit {} endian machines", info_.bits,
                                                  info_.little_endian ? "little" : "big"));
    }
    if (!read(0, &header_, sizeof(header_), "the ELF header")) return false;
    if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum == 0 || header_.e_phnum == PN_XNUM)
      return damaged(fmt::format("{} program headers of {} bytes; expected at least one of {}", header_.e_phnum,
                                 header_.e_phentsize, sizeof(Elf64_Phdr)));
    return true;
  }

  bool read_program_headers() {
    segments_.resize(header_.e_phnum);
    return read(header_.e_phoff, segments_.data(), segments_.size() * sizeof(Elf64_Phdr), "the program header table");
  }

  // Where in the file a virtual address lies; kNone when no segment maps it.
  uint64_t file_offset(uint64_t address) const {
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_LOAD || address < segment.p_vaddr || address - segment.p_vaddr >= segment.p_filesz)
        continue;
      const uint64_t offset = segment.p_offset + (address - segment.p_vaddr);
      if (offset >= segment.p_offset) return offset;  // no wrap-around
    }
    return kNone;
  }

  bool read_notes() {
    uint64_t room = kMaxNoteBytes;  // of all together: tens of thousands of segments may name the same bytes
    for (const Elf64_Phdr& segment : segments_) {
      if (segment.p_type != PT_NOTE) continue;
      if (segment.p_filesz > room) return damaged("the note segments are larger than 1 MiB");
      room -= segment.p_filesz;
      std::string bytes(segment.p_filesz, '\0');
      if (!read(segment.p_offset, bytes.data(), bytes.size(), "a note segment")) return false;
      read_note_segment(bytes, segment.p_align == 8 ? 8 : 4);
    }
    return true;
  }

  // A note that does not fit ends its segment quietly: other tools put odd notes there, and ours is looked for by name.
  void read_note_segment(const std::string& bytes, uint64_t alignment) {
    const auto aligned = [&](uint64_t value) { return (value + alignment - 1) / alignment * alignment; };
    uint64_t at = 0;
    while (bytes.size() - at >= sizeof(Elf64_Nhdr)) {
      Elf64_Nhdr head = {};
      std::memcpy(&head, bytes.data() + at, sizeof(head));
      const uint64_t name_at = at + sizeof(head);
      const uint64_t description_at = aligned(name_at + head.n_namesz);
      const uint64_t end = description_at + head.n_descsz;
      if (end > bytes.size()) return;
      ElfNote& note = info_.notes.emplace_back();
      note.name.assign(bytes, name_at, head.n_namesz);
      while (!note.name.empty() && note.name.back() == '\0') note.name.pop_back();
      note.type = head.n_type;
      note.description.assign(bytes, description_at, head.n_descsz);
      if (note.name == "GNU" && note.type == NT_GNU_BUILD_ID) info_.build_id = hex(note.description);
      at = std::min<uint64_t>(aligned(end), bytes.size());
    }
  }

  static std::string hex(const std::string& bytes) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    for (const char byte : bytes) {
      out += kDigits[(byte >> 4) & 15];
      out += kDigits[byte & 15];
    }
    return out;
  }

  bool read_dynamic() {
    const auto segment = std::find_if(segments_.begin(), segments_.end(),
                                      [](const Elf64_Phdr& header) { return header.p_type == PT_DYNAMIC; });
    if (segment == segments_.end()) return true;  // statically linked: nothing needed, nothing exported
    if (segment->p_filesz > kMaxDynamicBytes) return damaged("the dynamic section is larger than 1 MiB");
    std::vector<Elf64_Dyn> entries(segment->p_filesz / sizeof(Elf64_Dyn));
    if (!read(segment->p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn), "the dynamic section"))
      return false;
    uint64_t string_address = kNone, symbol_address = kNone, sysv_address = kNone, gnu_address = kNone;
    for (const Elf64_Dyn& entry : entries) {
      if (entry.d_tag == DT_NULL) break;
      switch (entry.d_tag) {
        case DT_STRTAB:
          string_address = entry.d_un.d_ptr;
          break;
        case DT_STRSZ:
          dynamic_.string_bytes = entry.d_un.d_val;
          break;
        case DT_SYMTAB:
          symbol_address = entry.d_un.d_ptr;
          break;
        case DT_HASH:
          sysv_address = entry.d_un.d_ptr;
          break;
        case DT_GNU_HASH:
          gnu_address = entry.d_un.d_ptr;
          break;
        case DT_SONAME:
          dynamic_.soname = entry.d_un.d_val;
          break;
        case DT_RPATH:
          dynamic_.rpath = entry.d_un.d_val;
          break;
        case DT_RUNPATH:
          dynamic_.runpath = entry.d_un.d_val;
          break;
        case DT_NEEDED:
        case DT_FILTER:  // `ld -F`: symbols come from there
          dynamic_.needed.push_back(entry.d_un.d_val);
          break;
        case DT_AUXILIARY:  // `ld -f`: the same, where it is there
          dynamic_.auxiliary.push_back(entry.d_un.d_val);
          break;
        case DT_AUDIT:
        case DT_DEPAUDIT:
          dynamic_.auditors.push_back(entry.d_un.d_val);
          break;
        default:
          break;
      }
    }
    // Each once, and not where it is named: that may be in tens of thousands of entries, over as many segments.
    dynamic_.symbol_table = file_offset(symbol_address);
    dynamic_.sysv_hash = file_offset(sysv_address);
    dynamic_.gnu_hash = file_offset(gnu_address);
    if (string_address == kNone) return damaged("the dynamic section names no string table");
    dynamic_.string_table = file_offset(string_address);
    if (dynamic_.string_table == kNone || dynamic_.string_bytes > kMaxStringTableBytes ||
        !inside(dynamic_.string_table, dynamic_.string_bytes))
      return damaged(fmt::format("the dynamic string table of {} bytes lies outside the file", dynamic_.string_bytes));
    if (dynamic_.libraries() > kMaxNeeded)
      return damaged(fmt::format("{} needed libraries; at most {} are accepted", dynamic_.libraries(), kMaxNeeded));
    return read_strings(dynamic_.needed, &info_.needed) && read_strings(dynamic_.auxiliary, &info_.auxiliary) &&
           read_strings(dynamic_.auditors, &info_.auditors) &&
           (dynamic_.soname == kNone || read_string(dynamic_.soname, &info_.soname)) &&
           (dynamic_.rpath == kNone || read_string(dynamic_.rpath, &info_.rpath)) &&
           (dynamic_.runpath == kNone || read_string(dynamic_.runpath, &info_.runpath));
  }

  bool read_strings(const std::vector<uint64_t>& indices, std::vector<std::string>* out) {
    return std::all_of(indices.begin(), indices.end(),
                       [&](uint64_t index) { return read_string(index, &out->emplace_back()); });
  }

  bool read_string(uint64_t index, std::string* out) {
    if (index >= dynamic_.string_bytes)
      return damaged(
          fmt::format("a name at {} lies outside the string table of {} bytes", index, dynamic_.string_bytes));
    char piece[256];
    while (out->size() < kMaxNameBytes && index < dynamic_.string_bytes) {
      const uint64_t bytes = std::min<uint64_t>(sizeof(piece), dynamic_.string_bytes - index);
      if (!read(dynamic_.string_table + index, piece, bytes, "the dynamic string table")) return false;
      const size_t length = strnlen(piece, static_cast<size_t>(bytes));
      out->append(piece, length);
      if (length < bytes) return true;
      index += bytes;
    }
    return damaged(fmt::format("a name in the string table does not end within {} bytes", kMaxNameBytes));
  }

  // The symbol table states no length; the hash table that the dynamic linker uses implies one.
  bool count_symbols(uint64_t* count) {
    if (dynamic_.sysv_hash != kNone) {
      uint32_t head[2] = {};  // buckets, chains; there is one chain entry per symbol
      if (!read(dynamic_.sysv_hash, head, sizeof(head), "the symbol hash table")) return false;
      *count = head[1];
    } else if (dynamic_.gnu_hash != kNone) {
      if (!count_gnu_symbols(count)) return false;
    }
    if (*count > kMaxSymbols)
      return damaged(fmt::format("{} dynamic symbols; at most {} are accepted", *count, kMaxSymbols));
    return true;
  }

  bool count_gnu_symbols(uint64_t* count) {
    uint32_t head[4] = {};  // buckets, first hashed symbol, 64-bit words of the Bloom filter, its shift
    if (!read(dynamic_.gnu_hash, head, sizeof(head), "the symbol hash table")) return false;
    if (head[0] > kMaxSymbols) return damaged("the symbol hash table is unreasonably large");
    const uint64_t buckets_at = dynamic_.gnu_hash + sizeof(head) + uint64_t{head[2]} * 8;
    std::vector<uint32_t> buckets(head[0]);
    if (!read(buckets_at, buckets.data(), buckets.size() * 4, "the symbol hash table")) return false;
    const uint32_t last = buckets.empty() ? 0 : *std::max_element(buckets.begin(), buckets.end());
    *count = head[1];
    if (last < head[1]) return true;  // nothing is exported
    // The chain of the highest bucket holds the last symbol; an odd value ends a chain.
    const uint64_t chains_at = buckets_at + buckets.size() * 4;
    for (uint64_t symbol = last; symbol <= kMaxSymbols; ++symbol) {
      uint32_t value = 0;
      if (!read(chains_at + (symbol - head[1]) * 4, &value, 4, "the symbol hash table")) return false;
      if ((value & 1) == 0) continue;
      *count = symbol + 1;
      return true;
    }
    return damaged("a chain of the symbol hash table does not end");
  }

  bool read_exports() {
    uint64_t count = 0;
    if (dynamic_.symbol_table == kNone || !count_symbols(&count)) return result_.error.empty();
    std::vector<Elf64_Sym> symbols;
    if (!inside(dynamic_.symbol_table, count * sizeof(Elf64_Sym)))
      return damaged(fmt::format("the table of {} dynamic symbols lies outside the file", count));
    symbols.resize(count);
    if (!read(dynamic_.symbol_table, symbols.data(), count * sizeof(Elf64_Sym), "the dynamic symbol table"))
      return false;
    uint64_t room = kMaxExportBytes;
    for (const Elf64_Sym& symbol : symbols) {
      const unsigned binding = ELF64_ST_BIND(symbol.st_info);
      const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
      const bool exported = symbol.st_shndx != SHN_UNDEF && binding != STB_LOCAL && visibility != STV_HIDDEN &&
                            visibility != STV_INTERNAL;
      if (!exported) continue;
      info_.has_unique_symbols = info_.has_unique_symbols || binding == STB_GNU_UNIQUE;
      if (!read_string(symbol.st_name, &info_.exports.emplace_back())) return false;
      const uint64_t bytes = info_.exports.back().size() + sizeof(std::string);
      if (bytes > room) {
        const size_t count_so_far = info_.exports.size();
        info_.exports = {};
        return damaged(fmt::format("the first {} exported names are longer than {} MiB together", count_so_far,
                                   kMaxExportBytes >> 20));
      }
      room -= bytes;
    }
    return true;
  }

  const ElfSource& source_;
  ElfResult& result_;
  ElfInfo& info_;
  Elf64_Ehdr header_ = {};
  std::vector<Elf64_Phdr> segments_;
  Dynamic dynamic_;
};

}  // namespace

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_386:
      return "x86 (32 bits)";
    case EM_X86_64:
      return "x86-64";
    case EM_ARM:
      return "arm (32 bits)";
    case EM_AARCH64:
      return "aarch64";
    case EM_RISCV:
      return "riscv";
    case EM_PPC64:
      return "ppc64";
    case EM_S390:
      return "s390x";
    case 258:
      return "loongarch";
    default:
      return fmt::format("machine {}", machine);
  }
}

ElfSource source_of(std::string_view bytes) {
  return {bytes.size(), [bytes](uint64_t offset, void* out, size_t n) {
            if (offset > bytes.size() || n > bytes.size() - offset) return false;
            if (n > 0) std::memcpy(out, bytes.data() + offset, n);
            return true;
          }};
}

ElfSource source_of_fd(int fd, uint64_t size) {
  return {size, [fd](uint64_t offset, void* out, size_t n) { return read_at(fd, offset, out, n); }};
}

ElfResult read_elf(const ElfSource& source, ElfDepth depth) {
  ElfResult result;
  Reader(source, &result).run(depth);
  return result;
}

}  // namespace rlk::loader
