// The ELF reader: right about a real file, and safe with every damaged one.
#include "loader/screen/elf.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <random>

#include "framework/fs.hpp"
#include "loader/screen/note.hpp"

namespace rlk::loader {
namespace {

const std::string& tiny() {
  static const std::string bytes = rlk::testing::read_text(RLK_TEST_OBJECTS "/tiny_plugin.so");
  return bytes;
}

ElfResult read(const std::string& bytes) {
  return read_elf(source_of(bytes));
}

// A copy of the file with one header field changed.
template <class Value>
std::string patched(size_t offset, Value value) {
  std::string bytes = tiny();
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

TEST(Elf, ReadsARealSharedObject) {
  const ElfResult result = read(tiny());
  ASSERT_EQ(result.status, ElfStatus::ok) << result.error;
  EXPECT_EQ(result.info.bits, 64);
  EXPECT_EQ(result.info.type, ET_DYN);
  EXPECT_EQ(result.info.machine, kHostMachine);
  EXPECT_EQ(result.info.runpath, "$ORIGIN");
  EXPECT_EQ(std::count(result.info.exports.begin(), result.info.exports.end(), "rlk_plugin_entry_v1"), 1);
  EXPECT_EQ(std::count(result.info.needed.begin(), result.info.needed.end(), "libc.so.6"), 1);
  EXPECT_EQ(result.info.build_id.size(), 40u);
  ASSERT_NE(find_abi_note(result.info), nullptr);
}

TEST(Elf, DoesNotCallUndefinedSymbolsExports) {
  const ElfResult result = read(tiny());
  EXPECT_EQ(std::count(result.info.exports.begin(), result.info.exports.end(), "__cxa_finalize"), 0);
}

TEST(Elf, ReadsTheSystemsLibraries) {
  rlk::testing::TempFolder unused;
  for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libm.so.6",
                           "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/aarch64-linux-gnu/libc.so.6"}) {
    const std::string bytes = rlk::testing::read_text(path);
    if (bytes.empty()) continue;
    const ElfResult result = read(bytes);
    EXPECT_EQ(result.status, ElfStatus::ok) << path << ": " << result.error;
    EXPECT_GT(result.info.exports.size(), 100u) << path;
    EXPECT_FALSE(result.info.soname.empty()) << path;
  }
}

TEST(Elf, AFileThatIsNoElfSaysSo) {
  for (const std::string& bytes :
       {std::string(), std::string("\x7f"), std::string("#!/bin/sh\n"), std::string(4096, 'x')}) {
    const ElfResult result = read(bytes);
    EXPECT_EQ(result.status, ElfStatus::not_elf);
    EXPECT_FALSE(result.error.empty());
  }
}

TEST(Elf, A32BitFileIsForeign) {
  std::string bytes = patched<uint8_t>(EI_CLASS, ELFCLASS32);
  const uint16_t i386 = EM_386;
  std::memcpy(bytes.data() + 18, &i386, 2);
  const ElfResult result = read(bytes);
  EXPECT_EQ(result.status, ElfStatus::foreign);
  EXPECT_EQ(result.info.bits, 32);
  EXPECT_EQ(machine_name(result.info.machine), "x86 (32 bits)");
}

TEST(Elf, ABigEndianFileIsForeignAndItsMachineIsRead) {
  std::string bytes = patched<uint8_t>(EI_DATA, ELFDATA2MSB);
  bytes[18] = 0;
  bytes[19] = EM_PPC64;
  const ElfResult result = read(bytes);
  EXPECT_EQ(result.status, ElfStatus::foreign);
  EXPECT_EQ(machine_name(result.info.machine), "ppc64");
}

TEST(Elf, AnotherMachineIsReadNormally) {
  const uint16_t other = kHostMachine == EM_X86_64 ? EM_AARCH64 : EM_X86_64;
  const ElfResult result = read(patched<uint16_t>(18, other));
  EXPECT_EQ(result.status, ElfStatus::ok);
  EXPECT_EQ(result.info.machine, other);
}

TEST(Elf, EveryTruncationIsAnErrorOrAWholeAnswer) {
  const ElfResult whole = read(tiny());
  size_t damaged = 0;
  for (size_t length = 0; length < tiny().size(); ++length) {
    const ElfResult result = read(tiny().substr(0, length));
    if (result.status == ElfStatus::ok) {
      // Only what the dynamic linker does not look at may be missing (section headers stand at the end).
      ASSERT_EQ(result.info.exports, whole.info.exports) << length;
      ASSERT_EQ(result.info.needed, whole.info.needed) << length;
    } else {
      ASSERT_FALSE(result.error.empty()) << length;
      ++damaged;
    }
  }
  EXPECT_GT(damaged, tiny().size() / 4);
}

TEST(Elf, EveryByteOfTheHeadersMayLie) {
  // Headers, program headers and the tables behind them: each byte takes the values that hurt most.
  const size_t end = std::min<size_t>(tiny().size(), 2048);
  for (size_t at = 0; at < end; ++at) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      const ElfResult result = read(patched(at, static_cast<unsigned char>(value)));
      ASSERT_TRUE(result.status == ElfStatus::ok || !result.error.empty()) << at;
    }
  }
}

