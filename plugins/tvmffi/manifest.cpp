// Reading the manifest: every word is known or refused, and what a kernel does not take is what it declines.
#include "plugins/tvmffi/manifest.hpp"

#include <rlk/abi.h>
#include <rlk/sdk/error.hpp>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <sys/stat.h>
#include <unistd.h>

// An assertion of toml++'s parser that fails is an exception, as any other mistake in the file, in release builds too.
// The same words as loader/api/toml.hpp: rlk-plugins has both.
namespace rlk {
constexpr void toml_expects(bool holds) {
  if (!holds) throw std::logic_error("it is no TOML");
}
}  // namespace rlk
#undef NDEBUG
#define TOML_ASSERT(expr) ::rlk::toml_expects(static_cast<bool>(expr))
#include <toml++/toml.h>

namespace rlk::tvmffi {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw sdk::Error(RLK_INVALID_ARGUMENT, "the manifest of kernels: " + text);
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

template <class T>
int64_t find(const T* list, uint32_t count, const std::string& name) {
  for (uint32_t i = 0; i < count; ++i) {
    if (name == list[i].name) return i;
  }
  return -1;
}

// A table of the file, every key of which is asked for or refused.
class Table {
public:
  Table(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& text) const { refuse(where_ + ": " + text); }
  Table inner(const toml::table& table, const std::string& name) const { return {table, where_ + ": " + name}; }
  void expect_known(const std::vector<std::string>& keys) const {
    for (const auto& [key, value] : table_) {
      const std::string name(key.str());
      if (std::find(keys.begin(), keys.end(), name) == keys.end())
        fail("\"" + name + "\" is no key; expected " + joined(keys));
    }
  }
  const toml::node* find(const char* key) const { return table_.get(key); }
  std::string text(const char* key, const std::string& otherwise) const {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto value = node->value_exact<std::string>();
    if (!value || value->empty()) fail(std::string(key) + " must be a text");
    return *value;
  }
  std::string required(const char* key) const {
    std::string value = text(key, {});
    if (value.empty()) fail(std::string(key) + " is missing");
    return value;
  }
  bool flag(const char* key, bool otherwise) const {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto value = node->value_exact<bool>();
    if (!value) fail(std::string(key) + " must be true or false");
    return *value;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    const toml::node* node = find(key);
    if (node == nullptr) return out;
    if (!node->is_array()) fail(std::string(key) + " must be a list of texts");
    for (const toml::node& item : *node->as_array()) {
      const auto value = item.value_exact<std::string>();
      if (!value) fail(std::string(key) + " must be a list of texts");
      out.push_back(*value);
    }
    return out;
  }
  const toml::table& raw() const { return table_; }

private:
  const toml::table& table_;
  const std::string where_;
};

std::vector<std::string> names_of(const Operator& op) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < op.n_inputs; ++i) names.emplace_back(op.inputs[i].name);
  for (uint32_t i = 0; i < op.n_outputs; ++i) {
    if (op.outputs[i].alias < 0) names.emplace_back(op.outputs[i].name);
  }
  for (uint32_t i = 0; i < op.n_params; ++i) names.emplace_back(op.params[i].name);
  for (uint32_t i = 0; i < op.n_symbols; ++i) names.emplace_back(op.symbols[i]);
  return names;
}

