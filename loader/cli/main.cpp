// rlk-plugins: which plugins are here, what of them can be trusted, and why did this call go there?
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "loader/cli/child.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/variables.hpp"
#include "loader/cli/verbs.hpp"

namespace rlk::cli {
namespace {

std::vector<Verb> all_verbs() {
  return {verb_list(),        verb_doctor(),  verb_inspect(), verb_scope(), verb_probe(),      verb_ops(),
          verb_explain(),     verb_run(),     verb_bench(),   verb_cache(), verb_quarantine(), verb_lint(),
          verb_conformance(), verb_metrics(), verb_report(),  verb_new(),   verb_pack()};
}

void print_help(const std::vector<Verb>& verbs, std::FILE* to) {
  std::fprintf(to, "rlk-plugins VERB [options]\nrlk-plugins --version\n\n");
  for (const Verb& verb : verbs) std::fprintf(to, "  %-12s %s\n", verb.name, verb.summary);
  std::fprintf(to,
               "\nEvery verb has --help and --json. Exit codes: 0 fine (also when hardware is absent), 1 a plugin is\n"
               "broken or a call failed, 2 the command line is wrong.\n\nexample:\n  rlk-plugins list\n");
}

int fail(const std::string& verb, const char* text, int code) {
  std::fflush(output());
  std::fprintf(stderr, "rlk-plugins%s%s: %s\n", verb.empty() ? "" : " ", verb.c_str(), printable(text).c_str());
  if (code == kUsage) std::fprintf(stderr, "see rlk-plugins %s%s--help\n", verb.c_str(), verb.empty() ? "" : " ");
  return code;
}

int run(const std::vector<Verb>& verbs, const std::vector<std::string>& words) {
  const Verb* verb = nullptr;
  std::vector<std::string> names;
  for (const Verb& each : verbs) {
    names.emplace_back(each.name);
    if (words[0] == each.name) verb = &each;
  }
  if (verb == nullptr)
    return fail("", fmt::format("no verb is called '{}'{}", words[0], suggestion(words[0], names)).c_str(), kUsage);
  try {
    const Arguments arguments = parse_arguments(*verb, {words.begin() + 1, words.end()});
    if (arguments.has("help")) {
      std::fprintf(output(), "%s", help_text(*verb).c_str());
      return kFine;
    }
    // Doctor judges them itself.
    if (words[0] != "doctor") {
      for (const std::string& problem : problems_of_variables(loader::Environment::of_process()))
        std::fprintf(stderr, "rlk-plugins: warning: %s\n", printable(problem).c_str());
      forget_misspelt_variables();
    }
    return verb->run(arguments);
  } catch (const UsageError& error) {
    return fail(verb->name, error.what(), kUsage);
  } catch (const std::bad_alloc&) {
    return fail(verb->name, "no host memory left", kBroken);
  } catch (const std::exception& error) {
    return fail(verb->name, error.what(), kBroken);
  }
}

int answer(std::vector<std::string> words) {
  const std::vector<Verb> verbs = all_verbs();
  if (words.empty()) {
    print_help(verbs, stderr);
    return kUsage;
  }
  if (words == std::vector<std::string>{"help", "--json"}) {
    std::fprintf(output(), "%s\n", help_json(verbs).c_str());
    return kFine;
  }
  if (words[0] == "help" && words.size() > 1) words = {words[1], "--help"};
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help(verbs, output());
    return kFine;
  }
  if (words[0] == "--version") {
    const auto host = host_identity();
    std::fprintf(output(), "rlk %s, plugin ABI %s\n", host.version.c_str(), host.abi.c_str());
    return kFine;
  }
  return run(verbs, words);
}

// False for a full disk, or a pipe without a reader: what was asked for did not arrive.
bool has_arrived() {
  errno = 0;
  if (std::fflush(output()) == 0 && std::ferror(output()) == 0) return true;
  const int why = output_failure() != 0 ? output_failure() : errno;
  std::fprintf(stderr, "rlk-plugins: standard output was not written whole%s%s\n", why != 0 ? ": " : "",
               why != 0 ? std::strerror(why) : "");
  return false;
}

}  // namespace
}  // namespace rlk::cli

int main(int argc, char** argv) {
  using namespace rlk::cli;
  if (argc > 1 && std::strcmp(argv[1], kChildWord) == 0) serve_as_child(argc, argv);
  hold_standard_numbers();
  keep_output();
  const int code = answer({argv + 1, argv + argc});
  return has_arrived() || code != kFine ? code : kBroken;
}