TEST(Elf, RandomDamageIsSurvived) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = tiny();
    for (int i = 0; i < 8; ++i) {
      const uint64_t value = random() & (round % 2 == 0 ? ~uint64_t{0} : 0xffff);
      std::memcpy(bytes.data() + random() % (bytes.size() - 8), &value, 1 + random() % 8);
    }
    const ElfResult result = read(bytes);
    ASSERT_TRUE(result.status == ElfStatus::ok || !result.error.empty()) << round;
  }
}

TEST(Elf, RandomBytesBehindASignatureAreSurvived) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(64 + random() % 2048, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    std::memcpy(bytes.data(), ELFMAG, SELFMAG);
    bytes[EI_CLASS] = ELFCLASS64;
    bytes[EI_DATA] = ELFDATA2LSB;
    const uint16_t entry_bytes = sizeof(Elf64_Phdr);
    std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_phentsize), &entry_bytes, 2);
    const uint64_t offset = 64;
    std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_phoff), &offset, 8);
    const uint16_t count = static_cast<uint16_t>(1 + random() % 8);
    std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_phnum), &count, 2);
    read(bytes);
  }
}

TEST(Elf, NoteSegmentsThatNameTheSameBytesDoNotAddUp) {
  // Sixty thousand segments over one note of almost a MiB, in a file of 5 MB.
  constexpr uint32_t kSegments = 60000, kNote = (1 << 20) - 64;
  std::string bytes(sizeof(Elf64_Ehdr) + kSegments * sizeof(Elf64_Phdr) + kNote, '\0');
  Elf64_Ehdr header = {};
  std::memcpy(&header, tiny().data(), sizeof(header));
  header.e_phoff = sizeof(header);
  header.e_phnum = static_cast<uint16_t>(kSegments);
  std::memcpy(bytes.data(), &header, sizeof(header));
  const uint64_t note_at = bytes.size() - kNote;
  for (uint64_t i = 0; i < kSegments; ++i) {
    Elf64_Phdr segment = {};
    segment.p_type = PT_NOTE;
    segment.p_offset = note_at;
    segment.p_filesz = kNote;
    std::memcpy(bytes.data() + sizeof(header) + i * sizeof(segment), &segment, sizeof(segment));
  }
  const Elf64_Nhdr note = {4, kNote - static_cast<uint32_t>(sizeof(Elf64_Nhdr)) - 4, 9};
  std::memcpy(bytes.data() + note_at, &note, sizeof(note));
  uint64_t read_bytes = 0;
  const ElfSource whole = source_of(bytes);
  const ElfResult result = read_elf({whole.size, [&](uint64_t offset, void* out, size_t n) {
                                       read_bytes += n;
                                       return read_bytes < (16 << 20) && whole.read(offset, out, n);
                                     }});
  EXPECT_EQ(result.status, ElfStatus::damaged);
  EXPECT_LT(read_bytes, uint64_t{8} << 20) << result.error;
}

// Half a million symbols, 12 MB, all with the one name of 4,000 letters.
TEST(Elf, NamesThatOverlapInTheFileDoNotAddUp) {
  constexpr uint64_t kSymbols = 500'000, kName = 4000, kEntries = 5;
  const uint64_t dynamic_at = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);
  const uint64_t hash_at = dynamic_at + (kEntries + 1) * sizeof(Elf64_Dyn);
  const uint64_t names_at = hash_at + 8, symbols_at = names_at + kName + 8;
  std::string bytes(symbols_at + kSymbols * sizeof(Elf64_Sym), '\0');
  const auto put = [&](uint64_t at, const auto& what) { std::memcpy(bytes.data() + at, &what, sizeof(what)); };
  Elf64_Ehdr header = {};
  std::memcpy(&header, tiny().data(), sizeof(header));
  header.e_phoff = sizeof(header);
  header.e_phnum = 2;
  put(0, header);
  Elf64_Phdr load = {}, dynamic = {};
  load.p_type = PT_LOAD;
  load.p_filesz = load.p_memsz = bytes.size();
  dynamic.p_type = PT_DYNAMIC;
  dynamic.p_offset = dynamic_at;
  dynamic.p_filesz = (kEntries + 1) * sizeof(Elf64_Dyn);
  put(sizeof(header), load);
  put(sizeof(header) + sizeof(load), dynamic);
  const Elf64_Dyn entries[kEntries] = {{DT_STRTAB, {names_at}},
                                       {DT_STRSZ, {kName + 8}},
                                       {DT_SYMTAB, {symbols_at}},
                                       {DT_HASH, {hash_at}},
                                       {DT_NULL, {0}}};
  put(dynamic_at, entries);
  const uint32_t hash[2] = {1, kSymbols};
  put(hash_at, hash);
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(names_at), kName, 'x');
  Elf64_Sym symbol = {};
  symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  symbol.st_shndx = 1;
  for (uint64_t i = 0; i < kSymbols; ++i) put(symbols_at + i * sizeof(symbol), symbol);
  const ElfResult result = read_elf(source_of(bytes));
  EXPECT_EQ(result.status, ElfStatus::damaged);
  EXPECT_NE(result.error.find("exported names"), std::string::npos) << result.error;
  EXPECT_TRUE(result.info.exports.empty());
}

