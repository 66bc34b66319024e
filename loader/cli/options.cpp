// Command lines into Arguments, and the help text of a verb. The only file that knows Boost.Program_options.
#include <algorithm>
#include <boost/program_options.hpp>
#include <numeric>
#include <sstream>

#include "loader/cli/verb.hpp"

namespace rlk::cli {
namespace {

namespace po = boost::program_options;

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
  options.add_options()("json", "one JSON document on standard output")("help,h", "this text");
  return options;
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
    std::string name = error.get_option_name();
    name.erase(0, name.find_first_not_of('-'));
    for (std::string& each : names) each.insert(0, "--");
    throw UsageError("unknown option --" + name + suggestion("--" + name, names));
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
  }
  if (out.operands_.size() > verb.operands.size()) {
    throw UsageError("unexpected word '" + out.operands_[verb.operands.size()] + "'; expected " + usage_line(verb));
  }
  for (size_t i = out.operands_.size(); i < verb.operands.size(); ++i) {
    if (verb.operands[i].required)
      throw UsageError(std::string("missing ") + verb.operands[i].name + "; expected " + usage_line(verb));
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

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  size_t best_distance = word.size() / 3 + 2;  // further away is another word, not a slip
  for (const std::string& name : names) {
    std::vector<size_t> row(name.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i + 1;
      for (size_t j = 0; j < name.size(); ++j) {
        const size_t replaced = diagonal + (word[i] == name[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best = name;
      best_distance = row.back();
    }
  }
  return best;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  const std::string near = nearest(word, names);
  if (!near.empty()) return ", did you mean '" + near + "'?";
  std::string known = "; known:";
  for (const std::string& name : names) known += " " + name;
  return known;
}

}  // namespace rlk::cli
