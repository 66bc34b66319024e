// Both forms of the policy file end in the same lists.
#include "loader/api/config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "core/declaration/declaration.hpp"
#include "core/declaration/error.hpp"
#include "core/dispatch/log.hpp"
#include "loader/api/counters.hpp"
#include "loader/api/policy_words.hpp"
#include "loader/api/toml.hpp"
#include "loader/api/toml_text.hpp"
#include "loader/screen/allow.hpp"
#include "loader/screen/trust.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {

std::vector<Required> required_of(const std::string& text) {
  std::vector<Required> wanted;
  for (const std::string& word : split(text, ',')) {
    const size_t colon = word.find(':');
    if (colon != std::string::npos) {
      wanted.push_back({word.substr(0, colon), {word.substr(colon + 1)}});
    } else if (!wanted.empty() && !wanted.back().operators.empty() && core::find_declaration(word) != nullptr) {
      wanted.back().operators.push_back(word);
    } else {
      wanted.push_back({word, {}});
    }
  }
  return wanted;
}

namespace {

namespace fs = std::filesystem;
constexpr int kMaxDepth = 8;
constexpr size_t kMaxFiles = 64;
constexpr size_t kMaxBytes = size_t{1} << 20;  // of all files together
constexpr const char* kRequire = "require";
constexpr const char* kProbeRetry = "probe_retry";
constexpr const char* kCounters = "counters";
constexpr const char* kAllow = "allow";
constexpr const char* kAllowList = "allow_list";

class Reader {
public:
  // misnamed: takes what [[known_bad]] says of operators that there are not, which is wrong when it is null.
  Reader(Config* out, std::vector<std::string>* misnamed) : out_(*out), misnamed_(misnamed) {}

  // False with the text of the first thing that is wrong.
  // by: file and line of the include, "" for the file that RLK_CONFIG or the program names.
  bool read(const fs::path& path, int depth, std::string* problem, const std::string& by = {}) {
    if (depth > kMaxDepth) {
      *problem = path.string() + ": include goes deeper than 8 files: does a file include itself?";
      return false;
    }
    if (path == "/dev/null") return true;
    if (++files_ > kMaxFiles) {
      *problem = fmt::format("{}: more than {} files are included; a file that is included twice counts twice",
                             path.string(), kMaxFiles);
      return false;
    }
    struct stat status = {};
    const UniqueFd fd = open_regular(path.string(), &status);
    if (!fd) {
      *problem = fmt::format(
          "{}{}: cannot be read: {}; {}", by.empty() ? "" : by + ": the included file ", path.string(),
          errno == ENOTSUP ? std::string("it is a folder, a pipe or a device, not a file") : errno_text(errno),
          by.empty() ? "make it readable, or set RLK_CONFIG to another policy file (/dev/null: none)"
                     : "correct the include; a relative name begins at the file that it stands in");
      return false;
    }
    const auto read = read_file(path.string(), kMaxBytes);
    if (!read || read->size() > kMaxBytes - bytes_) {
      *problem = fmt::format(
          "{}: cannot be read, or is larger than a policy may be: {} KiB with all that is included; "
          "it has {} bytes",
          path.string(), kMaxBytes >> 10, status.st_size);
      return false;
    }
    const std::string& text = *read;
    bytes_ += text.size();
    return looks_plain(text) ? read_lines(path, text, depth, problem) : read_toml(path, text, depth, problem);
  }

private:
  static std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
  }

