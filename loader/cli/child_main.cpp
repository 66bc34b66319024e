// The child's side of child.hpp: answers one request over the prober's protocol.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/dispatch/call/registry.hpp"
#include "loader/api/config.hpp"
#include "loader/api/policy_files.hpp"
#include "loader/cli/child.hpp"
#include "loader/cli/conform.hpp"
#include "loader/cli/verb.hpp"
#include "loader/host/services.hpp"
#include "loader/loader.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/guard.hpp"
#include "loader/probe/protocol.hpp"
#include "loader/register/first_use.hpp"
#include "loader/register/register.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/file.hpp"

namespace rlk::cli {
namespace {

using loader::ChildChannel;
using loader::FrameKind;
using loader::PluginRecord;
using nlohmann::json;

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The records after registration, without their units: those the parent has already, and registration changes none.
std::string records_of(const std::vector<loader::ProbedPlugin>& plugins) {
  json list = json::array();
  for (const loader::ProbedPlugin& plugin : plugins) list.push_back(record_to_text(plugin.record));
  return text_of(list);
}

loader::Config config_of(const loader::Environment& environment) {
  loader::Config config;  // the parent has reported one that cannot be read
  loader::read_config(loader::policy_files(environment), &config, nullptr);
  loader::add_platform_policies(environment, loader::default_folders(), &config);
  return config;
}

loader::SearchOptions search_options(const loader::Config& config) {
  return {config.plugin_path, loader::default_folders()};
}

// That these plugins, with these verdicts, were loaded into one process and serve there: it is remembered for an hour,
// because a vendor's runtime takes a tenth of a second and more to start, for every line of `list`. What failed is not:
// the next process tries again, and so does the next `list`.
class Registration {
public:
  static constexpr int64_t kSeconds = 3600;

  Registration(loader::Store* store, const loader::Environment& environment, const std::string& prober)
      : store_(*store), depends_(loader::content_hash(store, prober).value_or(prober) + "\n") {
    // A plugin may read any variable while it is loaded. These say where a shell stands.
    static constexpr const char* kOfShells[] = {"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES"};
    for (const auto& [name, value] : environment.values) {
      if (std::find(std::begin(kOfShells), std::end(kOfShells), name) == std::end(kOfShells))
        depends_ += name + "=" + value + "\n";
    }
  }
  // `text` is the record with its units, as record_to_text writes it.
  void depends_on(const loader::ProbedPlugin& plugin, const std::string& text) {
    PluginRecord timeless = plugin.record;
    timeless.history.clear();
    timeless.units.clear();
    depends_ += plugin.content + " " + record_to_text(timeless) + text.substr(text.find('\n') + 1);
  }
  std::optional<std::string> remembered() const {
    const auto entry = store_.get(kName);
    const std::string of_this = loader::hash_bytes(depends_) + " ";
    const size_t end = entry ? entry->find('\n') : std::string::npos;
    if (end == std::string::npos || !entry->starts_with(of_this)) return std::nullopt;
    const int64_t age = std::time(nullptr) - std::strtoll(entry->c_str() + of_this.size(), nullptr, 10);
    if (age < 0 || age > kSeconds) return std::nullopt;
    return entry->substr(end + 1);
  }
  void remember(const std::string& result) {
    store_.put(kName, fmt::format("{} {}\n{}", loader::hash_bytes(depends_), std::time(nullptr), result));
  }

private:
  static constexpr const char* kName = "registered";  // the last one alone

