// Command lines into Arguments, and the help text of a verb. The only file that knows Boost.Program_options.
#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/declaration/near_name.hpp"
#include "loader/cli/verb.hpp"

namespace rlk::cli {
namespace {

namespace po = boost::program_options;

constexpr const char* kJsonHelp = "one JSON document on standard output";
constexpr const char* kHelpHelp = "this text";

std::string usage_line(const Verb& verb) {
  std::string line = std::string("rlk-plugins ") + verb.name;
  for (const Operand& operand : verb.operands)
    line += operand.required ? std::string(" ") + operand.name : " [" + std::string(operand.name) + "]";
  return line + " [options]";
}

po::options_description describe(const Verb& verb) {
  po::options_description options("options", 110);
  for (const Option& option : verb.options) {
    if (option.value == nullptr) {
      options.add_options()(option.name, option.help);
    } else {
      auto* value = po::value<std::vector<std::string>>()->value_name(option.value);
      options.add_options()(option.name, value, option.help);
    }
  }
  options.add_options()("json", kJsonHelp)("help,h", kHelpHelp);
  return options;
}

std::vector<std::string> beginning_with(std::string_view stem, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  std::copy_if(names.begin(), names.end(), std::back_inserter(out),
               [&](const std::string& name) { return name.compare(0, stem.size(), stem) == 0; });
  return out;
}

}  // namespace

std::string Arguments::value(const std::string& name, const std::string& otherwise) const {
  auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second.back();
}

std::vector<std::string> Arguments::values(const std::string& name) const {
  auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

Arguments parse_arguments(const Verb& verb, const std::vector<std::string>& words) {
  po::options_description options = describe(verb);
  po::options_description all;
  all.add(options).add_options()("operand", po::value<std::vector<std::string>>());
  po::positional_options_description operands;
  operands.add("operand", -1);

  po::variables_map map;
  try {
    namespace style = po::command_line_style;
    const int no_guessing = style::default_style & ~style::allow_guessing;
    po::store(po::command_line_parser(words).options(all).positional(operands).style(no_guessing).run(), map);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names = {"json", "help"};
    for (const Option& option : verb.options) names.push_back(option.name);
    const std::string name = error.get_option_name();  // with its dashes
    for (std::string& each : names) each.insert(0, "--");
    throw UsageError(fmt::format("unknown option {}{}", name, suggestion(name, names)));
  } catch (const po::error& error) {
    throw UsageError(error.what());
  }

  Arguments out;
  for (const auto& [name, value] : map) {
    if (name == "operand") {
      out.operands_ = value.as<std::vector<std::string>>();
    } else if (const auto* values = boost::any_cast<std::vector<std::string>>(&value.value())) {
      out.values_[name] = *values;
    } else {
      out.flags_.insert(name);
    }
  }
  if (out.has("help")) return out;
  for (const Option& option : verb.options) {
    if (!option.many && out.values(option.name).size() > 1)
      throw UsageError(std::string("--") + option.name + " was given twice; it takes one value");
    for (const std::string& value : out.values(option.name))
      if (value.empty())
        throw UsageError(fmt::format("--{} '': expected {}, {}", option.name, option.value, option.help));
  }
  if (out.operands_.size() > verb.operands.size()) {
    throw UsageError(
        fmt::format("unexpected word '{}'; expected {}", out.operands_[verb.operands.size()], usage_line(verb)));
  }
  for (size_t i = out.operands_.size(); i < verb.operands.size(); ++i) {
    if (verb.operands[i].required)
      throw UsageError(fmt::format("missing {}; expected {}", verb.operands[i].name, usage_line(verb)));
  }
  return out;
}

std::string help_text(const Verb& verb) {
  std::ostringstream out;
  out << usage_line(verb) << "\n\n" << verb.summary << "\n";
  if (*verb.details != 0) out << verb.details << "\n";
  out << "\n" << describe(verb) << "\nexample:\n  " << verb.example << "\n";
  return out.str();
}

std::string help_json(const std::vector<Verb>& verbs) {
  using nlohmann::ordered_json;
  ordered_json document = {{"schema", 1}, {"verbs", ordered_json::array()}};
  const std::vector<Option> shared = {{"json", nullptr, kJsonHelp}, {"help", nullptr, kHelpHelp}};
  for (const Verb& verb : verbs) {
    ordered_json one = {{"name", verb.name},
                        {"usage", usage_line(verb)},
                        {"summary", verb.summary},
                        {"details", verb.details},
                        {"example", verb.example},
                        {"operands", ordered_json::array()},
                        {"options", ordered_json::array()}};
    for (const Operand& operand : verb.operands)
      one["operands"].push_back({{"name", operand.name}, {"required", operand.required}});
    for (const std::vector<Option>* list : {&verb.options, &shared}) {
      for (const Option& option : *list) {
        one["options"].push_back({{"name", option.name},
                                  {"value", option.value != nullptr ? ordered_json(option.value) : ordered_json()},
                                  {"help", option.help},
                                  {"many", option.many}});
      }
    }
    document["verbs"].push_back(std::move(one));
  }
  return document.dump();
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  if (word.size() < 3) return {};  // every short name is near every other
  const std::string best = core::near_name(word, names);
  const std::vector<std::string> longer = beginning_with(word, names);
  return best.empty() && longer.size() == 1 ? longer[0] : best;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& names, const char* list) {
  if (names.empty()) return "; there is none";
  const std::string near = nearest(word, names);
  if (!near.empty()) return ", did you mean '" + near + "'?";
  const std::string_view stem = word.substr(0, word.find('_'));
  const std::vector<std::string> kin = stem.size() < 3 ? std::vector<std::string>() : beginning_with(stem, names);
  if (kin.empty() && list != nullptr) return "; " + std::string(list) + " lists the " + std::to_string(names.size());
  std::string known = kin.empty() ? "; known:" : "; of that kind there are:";
  for (const std::string& name : kin.empty() ? names : kin) known += " " + name;
  return known;
}

}  // namespace rlk::cli