  // Plain lines have values without quotes, and no table headers.
  static bool looks_plain(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      line = trimmed(line.substr(0, line.find('#')));
      if (line.empty()) continue;
      const size_t equals = line.find('=');
      return line[0] != '[' && equals != std::string::npos && line.find_first_of("\"'[{", equals) == std::string::npos;
    }
    return false;
  }

  bool include(const fs::path& from, size_t line, const std::string& name, int depth, std::string* problem) {
    const fs::path path(name);
    return read(path.is_absolute() ? path : from.parent_path() / path, depth + 1, problem,
                fmt::format("{}:{}", from.string(), line));
  }

  void note_origin(const char* variable, const char* setting, const fs::path& path, size_t line) {
    out_.origins[variable] = fmt::format("{}:{}: {}", path.string(), line, setting);
  }

  void preference(std::string op, std::string value, const fs::path& path, size_t line) {
    if (op == "all") op.clear();
    out_.policy.push_back({std::move(op), std::move(value), fmt::format("{}:{}", path.string(), line)});
  }

  // which: "attention" or "attention:fused".
  void off(const std::string& which, const std::string& reason, const fs::path& path, size_t line) {
    const size_t colon = which.find(':');
    core::PolicyEntry entry;
    entry.op = which.substr(0, colon);
    entry.value = colon == std::string::npos ? "" : which.substr(colon + 1);
    entry.source = fmt::format("{}:{}", path.string(), line);
    entry.off = reason;
    out_.policy.push_back(std::move(entry));
  }

  bool probe_retry(const std::string& value, const fs::path& path, size_t line, std::string* problem) {
    if (int64_t seconds = 0; !parse_retry_seconds(value, &seconds)) {
      *problem = fmt::format("{}:{}: {} is {}; expected seconds from 0 to 86400", path.string(), line, kProbeRetry,
                             value.empty() ? "not a whole number" : "'" + value + "'");
      return false;
    }
    out_.probe_retry = value;
    note_origin("RLK_PROBE_RETRY", kProbeRetry, path, line);
    return true;
  }

  bool counters(const std::string& value, const fs::path& path, size_t line, std::string* problem) {
    const std::string wrong = value.empty() ? "is not a text" : problem_of_counters(value);
    if (!wrong.empty()) {
      *problem = fmt::format("{}:{}: {} {}", path.string(), line, kCounters, wrong);
      return false;
    }
    out_.counters = value;
    note_origin("RLK_COUNTERS", kCounters, path, line);
    return true;
  }

  bool allow(const std::string& value, const fs::path& path, size_t line, std::string* problem) {
    if (AllowMode mode; !parse_allow_mode(value, &mode)) {
      *problem = fmt::format("{}:{}: allow is '{}'; expected off, warn or require", path.string(), line, value);
      return false;
    }
    out_.allow = value;
    note_origin("RLK_ALLOW", kAllow, path, line);
    return true;
  }

  void allow_list(const std::string& value, const fs::path& from, size_t line) {
    const fs::path list(value);
    note_origin("RLK_ALLOW_LIST", kAllowList, from, line);
    out_.allow_list = (list.is_absolute() ? list : fs::absolute(from).parent_path() / list).lexically_normal().string();
  }

  bool read_lines(const fs::path& path, const std::string& text, int depth, std::string* problem) {
    std::istringstream lines(text);
    size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      line = trimmed(line.substr(0, line.find('#')));
      if (line.empty()) continue;
      const size_t equals = line.find('=');
      const std::string key = trimmed(line.substr(0, std::min(equals, line.size())));
      const std::string value = equals == std::string::npos ? "" : trimmed(line.substr(equals + 1));
      if (key.empty() || value.empty()) {
        *problem = fmt::format("{}:{}: '{}' is not a line `operator = backend`", path.string(), number, line);
        return false;
      }
      if (key == "include") {
        if (!include(path, number, value, depth, problem)) return false;
      } else if (key == kProbeRetry) {
        if (!probe_retry(value, path, number, problem)) return false;
      } else if (key == kRequire) {
        out_.require = value;
        note_origin("RLK_REQUIRE", kRequire, path, number);
      } else if (key == kCounters) {
        if (!counters(value, path, number, problem)) return false;
      } else if (key == kAllow) {
        if (!allow(value, path, number, problem)) return false;
      } else if (key == kAllowList) {
        allow_list(value, path, number);
      } else if (const std::string wrong = problem_of_dispatch_name(key, true); !wrong.empty()) {
        *problem = fmt::format("{}:{}: {}", path.string(), number, wrong);
        return false;
      } else {
        preference(key, value, path, number);
      }
    }
    return true;
  }

  bool read_toml(const fs::path& path, const std::string& text, int depth, std::string* problem) {
    if (const size_t line = first_beyond_ascii(text); line > 0) {
      *problem = fmt::format(
          "{}:{}: a character that is not ASCII, outside of texts and comments; keys that have one are quoted",
          path.string(), line);
      return false;
    }
    toml::table table;
    try {
      table = toml::parse(text, path.string());
    } catch (const toml::parse_error& e) {
      *problem = fmt::format("{}:{}: {}", path.string(), e.source().begin.line, e.description());
      return false;
    } catch (const std::logic_error& e) {
      *problem = path.string() + ": " + e.what();
      return false;
    }
    const auto complain = [&](const toml::node& node, const std::string& what) {
      *problem = fmt::format("{}:{}: {}", path.string(), node.source().begin.line, what);
      return false;
    };
    // Included files first, so that this file's own lines come out stronger.
    if (const toml::node* node = table.get("include")) {
      for (const toml::node* item : texts_of(*node)) {
        const auto name = item->value<std::string>();
        if (!name) return complain(*item, "include is a file name or a list of them");
        if (!include(path, item->source().begin.line, *name, depth, problem)) return false;
      }
    }
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (name == "include") continue;
      if (name == "plugin_path") {
        for (const toml::node* item : texts_of(node)) {
          const auto folder = item->value<std::string>();
          if (!folder) return complain(*item, "plugin_path is a path or a list of paths");
          out_.plugin_path.push_back({*folder, path.string(), false});
        }
      } else if (name == kProbeRetry) {
        const auto seconds = node.value<int64_t>();
        if (!probe_retry(seconds ? std::to_string(*seconds) : "", path, node.source().begin.line, problem))
          return false;
      } else if (name == kCounters) {
        if (!counters(node.value<std::string>().value_or(""), path, node.source().begin.line, problem)) return false;
      } else if (name == kAllow) {
        if (!allow(node.value<std::string>().value_or(""), path, node.source().begin.line, problem)) return false;
      } else if (name == kAllowList) {
        const auto list = node.value<std::string>();
        if (!list || list->empty()) return complain(node, "allow_list is the path of a file, a text");
        allow_list(*list, path, node.source().begin.line);
      } else if (name == kRequire) {
        out_.require.clear();
        note_origin("RLK_REQUIRE", kRequire, path, node.source().begin.line);
        for (const toml::node* item : texts_of(node)) {
          const auto backend = item->value<std::string>();
          if (!backend) return complain(*item, "require is a backend or a list of them");
          out_.require += (out_.require.empty() ? "" : ",") + *backend;
        }
      } else if (name == "use_known_bad") {
        for (const toml::node* item : texts_of(node)) {
          const auto who = item->value<std::string>();
          if (!who) return complain(*item, "use_known_bad is a plugin's id or a list of them");
          out_.use_known_bad.push_back(*who);
        }
      } else if (name == "known_bad") {
        for (const toml::node* item : texts_of(node)) {
          KnownBad bad;
          const std::string wrong = read_known_bad(*item, &bad);
          if (!wrong.empty()) return complain(*item, "known_bad " + wrong);
          bad.source = fmt::format("{}:{}", path.string(), item->source().begin.line);
          out_.known_bad.push_back(std::move(bad));
        }
      } else if (name == "off" && node.is_table()) {
        for (const auto& [which, why] : *node.as_table()) {
          const auto reason = why.value<std::string>();
          if (!reason || reason->empty())
            return complain(why, "off." + std::string(which.str()) + " is the reason, a text");
          off(std::string(which.str()), *reason, path, why.source().begin.line);
        }
      } else if (name == "dispatch" && node.is_table()) {
        for (const auto& [key_of, value] : *node.as_table()) {
          const std::string op(key_of.str());
          if (const std::string wrong = problem_of_dispatch_name(op, false); !wrong.empty())
            return complain(value, "[dispatch] " + wrong);
          std::string said;
          const std::string wrong = read_dispatch(op, value, &said);
          if (!wrong.empty()) return complain(value, fmt::format("dispatch.{} is {}", op, wrong));
          preference(op, said, path, value.source().begin.line);
        }
      } else {
        return complain(node,
                        "'" + name +
                            "' is not known here; known are include, plugin_path, probe_retry, require, counters, "
                            "allow, allow_list, use_known_bad, [[known_bad]], [off] and [dispatch]");
      }
    }
    return true;
  }

  // What is wrong with the entry, "" when nothing is.
  std::string read_known_bad(const toml::node& node, KnownBad* out) const {
    const toml::table* table = node.as_table();
    if (table == nullptr) return "is a list of tables, [[known_bad]]";
    for (const auto& [key, value] : *table) {
      const auto text = value.value<std::string>();
      const toml::table* seen = value.as_table();
      if (key == "plugin" && text) {
        out->plugin = *text;
      } else if (key == "reason" && text) {
        out->reason = *text;
      } else if (key == "operators") {
        for (const toml::node* item : texts_of(value))
          out->operators.push_back(item->value<std::string>().value_or(""));
        if (std::count(out->operators.begin(), out->operators.end(), "") > 0) return "operators are a list of texts";
        for (const std::string& which : out->operators) {
          std::string wrong = problem_of_operator(which);
          if (!wrong.empty() && misnamed_ == nullptr) return wrong;
          if (!wrong.empty()) misnamed_->push_back(std::move(wrong));
        }
      } else if (key == "seen" && seen != nullptr && seen->size() == 1 && seen->begin()->second.is_string()) {
        out->evidence = seen->begin()->first.str();
        out->value = *seen->begin()->second.value<std::string>();
        if (std::string wrong = problem_of_evidence(out->evidence); !wrong.empty()) return wrong;
      } else {
        return "has '" + std::string(key.str()) +
               "'; expected the texts plugin and reason, seen = { KIND = \"VALUE\" } and operators, a list";
      }
    }
    if (out->plugin.empty() || out->reason.empty() || out->evidence.empty()) return "needs plugin, seen and reason";
    return "";
  }

  // What the value should have been, "" when it is that.
  static std::string read_dispatch(const std::string& op, const toml::node& value, std::string* said) {
    if (op == "numerics") {
      for (const toml::node* item : texts_of(value)) {
        const auto one = item->value<std::string>();
        if (!one) return "a list of classes like [\"accurate\"]";
        *said += (said->empty() ? "" : ",") + *one;
      }
      return "";
    }
    const bool is_number = op == "watch" || op == "call_timeout";
    if (value.is_string()) return *said = *value.value<std::string>(), "";
    if (is_number && value.is_integer()) return *said = std::to_string(*value.value<int64_t>()), "";
    if (is_number && value.is_floating_point()) return *said = fmt::format("{}", *value.value<double>()), "";
    if (op == "watch") return "a share of calls like 0.001, or \"first\" or \"off\"";
    if (op == "call_timeout") return "seconds like 600, or \"off\"";
    if (op == "fallback") return "a text: \"allow\", \"warn\" or \"strict\"";
    return "a text like \"cuda:cudnn\"";
  }

  static std::vector<const toml::node*> texts_of(const toml::node& node) {
    std::vector<const toml::node*> items;
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& item : *list) items.push_back(&item);
    } else {
      items.push_back(&node);
    }
    return items;
  }

  Config& out_;
  std::vector<std::string>* const misnamed_;
  size_t files_ = 0;
  size_t bytes_ = 0;
};

}  // namespace

