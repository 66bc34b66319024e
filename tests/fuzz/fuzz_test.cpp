// Whatever is read from outside, given random and hostile bytes: no crash, no hang, no unlimited memory, and what is
// refused says why. Each target is a process of its own.
//
// The test tries a few thousand inputs. For hours, with other numbers, and with the sanitizers of the preset asan:
//
//   RLK_FUZZ_SECONDS=3600 RLK_FUZZ_FIRST=1000000 build/asan/tests/fuzz_test --gtest_filter='*/elf'
//
// A failure names the input's number: RLK_FUZZ_FIRST=NUMBER RLK_FUZZ_COUNT=1 makes it again, under a debugger with
// RLK_FUZZ_FORK=0.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iterator>

#include "framework/fs.hpp"
#include "framework/process.hpp"
#include "fuzz/calls.hpp"
#include "fuzz/mutate.hpp"
#include "loader/api/config.hpp"
#include "loader/cli/call.hpp"
#include "loader/cli/npy.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/protocol.hpp"
#include "loader/screen/allow.hpp"
#include "loader/screen/elf.hpp"
#include "loader/screen/note.hpp"
#include "loader/store/breadcrumbs.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/quarantine.hpp"

namespace rlk::fuzz {
namespace {

using Seeds = std::vector<std::string>;

// "" when the bytes were treated as they should be, else what went wrong.
struct Target {
  const char* name;
  uint64_t count;  // inputs of the test
  std::function<Seeds()> seeds;
  Seeds words;
  std::function<std::string(const std::string& bytes, const testing::TempFolder& folder)> run;
};

Seeds seeds_of(const std::string& name) {
  Seeds all;
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(std::string(RLK_FUZZ_SEEDS "/") + name))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) all.push_back(testing::read_text(file));
  return all;
}

std::string elf(const std::string& bytes, const testing::TempFolder&) {
  for (const auto depth : {loader::ElfDepth::dependencies, loader::ElfDepth::exports}) {
    const loader::ElfResult result = loader::read_elf(loader::source_of(bytes), depth);
    if ((result.status == loader::ElfStatus::ok) != result.error.empty()) return "status and error disagree";
    if (const std::string* note = loader::find_abi_note(result.info)) {
      std::string error;
      if (!loader::parse_abi_note(*note, &error) && error.empty()) return "a note is refused without a word";
    }
  }
  return "";
}

loader::PluginRecord a_record() {
  loader::PluginRecord record;
  record.id = "acme";
  record.path = "/opt/acme.so";
  record.source = "RLK_PLUGIN_PATH";
  record.version = "1.2";
  record.abi = "1.0";
  record.devices.push_back({0, "Acme 1", "a1", 1 << 30, "8f1a2c3d", "0000:17:00.0", 1});
  record.evidence.push_back({"device_node", "/dev/acme0", 1});
  record.notes = {"a note"};
  record.loaded_files = {"/lib/libacme.so"};
  core::UnitResult& unit = record.units.emplace_back();
  unit.op = "add", unit.implementation = "simple", unit.dtype = "f32", unit.variant = "a", unit.cases = 3;
  record.stop(loader::State::partial, loader::Place::child, loader::reason::kSomeFailed, "1 of 2");
  return record;
}

std::string try_record(const std::string& bytes) {
  loader::PluginRecord record, again;
  std::string error;
  if (!loader::record_from_json(bytes, &record, &error))
    return error.empty() ? "a record is refused without a word" : "";
  if (!loader::record_from_json(loader::record_to_json(record), &again, &error))
    return "a record that was read is not read again: " + error;
  return loader::record_to_json(again) == loader::record_to_json(record) ? "" : "a record changes when it is written";
}

// As the prober sends it and the cache keeps it.
std::string try_record_text(const std::string& bytes) {
  loader::PluginRecord record, again;
  std::string error;
  if (!loader::record_from_text(bytes, &record, &error))
    return error.empty() ? "a record is refused without a word" : "";
  if (!loader::record_from_text(loader::record_to_text(record), &again, &error))
    return "a record that was read is not read again: " + error;
  return loader::record_to_text(again) == loader::record_to_text(record) ? "" : "a record changes when it is written";
}

