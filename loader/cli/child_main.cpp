// The child's side of child.hpp: answers one request over the prober's protocol.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/dispatch/host.hpp"
#include "core/dispatch/registry.hpp"
#include "loader/api/config.hpp"
#include "loader/cli/child.hpp"
#include "loader/cli/verb.hpp"
#include "loader/discover/builtin.hpp"
#include "loader/loader.hpp"
#include "loader/probe/examine.hpp"
#include "loader/probe/process.hpp"
#include "loader/probe/protocol.hpp"
#include "loader/register/first_use.hpp"
#include "loader/register/register.hpp"
#include "loader/store/cache.hpp"

namespace rlk::cli {
namespace {

using loader::ChildChannel;
using loader::FrameKind;
using loader::PluginRecord;
using nlohmann::json;

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json records_json(const std::vector<loader::ProbedPlugin>& plugins) {
  json list = json::array();
  for (const loader::ProbedPlugin& plugin : plugins) list.push_back(record_to_json(plugin.record));
  return list;
}

loader::Config config_of(const loader::Environment& environment) {
  loader::Config config;  // one that cannot be read was told by the parent
  loader::read_config(environment.path("RLK_CONFIG").value_or(""), &config, nullptr);
  return config;
}

loader::SearchOptions search_options(const loader::Config& config) {
  return {config.plugin_path, loader::default_folders()};
}

std::string judge(ChildChannel* channel, const json& request) {
  const loader::Config config = config_of(loader::Environment::of_process());
  const loader::Environment environment = config.complete(loader::Environment::of_process());
  std::vector<std::string> notes;
  loader::Store& store =
      *new loader::Store(loader::choose_cache_folder(environment, loader::Identity::of_process(), &notes));
  loader::ProbeOptions options;
  options.environment = environment;
  options.host = core::host_services();
  options.store = &store;
  options.fresh = request.value("fresh", false);
  options.on_finished = [channel](const PluginRecord& record) {
    channel->send(FrameKind::message, text_of({{"verdict", record_to_json(record)}}));
  };
  channel->send(FrameKind::phase, kFindPhase);
  std::vector<loader::ProbedPlugin> plugins = loader::find_plugins(search_options(config), options);
  channel->send(FrameKind::message, text_of({{"records", records_json(plugins)}}));

  channel->send(FrameKind::phase, kRegisterPhase);
  static core::Registry registry;  // outlives the plugins, whose threads may run until the end
  // Neither is destroyed: a plugin that was given up may still be inside.
  auto* const first_uses = new loader::FirstUses(&store);
  first_uses->know(plugins);
  core::set_tracer([first_uses](const core::FirstUse& use) { return first_uses->leave(use); });
  loader::Registrar(&registry, options.host).publish(&plugins);
  core::set_tracer({});
  first_uses->end();
  return text_of(records_json(plugins));
}

// Plugins that may lend their devices to an operators-only plugin.
std::vector<loader::OwnerCandidate> owners_of(const PluginRecord& record, const loader::Environment& environment,
                                              const loader::ScreenOptions& screen) {
  if (record.backend == "cpu") return {{"cpu", ""}};
  std::vector<loader::OwnerCandidate> owners;
  for (PluginRecord other : loader::discover(environment, search_options(config_of(environment)))) {
    if (other.state == loader::State::discovered && loader::screen(&other, screen) && other.id != record.id &&
        other.backend == record.backend)
      owners.push_back({other.id, other.path});
  }
  return owners;
}

std::string conform(ChildChannel* channel, const json& request) {
  loader::Environment environment = loader::Environment::of_process();
  PluginRecord record;
  record.path = request.value("path", "");
  const bool is_file = !record.path.empty();
  record.source = is_file ? "command line" : loader::kBuiltInSource;
  record.id = is_file ? loader::id_from_file_name(record.path) : request.value("built_in", "");
  record.advance(loader::State::discovered, loader::Place::static_screen);

  const rlk_host* host = core::host_services();
  loader::ScreenOptions screen;
  screen.libraries = loader::LibrarySearch::of_system(environment);
  screen.host_abi = {host->abi_major, host->abi_minor, host->abi_draft};
  if (is_file && !loader::screen(&record, screen)) return record_to_json(record);

  loader::ExamineOptions options;
  options.host = host;
  options.owners = owners_of(record, environment, screen);
  options.suite.smoke = !request.value("full", false);
  options.suite.graph_replay = !options.suite.smoke;
  options.suite.op = request.value("op", "");
  options.suite.dtype = request.value("dtype", "");
  options.on_phase = [channel](const std::string& phase) { channel->send(FrameKind::phase, phase); };
  options.on_activity = [channel](const std::string& activity) { channel->send(FrameKind::beat, activity); };
  options.on_progress = [channel](const PluginRecord& now) { channel->send(FrameKind::message, record_to_json(now)); };
  loader::examine(&record, options);
  return record_to_json(record);
}

int answer(ChildChannel* channel) {
  const auto text = channel->receive_request();
  const json request = text ? json::parse(*text, nullptr, false) : json();
  if (!request.is_object()) return 3;
  try {
    const std::string result = request.value("do", "") == "judge" ? judge(channel, request) : conform(channel, request);
    return channel->send(FrameKind::result, result) ? 0 : 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rlk-plugins: %s\n", error.what());
    return 3;
  }
}

}  // namespace

void serve_as_child(int argc, char** argv) {
  const int socket = fcntl(loader::kProtocolFd, F_DUPFD_CLOEXEC, 200);  // away from code that guesses descriptors
  if (socket < 0) {
    std::fprintf(stderr, "rlk-plugins: %s is for rlk-plugins itself\n", kChildWord);
    _exit(kUsage);
  }
  close(loader::kProtocolFd);
  if (!loader::end_with_parent(argc, argv)) _exit(loader::kExitWithoutParent);
  ChildChannel channel(socket);
  const int code = answer(&channel);
  std::fflush(nullptr);
  _exit(code);  // without the exit handlers of vendors' runtimes
}

}  // namespace rlk::cli