Slot slot_of(const Table& table, const Operator& op, const toml::node& item) {
  Slot slot = {Slot::Kind::constant, 0, {kNone, 0, {0}}, {}, {}};
  if (const auto number = item.value_exact<int64_t>()) {
    slot.constant.type_index = kInt;
    slot.constant.i64 = *number;
  } else if (const auto real = item.value_exact<double>()) {
    slot.constant.type_index = kFloat;
    slot.constant.f64 = *real;
  } else if (const auto truth = item.value_exact<bool>()) {
    slot.constant.type_index = kBool;
    slot.constant.i64 = *truth ? 1 : 0;
  } else if (const auto name = item.value_exact<std::string>()) {
    const auto as = [&](Slot::Kind kind, int64_t index) {
      slot.kind = kind;
      slot.index = static_cast<uint32_t>(index);
      return slot;
    };
    if (name->size() > 1 && name->front() == '=') {  // "=word": the text itself
      slot.constant.type_index = kRawStr;
      slot.text = name->substr(1);
      return slot;
    }
    if (const int64_t i = find(op.inputs, op.n_inputs, *name); i >= 0) return as(Slot::Kind::input, i);
    if (const int64_t i = find(op.outputs, op.n_outputs, *name); i >= 0) return as(Slot::Kind::output, i);
    if (const int64_t i = find(op.params, op.n_params, *name); i >= 0) return as(Slot::Kind::parameter, i);
    for (uint32_t i = 0; i < op.n_symbols; ++i) {
      if (*name == op.symbols[i]) return as(Slot::Kind::symbol, i);
    }
    if (*name == "none") return slot;  // as it was made: None
    if (*name == "workspace") return as(Slot::Kind::workspace, 0);
    if (*name == "data_error_record") return as(Slot::Kind::data_error_record, 0);
    if (*name == "data_error_tag") return as(Slot::Kind::data_error_tag, 0);
    table.fail("arguments names \"" + *name + "\"; " + op.name + " has " + joined(names_of(op)) +
               ", none, workspace, data_error_record, data_error_tag");
  } else {
    if (!item.is_array()) table.fail("arguments holds what is no name, number, truth value or list of them");
    slot.kind = Slot::Kind::list;
    for (const toml::node& one : *item.as_array()) {
      const Slot inner = slot_of(table, op, one);
      if (inner.kind != Slot::Kind::constant || inner.constant.type_index == kRawStr)
        table.fail("a list among the arguments holds numbers, truth values and \"none\"");
      slot.items.push_back(inner.constant);
    }
  }
  return slot;
}

// Outputs that the function writes over an input, or "never". Left out: in place or not, it is all the same to it.
void read_in_place(const Table& table, Kernel* kernel) {
  const Operator& op = *kernel->op;
  const toml::node* node = table.find("in_place");
  if (node == nullptr) return;
  kernel->is_never_in_place = node->value_exact<std::string>() == "never";
  if (kernel->is_never_in_place) return;
  if (!node->is_table()) table.fail("in_place must be \"never\" or a table of outputs and inputs: { y = \"x\" }");
  for (const auto& [key, value] : *node->as_table()) {
    const std::string name(key.str());
    const int64_t output = find(op.outputs, op.n_outputs, name);
    if (output < 0) table.fail("in_place names \"" + name + "\", which is no output of " + op.name);
    const int64_t input = find(op.inputs, op.n_inputs, value.value_exact<std::string>().value_or(""));
    if (input < 0 || !kernel->takes_input[static_cast<size_t>(input)])
      table.fail("in_place." + name + " must be an input among the arguments");
    if (kernel->takes_output[static_cast<size_t>(output)])
      table.fail("in_place names " + name +
                 ", which is among the arguments: an output is written there, or over an input");
    for (const auto& [other, over] : kernel->in_place) {
      if (over == static_cast<uint32_t>(input)) table.fail("in_place names an input twice");
    }
    kernel->in_place[static_cast<uint32_t>(output)] = static_cast<uint32_t>(input);
    kernel->takes_output[static_cast<size_t>(output)] = true;
  }
}