std::string protocol(const std::string& bytes, const testing::TempFolder&) {
  loader::FrameDecoder decoder;
  size_t frames = 0;
  for (size_t at = 0; at < bytes.size(); at += 7) {
    decoder.feed(std::string_view(bytes).substr(at, 7));
    while (const auto frame = decoder.next()) {
      if (++frames > bytes.size()) return "more frames than bytes";
      if (std::string wrong = try_record_text(frame->payload); !wrong.empty()) return wrong;
      loader::PluginRecord record;
      loader::ExamineOptions options;
      std::string error;
      if (!loader::decode_request(frame->payload, &record, &options, &error) && error.empty())
        return "a request is refused without a word";
    }
  }
  return decoder.broken() && decoder.error().empty() ? "broken without a word" : "";
}

loader::ChildProbe a_probe() {
  loader::ChildProbe probe;
  probe.owners = {{"cuda", "/opt/cuda.so"}};
  probe.canary = true;
  probe.by_operator = true;
  probe.operators = {"logp", "add"};
  return probe;
}

Seeds protocol_seeds() {
  using loader::FrameKind;
  const std::string record = loader::record_to_text(a_record());
  return {loader::encode_frame(FrameKind::request, loader::encode_request(a_record(), a_probe())),
          loader::encode_frame(FrameKind::phase, "create") + loader::encode_frame(FrameKind::beat, "add f32") +
              loader::encode_frame(FrameKind::message, record) + loader::encode_frame(FrameKind::result, record)};
}

// A verdict and a quarantine as the store keeps them, then the store's own file around them.
std::string cache(const std::string& bytes, const testing::TempFolder& folder) {
  for (const auto& attempt : {try_record, try_record_text})
    if (std::string wrong = attempt(bytes); !wrong.empty()) return wrong;
  loader::ResultKey key;
  key.id = "acme";
  loader::Store memory("");
  memory.put(key.name(), bytes);
  loader::ResultCache(&memory).find(key);
  loader::ResultCache(&memory).was_judged(key);
  memory.put(std::string(loader::kQuarantinePrefix) + "a-b", bytes);
  for (const auto& entry : loader::QuarantineList(&memory).in_force()) {
    loader::PluginRecord record = a_record();
    loader::apply({entry}, &memory, &record);
  }
  static uint64_t turn = 0;
  if (turn++ % 64 != 0) return "";  // files take their time
  folder.file("cache/" + key.name(), bytes, 0600);
  folder.file("cache/.crumbs-abc", bytes, 0600);
  loader::Store store(folder / "cache");
  loader::ResultCache(&store).find(key);
  loader::Breadcrumbs::collect(folder / "cache");
  return "";
}

Seeds cache_seeds() {
  loader::ResultKey key;
  key.id = "acme";
  loader::Store memory("");
  loader::ResultCache(&memory, [] { return int64_t{1000}; }).store(key, a_record());
  loader::QuarantineEntry entry;
  entry.key = "k", entry.id = "acme", entry.op = "add", entry.implementation = "simple", entry.dtype = "f32";
  entry.reason_code = "TIMEOUT", entry.reason = "has not returned";
  loader::QuarantineList(&memory).add(entry);
  Seeds all = {loader::record_to_json(a_record()), loader::record_to_text(a_record())};
  for (const char* prefix : {"probe-", "quarantine-"})
    for (const loader::StoreEntry& stored : memory.list(prefix)) all.push_back(memory.get(stored.name).value_or(""));
  return all;
}

std::string policy(const std::string& bytes, const testing::TempFolder& folder) {
  loader::Config config;
  rlk_error error{};
  error.struct_size = sizeof(error);
  const rlk_status status = loader::read_config(folder.file("policy", bytes), &config, &error);
  if (status != RLK_OK) return error.text[0] == '\0' ? "refused without a word" : "";
  core::Policy made;
  core::Policy::make([](const char*) { return nullptr; }, {}, config.policy, &made, &error);
  config.complete({});
  return "";
}

std::string allow(const std::string& bytes, const testing::TempFolder&) {
  std::set<std::string> files;
  size_t line = 0;
  if (!loader::parse_allow_list(bytes, &files, &line) && line == 0) return "refused without a line";
  for (const std::string& file : files)
    if (file.size() != 64) return "a name of another length";
  return "";
}

template <class Work>
std::string refuses_in_words(const Work& work) {
  try {
    work();
  } catch (const cli::UsageError& error) {
    return *error.what() == '\0' ? "refused without a word" : "";
  }
  return "";
}

