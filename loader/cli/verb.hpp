// What a verb of rlk-plugins is: its words on the command line, its help, its exit code.
#pragma once

#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rlk::cli {

// Scripts rely on these: absent hardware is fine; a plugin with a defect, or a call that failed, is not.
enum ExitCode : int { kFine = 0, kBroken = 1, kUsage = 2 };

// The command line cannot be carried out as written. The text says what was seen, what was expected and what to do.
class UsageError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

// The command line was fine, carrying it out failed.
class Failure : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

struct Option {
  const char* name;   // without the dashes
  const char* value;  // the word that stands for its value in the help; nullptr: a flag
  const char* help;
  bool many = false;  // may be repeated
};

struct Operand {
  const char* name;
  bool required;
};

// The words of one command line, after parsing.
class Arguments {
public:
  bool has(const std::string& name) const { return flags_.count(name) != 0 || values_.count(name) != 0; }
  // The last value given, or `otherwise`.
  std::string value(const std::string& name, const std::string& otherwise = {}) const;
  std::vector<std::string> values(const std::string& name) const;
  // Empty when the operand was left out.
  std::string operand(size_t index) const { return index < operands_.size() ? operands_[index] : std::string(); }
  bool json() const { return has("json"); }

private:
  friend Arguments parse_arguments(const struct Verb&, const std::vector<std::string>&);
  std::set<std::string> flags_;
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> operands_;
};

struct Verb {
  const char* name;
  const char* summary;
  const char* details;  // further lines of the help, may be ""
  const char* example;
  std::vector<Operand> operands;
  std::vector<Option> options;  // besides --json and --help, which every verb has
  int (*run)(const Arguments&);
};

// Throws UsageError. --help is a flag like any other here.
Arguments parse_arguments(const Verb& verb, const std::vector<std::string>& words);
std::string help_text(const Verb& verb);
// The help of all verbs as a document: what the man page and the shell's completion are made of.
std::string help_json(const std::vector<Verb>& verbs);

// The name of `names` that `word` most likely meant: a slip away, or the only one that begins with it; or "".
std::string nearest(std::string_view word, const std::vector<std::string>& names);
// ", did you mean 'x'?" or "; known: a b c", of many names those that begin like the word; where none is near and
// `list` tells a command that lists them, that.
std::string suggestion(std::string_view word, const std::vector<std::string>& names, const char* list = nullptr);

}  // namespace rlk::cli