void read_arguments(const Table& table, Kernel* kernel) {
  const Operator& op = *kernel->op;
  const toml::node* list = table.find("arguments");
  if (list == nullptr || !list->is_array()) table.fail("arguments must be a list, in the order of the function's");
  kernel->takes_input.assign(op.n_inputs, false);
  kernel->takes_output.assign(op.n_outputs, false);
  kernel->needs_input.assign(op.n_inputs, false);
  for (const toml::node& item : *list->as_array()) {
    Slot slot = slot_of(table, op, item);
    if (slot.kind == Slot::Kind::input) kernel->takes_input[slot.index] = true;
    if (slot.kind == Slot::Kind::output) kernel->takes_output[slot.index] = true;
    kernel->slots.push_back(std::move(slot));
  }
  for (uint32_t i = 0; i < op.n_inputs; ++i) {
    if (!kernel->takes_input[i] && !op.inputs[i].is_optional)
      table.fail(std::string("arguments lacks the input ") + op.inputs[i].name + ", which is always there");
  }
  read_in_place(table, kernel);
  for (uint32_t i = 0; i < op.n_outputs; ++i) {
    const int32_t alias = op.outputs[i].alias;
    if (alias >= 0 && kernel->takes_input[static_cast<size_t>(alias)]) kernel->takes_output[i] = true;
    if (!kernel->takes_output[i] && !op.outputs[i].is_optional)
      table.fail(std::string("arguments lacks the output ") + op.outputs[i].name + ", which no kernel would write");
  }
  for (const std::string& name : table.texts("requires")) {
    const int64_t i = find(op.inputs, op.n_inputs, name);
    if (i < 0 || !kernel->takes_input[static_cast<size_t>(i)])
      table.fail("requires names \"" + name + "\", which is no input among the arguments");
    kernel->needs_input[static_cast<size_t>(i)] = true;
  }
}

std::string tensor_name(const Operator& op, const Slot& slot) {
  if (slot.kind == Slot::Kind::input) return op.inputs[slot.index].name;
  return slot.kind == Slot::Kind::output ? op.outputs[slot.index].name : "";
}

void read_dtypes(const Table& table, Kernel* kernel) {
  const toml::node* list = table.find("dtypes");
  const auto fail = [&](const std::string& text) { table.fail("dtypes " + text); };
  if (list == nullptr || !list->is_array() || list->as_array()->empty())
    fail("must be a list of tables, each with a dtype for every tensor among the arguments");
  for (const toml::node& item : *list->as_array()) {
    if (!item.is_table()) fail("must be a list of tables: [{ x = \"f32\", y = \"f32\" }]");
    const toml::table& one = *item.as_table();
    std::vector<std::string> known;
    std::vector<sdk::Dtype>& row = kernel->dtypes.emplace_back();
    for (const Slot& slot : kernel->slots) {
      const std::string name = tensor_name(*kernel->op, slot);
      row.push_back(sdk::Dtype::other);
      if (name.empty()) continue;
      known.push_back(name);
      const toml::node* word = one.get(name);
      const auto text = word != nullptr ? word->value_exact<std::string>() : std::nullopt;
      if (!text) fail("has a table without the dtype of " + name);
      for (int i = 0; i < static_cast<int>(sdk::Dtype::other); ++i) {
        if (*text == sdk::kDtypes[i].name) row.back() = static_cast<sdk::Dtype>(i);
      }
      if (row.back() == sdk::Dtype::other) fail("says \"" + *text + "\" of " + name + ", expected f32, bf16, i64, ...");
    }
    table.inner(one, "a table of dtypes").expect_known(known);
  }
}