std::string npy(const std::string& bytes, const testing::TempFolder& folder) {
  std::string wrong = refuses_in_words([&] { cli::parse_npy_header(bytes); });
  if (!wrong.empty()) return wrong;
  static uint64_t turn = 0;
  if (turn++ % 16 != 0) return "";
  return refuses_in_words([&] { cli::read_npy(folder.file("x.npy", bytes), std::nullopt); });
}

// The words of a command line, one a line.
std::string call(const std::string& bytes, const testing::TempFolder&) {
  static const cli::Verb verb = {"try",  "Tries.", "", "rlk-plugins try logp", {{"OP", true}}, cli::call_options(),
                                 nullptr};
  std::vector<std::string> words;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    words.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return refuses_in_words([&] {
    const cli::Arguments arguments = cli::parse_arguments(verb, words);
    cli::describe_call(cli::find_op(arguments.operand(0)), arguments);
  });
}

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"elf", 4000, [] { return Seeds{testing::read_text(RLK_TEST_OBJECTS "/tiny_plugin.so")}; }, {}, elf},
      {"protocol", 4000, protocol_seeds, {"RLK1", "\"units\":", "null"}, protocol},
      {"cache", 4000, cache_seeds, {"null", "[", "{", "\"schema\":", "-1"}, cache},
      {"policy", 1500, [] { return seeds_of("policy"); }, {"[", "]", "\"", "'''", "=", "include = ", "\n"}, policy},
      {"allow", 4000, [] { return seeds_of("allow"); }, {"\n", "#", "\\"}, allow},
      {"npy", 4000, [] { return seeds_of("npy"); }, {"(", "'descr': ", "None", "\n"}, npy},
      {"call", 4000, [] { return seeds_of("call"); }, {"--shape\n", "--param\n", "=", ",", "inf"}, call},
      {"accepted", 6000, call_seeds, {}, odd_call},
  };
  return all;
}

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Fuzz : public ::testing::TestWithParam<size_t> {};

TEST_P(Fuzz, SurvivesWhatNobodyMeant) {
  const Target& target = targets()[GetParam()];
  const Seeds seeds = target.seeds();
  ASSERT_FALSE(seeds.empty());
  const uint64_t first = number_of("RLK_FUZZ_FIRST", 1), seconds = number_of("RLK_FUZZ_SECONDS", 0);
  const uint64_t count = number_of("RLK_FUZZ_COUNT", seconds > 0 ? UINT64_MAX : target.count);
  // The number of the present input outlives the process.
  auto* const now = static_cast<std::atomic<uint64_t>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(now), MAP_FAILED);
  const testing::TempFolder folder;
  folder.folder("cache", 0700);
  const auto work = [&] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    for (uint64_t i = 0; i < count && (seconds == 0 || std::chrono::steady_clock::now() < until); ++i) {
      now->store(first + i);
      if (i % 64 == 0) alarm(60);
      const std::string wrong = target.run(input_of(first + i, seeds, target.words), folder);
      if (wrong.empty()) continue;
      std::fprintf(stderr, "%s\n", wrong.c_str());
      return 1;
    }
    return 0;
  };
  if (number_of("RLK_FUZZ_FORK", 1) == 0) {
    EXPECT_EQ(work(), 0);
    return;
  }
  const int code = testing::join(testing::in_fork([&] {
#ifndef RLK_SANITIZED
    const rlimit memory = {rlim_t{2} << 30, rlim_t{2} << 30};
    setrlimit(RLIMIT_AS, &memory);
#endif
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    return work();
  }));
  EXPECT_EQ(code, 0) << target.name << ", input " << *now << " of the same seeds";
  const uint64_t tried = *now - first + 1;
  std::printf("| %-8s | %8llu inputs |\n", target.name, static_cast<unsigned long long>(tried));
  munmap(static_cast<void*>(now), 4096);
}
INSTANTIATE_TEST_SUITE_P(Everything, Fuzz, ::testing::Range(size_t{0}, targets().size()),
                         [](const auto& instance) { return std::string(targets()[instance.param].name); });

// The loop itself can fail.
TEST(FuzzInputs, AreTheSameForTheSameNumberAndDiffer) {
  const Seeds seeds = {"a seed of some length", "another"};
  std::set<std::string> seen;
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(input_of(i, seeds, {"word"}), input_of(i, seeds, {"word"}));
    seen.insert(input_of(i, seeds, {"word"}));
  }
  EXPECT_GT(seen.size(), 150u);
}

}  // namespace
}  // namespace rlk::fuzz