// Almost as many segments as there can be, and as many entries, in 5 MB: four billion steps if each is looked up.
TEST(Elf, EntriesAndSegmentsDoNotMultiply) {
  constexpr uint64_t kSegments = 65'000, kEntries = 65'000;
  const uint64_t dynamic_at = sizeof(Elf64_Ehdr) + kSegments * sizeof(Elf64_Phdr);
  std::string bytes(dynamic_at + kEntries * sizeof(Elf64_Dyn), '\0');
  const auto put = [&](uint64_t at, const auto& what) { std::memcpy(bytes.data() + at, &what, sizeof(what)); };
  Elf64_Ehdr header = {};
  std::memcpy(&header, tiny().data(), sizeof(header));
  header.e_phoff = sizeof(header);
  header.e_phnum = static_cast<uint16_t>(kSegments);
  put(0, header);
  Elf64_Phdr load = {}, dynamic = {};
  load.p_type = PT_LOAD;
  dynamic.p_type = PT_DYNAMIC;
  dynamic.p_offset = dynamic_at;
  dynamic.p_filesz = kEntries * sizeof(Elf64_Dyn);
  for (uint64_t i = 0; i < kSegments; ++i) put(sizeof(header) + i * sizeof(load), i == 0 ? dynamic : load);
  const int64_t tags[] = {DT_SYMTAB, DT_HASH, DT_GNU_HASH};
  for (uint64_t i = 0; i < kEntries; ++i) put(dynamic_at + i * sizeof(Elf64_Dyn), Elf64_Dyn{tags[i % 3], {0x7000}});
  const std::clock_t begin = std::clock();  // of the processor: others may be at work here
  const ElfResult result = read_elf(source_of(bytes));
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
  EXPECT_EQ(result.status, ElfStatus::damaged);
  EXPECT_NE(result.error.find("no string table"), std::string::npos) << result.error;
}

TEST(Elf, AReaderThatFailsIsAnErrorNotACrash) {
  ElfSource source = source_of(tiny());
  constexpr int kMany = 1000;
  int reads_left = kMany;
  auto inner = source.read;
  source.read = [&](uint64_t offset, void* out, size_t n) { return reads_left-- > 0 && inner(offset, out, n); };
  ASSERT_EQ(read_elf(source).error, "");
  const int needed = kMany - reads_left;
  ASSERT_GT(needed, 5);
  for (int reads = 0; reads < needed; ++reads) {
    reads_left = reads;
    EXPECT_NE(read_elf(source).error, "") << reads;
  }
}

TEST(AbiNote, IsReadFromText) {
  std::string error;
  const std::string text = "abi=1.2;draft=3;id=a-b_9;backend=cpu;version=1;env=A,B;files=c,d.toml,$E;new=thing";
  const auto note = parse_abi_note(text + '\0', &error);  // as the macro of the SDK ends it
  ASSERT_TRUE(note) << error;
  EXPECT_EQ(note->abi, (AbiVersion{1, 2, 3}));
  EXPECT_EQ(note->id, "a-b_9");
  EXPECT_EQ(note->backend, "cpu");
  EXPECT_EQ(note->env, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(note->files, (std::vector<std::string>{"c", "d.toml", "$E"}));
}

TEST(AbiNote, WhatIsNotANoteIsExplained) {
  for (const char* text :
       {"", "abi", "abi=1", "abi=x.y;id=a;backend=b", "abi=1.0", "abi=1.0;id=a", "abi=1.0;id=;backend=b",
        "abi=1.0;id=UPPER;backend=b", "abi=1.0;id=../x;backend=b", "abi=1.0;draft=-1;id=a;backend=b",
        "abi=1.0;id=a;backend=b;junk", "abi=1.0\n;id=a;backend=b", "abi=99999999999.0;id=a;backend=b",
        "abi=1.0;id=a;backend=b;id=c", "abi=1.0;id=a;backend=b;files=../c", "abi=1.0;id=a;backend=b;files=.."}) {
    std::string error;
    EXPECT_FALSE(parse_abi_note(text, &error)) << text;
    EXPECT_FALSE(error.empty()) << text;
  }
  std::string error;
  EXPECT_FALSE(parse_abi_note(std::string(5000, 'x'), &error));
}

}  // namespace
}  // namespace rlk::loader