void read_sizes(const Table& table, Kernel* kernel) {
  const toml::node* node = table.find("sizes");
  if (node == nullptr) return;
  const Operator& op = *kernel->op;
  if (!node->is_table()) table.fail("sizes must be a table: { H = { min = 1, max = 8192, multiple = 8 } }");
  const std::vector<std::string> symbols(op.symbols, op.symbols + op.n_symbols);
  for (const auto& [key, value] : *node->as_table()) {
    const std::string name(key.str());
    const auto at = std::find(symbols.begin(), symbols.end(), name);
    if (at == symbols.end()) table.fail("sizes names \"" + name + "\"; " + op.name + " has " + joined(symbols));
    if (!value.is_table()) table.fail("sizes." + name + " must be a table of min, max, multiple, times, of");
    const Table limits = table.inner(*value.as_table(), "sizes." + name);
    limits.expect_known({"min", "max", "multiple", "times", "of"});
    SizeRule& rule = kernel->sizes[static_cast<uint32_t>(at - symbols.begin())];
    const auto number = [&](const char* word, int64_t otherwise) {
      const toml::node* given = limits.find(word);
      const auto n = given != nullptr ? given->value_exact<int64_t>() : otherwise;
      if (!n || *n < 0) limits.fail(std::string(word) + " must be a whole number");
      return *n;
    };
    rule = {number("min", 0), number("max", INT64_MAX), std::max<int64_t>(number("multiple", 1), 1)};
    const std::string other = limits.text("of", {});
    if (other.empty() != (limits.find("times") == nullptr)) limits.fail("times and of go together");
    if (other.empty()) continue;
    const auto of = std::find(symbols.begin(), symbols.end(), other);
    if (of == symbols.end()) limits.fail("of names \"" + other + "\"; " + op.name + " has " + joined(symbols));
    rule.of = of - symbols.begin();
    rule.times = number("times", 1);
    if (rule.times < 1 || rule.times > 1 << 20) limits.fail("times must be from 1 to 1048576");
  }
}

double setting_of(const Table& table, const Parameter& parameter, const toml::node& value) {
  if (parameter.type == 'e') {
    const auto word = value.value_exact<std::string>();
    std::vector<std::string> words(parameter.words, parameter.words + parameter.n_words);
    const auto at = word ? std::find(words.begin(), words.end(), *word) : words.end();
    if (at == words.end()) table.fail(std::string("parameters.") + parameter.name + " expects " + joined(words));
    return static_cast<double>(at - words.begin());
  }
  const auto number = value.value<double>();
  if (!number) table.fail(std::string("parameters.") + parameter.name + " expects a number");
  return *number;
}

ParameterRule limits_of(const Table& table, const Parameter& parameter, const toml::table& given) {
  const std::string where = std::string("parameters.") + parameter.name;
  if (parameter.type == 'e') table.fail(where + " is one of some words: it has no min and no max");
  const Table limits = table.inner(given, where);
  limits.expect_known({"min", "max"});
  ParameterRule rule;
  const auto read = [&](const char* word, double* to) {
    const toml::node* node = limits.find(word);
    if (node != nullptr) *to = setting_of(table, parameter, *node);
  };
  read("min", &rule.min);
  read("max", &rule.max);
  return rule;
}

// What a parameter may be: what `parameters` says; its default where the function does not take it; else anything.
void read_settings(const Table& table, Kernel* kernel) {
  const Operator& op = *kernel->op;
  for (uint32_t i = 0; i < op.n_params; ++i) {
    const bool is_taken = std::any_of(kernel->slots.begin(), kernel->slots.end(), [&](const Slot& slot) {
      return slot.kind == Slot::Kind::parameter && slot.index == i;
    });
    const Parameter& parameter = op.params[i];
    if (!is_taken)
      kernel->settings[i].values = {parameter.type == 'f' ? parameter.f64 : static_cast<double>(parameter.i64)};
  }
  const toml::node* node = table.find("parameters");
  if (node == nullptr) return;
  if (!node->is_table()) table.fail("parameters must be a table: { causal = \"on\" }");
  for (const auto& [key, value] : *node->as_table()) {
    const std::string name(key.str());
    const int64_t i = find(op.params, op.n_params, name);
    if (i < 0) table.fail("parameters names \"" + name + "\", which " + op.name + " does not have");
    const Parameter& parameter = op.params[i];
    ParameterRule& rule = kernel->settings[static_cast<uint32_t>(i)];
    rule = ParameterRule();
    if (value.is_table()) {
      rule = limits_of(table, parameter, *value.as_table());
    } else if (!value.is_array()) {
      rule.values.push_back(setting_of(table, parameter, value));
    } else {
      for (const toml::node& one : *value.as_array()) rule.values.push_back(setting_of(table, parameter, one));
    }
  }
}