  loader::Store& store_;
  std::string depends_;
};

std::string judge(ChildChannel* channel, const json& request) {
  const loader::Config config = config_of(loader::Environment::of_process());
  const loader::Environment environment = config.complete(loader::Environment::of_process());
  const auto warn = [](bool is_warning, const std::string& text) {
    if (is_warning) std::fprintf(stderr, "rlk-plugins: %s\n", text.c_str());
  };
  loader::Store& store = *new loader::Store(loader::open_store(environment, loader::Identity::of_process(), warn));
  loader::ProbeOptions options;
  options.environment = environment;
  options.host = loader::host_services();
  options.store = &store;
  options.fresh = request.value("fresh", false);
  options.fresh_builtin = request.value("builtin", true);
  const bool tries_all = request.value("all", false) || options.fresh || loader::is_eager(environment);
  options.trial = tries_all ? loader::TrialScope::all : loader::TrialScope::first_look;
  options.known_bad = config.known_bad;
  options.use_known_bad = config.use_known_bad;
  const bool whole = request.value("verdicts", false), in_short = request.value("in_short", false);
  options.on_probing = [channel](const std::vector<std::string>& ids) {
    channel->send(FrameKind::message, text_of({{"probing", ids.size()}}));
  };
  options.on_finished = [channel, whole](const PluginRecord& record) {
    json news = {{"judged", record.id}, {"state", to_string(record.state)}};
    if (whole) news["verdict"] = record_to_text(record);
    channel->send(FrameKind::message, text_of(news));
  };
  channel->send(FrameKind::phase, kFindPhase);
  std::vector<loader::ProbedPlugin> plugins = loader::find_plugins(search_options(config), options);
  Registration registration(&store, environment, loader::find_prober(environment));
  for (loader::ProbedPlugin& plugin : plugins) {
    const std::string text = record_to_text(plugin.record);
    if (in_short) plugin.record.units = loader::representative_units(plugin.record.units);
    channel->send(FrameKind::message, kRecordMark + (in_short ? record_to_text(plugin.record) : text));
    plugin.record.units.clear();  // thousands; no call is made here
    registration.depends_on(plugin, text);
  }
  channel->send(FrameKind::message, text_of({{"found", plugins.size()}}));
  if (request.value("remember", false)) {
    if (auto known = registration.remembered()) return *known;
  }

  channel->send(FrameKind::phase, kRegisterPhase);
  static core::Registry registry;  // outlives the plugins, whose threads may run until the end
  // Neither is destroyed: a plugin that was given up may still be inside.
  auto* const first_uses = new loader::FirstUses(&store);
  first_uses->know(plugins);
  core::set_tracer([first_uses, channel](const core::FirstUse& use) {
    channel->send(FrameKind::message, text_of({{"enters", use.plugin}}));  // this may be the last word of this process
    channel->send(FrameKind::beat, fmt::format("{} of plugin {}", use.phase, use.plugin));
    return first_uses->leave(use);
  });
  const std::vector<loader::ProbedPlugin> passed = plugins;
  loader::Registrar(&registry, options.host).publish(&plugins);
  core::set_tracer({});
  first_uses->end();
  std::string result = records_of(plugins);
  const bool all_serve = std::equal(passed.begin(), passed.end(), plugins.begin(), plugins.end(),
                                    [](const loader::ProbedPlugin& before, const loader::ProbedPlugin& now) {
                                      return !may_run(before.record) || serves(now.record);
                                    });
  if (all_serve) registration.remember(result);
  return result;
}

std::string conform(ChildChannel* channel, const std::string& request) {
  ConformanceNews news;
  news.phase = [channel](const std::string& phase) { channel->send(FrameKind::phase, phase); };
  news.activity = [channel](const std::string& activity) { channel->send(FrameKind::beat, activity); };
  news.progress = [channel](const PluginRecord& now) { channel->send(FrameKind::message, record_to_json(now)); };
  return serve_conformance(request, news,
                           [channel](const std::string& text) { return channel->send(FrameKind::message, text); });
}

int answer(ChildChannel* channel) {
  const auto text = channel->receive_request();
  const json request = text ? json::parse(*text, nullptr, false) : json();
  if (!request.is_object()) return 3;
  try {
    const std::string result = request.value("do", "") == "judge" ? judge(channel, request) : conform(channel, *text);
    return channel->send(FrameKind::result, result) ? 0 : 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rlk-plugins: %s\n", error.what());
    return 3;
  }
}

}  // namespace

void serve_as_child(int argc, char** argv) {
  if (fcntl(loader::kProtocolFd, F_GETFD) < 0) {
    std::fprintf(stderr, "rlk-plugins: %s is for rlk-plugins itself\n", kChildWord);
    _exit(kUsage);
  }
  if (!loader::enter_guarded(argc, argv)) _exit(loader::kExitWithoutParent);
  const int socket = loader::move_protocol_socket();
  close(loader::kProtocolFd);
  ChildChannel channel(socket);
  const int code = answer(&channel);
  std::fflush(nullptr);
  _exit(code);  // without the exit handlers of vendors' runtimes
}

}  // namespace rlk::cli