Environment Config::complete(Environment environment) const {
  for (const auto& [variable, value] : {std::pair("RLK_PROBE_RETRY", &probe_retry),
                                        {"RLK_REQUIRE", &require},
                                        {"RLK_COUNTERS", &counters},
                                        {"RLK_ALLOW", &allow},
                                        {"RLK_ALLOW_LIST", &allow_list}}) {
    if (value->empty() || !environment.values.try_emplace(variable, *value).second) continue;
    if (const auto who = origins.find(variable); who != origins.end()) environment.origins[variable] = who->second;
  }
  return environment;
}

rlk_status read_config(const std::vector<std::string>& paths, std::vector<std::string>* misnamed, Config* out,
                       rlk_error* error) {
  *out = {};
  std::string problem;
  Reader reader(out, misnamed);
  for (const std::string& path : paths)
    if (!reader.read(path, 0, &problem)) return core::fail(error, RLK_INVALID_ARGUMENT, problem);
  // The strongest entry comes first: a later line, and the including file, win.
  std::reverse(out->policy.begin(), out->policy.end());
  return RLK_OK;
}

rlk_status read_config(const std::vector<std::string>& paths, Config* out, rlk_error* error) {
  return read_config(paths, nullptr, out, error);
}

rlk_status read_config(const std::string& path, Config* out, rlk_error* error) {
  return read_config(path.empty() ? std::vector<std::string>() : std::vector{path}, out, error);
}

}  // namespace rlk::loader