uint64_t workspace_of(const Table& table, const Kernel& kernel) {
  const bool is_taken = std::any_of(kernel.slots.begin(), kernel.slots.end(),
                                    [](const Slot& slot) { return slot.kind == Slot::Kind::workspace; });
  const toml::node* node = table.find("workspace_bytes");
  if (is_taken != (node != nullptr)) table.fail("workspace among the arguments and workspace_bytes go together");
  const auto bytes = node != nullptr ? node->value_exact<int64_t>() : 0;
  if (!bytes || (is_taken && *bytes < 1)) table.fail("workspace_bytes must be a whole number of at least 1");
  return static_cast<uint64_t>(*bytes);
}

uint32_t numerics_of(const Table& table) {
  uint32_t out = RLK_NUMERICS_TOLERANCE;
  for (const std::string& word : table.texts("claims")) {
    if (word == "accurate") {
      out |= RLK_NUMERICS_ACCURATE;
    } else if (word == "deterministic") {
      out |= RLK_NUMERICS_DETERMINISTIC;
    } else if (word == "batch_invariant") {
      out |= RLK_NUMERICS_BATCH_INVARIANT;
    } else if (word == "portable") {
      out |= RLK_NUMERICS_PORTABLE;
    } else if (word != "tolerance") {
      table.fail("claims names \"" + word +
                 "\"; expected tolerance, accurate, deterministic, batch_invariant, portable");
    }
  }
  return out;
}

int32_t level_of(const Table& table) {
  const std::string word = table.text("level", "preferred");
  if (word == "preferred") return RLK_SUPPORT_PREFERRED;
  if (word == "ok") return RLK_SUPPORT_OK;
  if (word == "slow") return RLK_SUPPORT_SLOW;
  table.fail("level is \"" + word + "\", expected preferred, ok or slow");
}

// A kernel for vectors of 16 bytes that is given less faults, and takes the whole process's device with it.
uint32_t alignment_of(const Table& table) {
  constexpr int64_t kUsual = 16, kMost = 128;  // plans are made for no more than 128
  const toml::node* node = table.find("alignment");
  const auto bytes = node != nullptr ? node->value_exact<int64_t>() : kUsual;
  if (!bytes || *bytes < 1 || *bytes > kMost || (*bytes & (*bytes - 1)) != 0)
    table.fail("alignment must be a power of two from 1 to 128");
  return static_cast<uint32_t>(*bytes);
}

bool takes_objects(const Table& table) {
  const std::string word = table.text("tensors", "views");
  if (word != "views" && word != "objects") table.fail("tensors is \"" + word + "\", expected views or objects");
  return word == "objects";
}

Kernel read_kernel(const Table& table, const std::string& folder) {
  table.expect_known({"operator", "name", "library", "symbol", "device", "arguments", "requires", "dtypes", "sizes",
                      "parameters", "in_place", "workspace_bytes", "tensors", "alignment", "claims", "level",
                      "contiguous", "capturable"});
  Kernel kernel;
  const std::string op = table.required("operator");
  const auto* found =
      std::find_if(std::begin(kOperators), std::end(kOperators), [&](const Operator& one) { return op == one.name; });
  if (found == std::end(kOperators)) table.fail("rlk has no operator \"" + op + "\"; rlk-plugins ops lists them");
  kernel.op = found;
  kernel.symbol = table.required("symbol");
  kernel.name = table.text("name", kernel.symbol);
  if (kernel.name.size() > 31) table.fail("name has more than 31 letters");
  kernel.library = table.required("library");
  if (kernel.library.front() != '/') kernel.library = folder + "/" + kernel.library;
  read_arguments(table, &kernel);
  read_dtypes(table, &kernel);
  read_sizes(table, &kernel);
  read_settings(table, &kernel);
  kernel.workspace_bytes = workspace_of(table, kernel);
  kernel.takes_objects = takes_objects(table);
  kernel.alignment = alignment_of(table);
  kernel.numerics = numerics_of(table);
  kernel.level = level_of(table);
  kernel.is_contiguous = table.flag("contiguous", true);
  if (!kernel.is_contiguous && !kernel.in_place.empty()) table.fail("in_place goes with contiguous tensors alone");
  kernel.is_capturable = table.flag("capturable", false);
  return kernel;
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) refuse(path + " cannot be read");
  return text.str();
}

}  // namespace

std::string trusted_path(const std::string& path) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) refuse(path + " does not exist");
  std::string place = real;
  for (bool is_file = true; !place.empty(); is_file = false) {
    struct stat status = {};
    if (stat(place.c_str(), &status) != 0) refuse(place + " cannot be looked at");
    const bool is_own = status.st_uid == 0 || status.st_uid == geteuid();
    // In a sticky folder a user cannot rename what belongs to another user.
    const bool is_sticky = !is_file && (status.st_mode & S_ISVTX) != 0;
    // The loader's rule for plugins: root's group is root.
    const bool by_group = (status.st_mode & S_IWGRP) != 0 && status.st_gid != getegid() && status.st_gid != 0;
    const bool by_all = (status.st_mode & S_IWOTH) != 0;
    if (!is_own || ((by_group || by_all) && !is_sticky))
      refuse(path + ": other users could replace " + place + "; chown it to yourself and chmod go-w");
    if (is_file && !S_ISREG(status.st_mode)) refuse(path + " is no file");
    place = place == "/" ? "" : place.substr(0, std::max<size_t>(place.rfind('/'), place.rfind('/') == 0 ? 1 : 0));
  }
  return real;
}

Manifest read_manifest(const std::string& path, const std::string& backend) {
  if (path.front() != '/') refuse("\"" + path + "\" is no path from /; write it whole");
  const std::string text = text_of_file(trusted_path(path));
  // toml++ 3.3 must not meet some bytes outside of texts; TOML can write every letter in ASCII.
  const auto beyond = std::find_if(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
  if (beyond != text.end())
    refuse(path + ":" + std::to_string(1 + std::count(text.begin(), beyond, '\n')) +
           ": a letter beyond ASCII; write it as \\u and four hexadecimal digits");
  try {
    const toml::table file = toml::parse(text, path);
    const Table whole(file, path);
    whole.expect_known({"schema", "name", "version", "runtime", "kernel"});
    const toml::node* schema = whole.find("schema");
    if (schema == nullptr || schema->value_exact<int64_t>() != 1) whole.fail("schema = 1 is missing");
    const std::string folder = path.substr(0, path.rfind('/'));
    Manifest out;
    out.name = whole.text("name", {});
    out.version = whole.text("version", {});
    out.runtime = whole.text("runtime", {});
    if (!out.runtime.empty() && out.runtime.front() != '/') out.runtime = folder + "/" + out.runtime;
    const toml::node* kernels = whole.find("kernel");
    if (kernels == nullptr || !kernels->is_array() || kernels->as_array()->empty())
      whole.fail("there is no [[kernel]]");
    for (const toml::node& node : *kernels->as_array()) {
      const std::string where = path + ":" + std::to_string(node.source().begin.line);
      if (!node.is_table()) refuse(where + ": kernel must be a table, [[kernel]]");
      const Table table(*node.as_table(), where);
      Kernel kernel = read_kernel(table, folder);
      const std::string device = table.text("device", "cpu");
      if (device != "cpu" && device != "cuda" && device != "rocm")
        table.fail("device is \"" + device + "\", expected cpu, cuda or rocm");
      const auto same = [&](const Kernel& other) { return other.op == kernel.op && other.name == kernel.name; };
      if (device != backend) continue;
      if (std::any_of(out.kernels.begin(), out.kernels.end(), same))
        table.fail("a second kernel " + kernel.name + " of " + kernel.op->name + "; give it another name");
      out.kernels.push_back(std::move(kernel));
    }
    return out;
  } catch (const toml::parse_error& error) {
    refuse(path + ":" + std::to_string(error.source().begin.line) + ": " + std::string(error.description()));
  } catch (const std::logic_error& error) {
    refuse(path + ": " + error.what());
  }
}

}  // namespace rlk::tvmffi
