// The public C API with C++ lifetimes.
#include "loader/cli/session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "loader/cli/child.hpp"
#include "loader/probe/load.hpp"

namespace rlk::cli {
namespace {

std::string list_text(rlk_runtime* runtime) {
  rlk_error error = RLK_ERROR_INIT;
  char* text = nullptr;
  check(rlk_list_json(runtime, &text, &error), error);
  return take_text(text);
}

nlohmann::json list_of(rlk_runtime* runtime) {
  return nlohmann::json::parse(list_text(runtime));
}

const char* environment(const char* name) {
  return std::getenv(name);
}

// Of "cuda", "cuda:fused", or "acme/fused": a plugin's name, whose backend the list tells. Empty: there is no such
// plugin.
std::string backend_of(rlk_runtime* runtime, const std::string& preference) {
  const size_t slash = preference.find('/');
  if (slash == std::string::npos) return preference.substr(0, preference.find(':'));
  const nlohmann::json list = list_of(runtime);
  for (const auto& plugin : list.at("plugins")) {
    if (plugin.at("id").get<std::string>() == preference.substr(0, slash))
      return plugin.at("backend").get<std::string>();
  }
  return {};
}

}  // namespace

void check(rlk_status status, const rlk_error& error) {
  if (status == RLK_OK) return;
  std::string text = error.text;
  if (text.empty()) text = "rlk answered " + loader::status_name(status);
  if (status == RLK_INVALID_ARGUMENT) throw UsageError(text);
  throw Failure(text);
}

std::string take_text(char* text) {
  std::string out = text == nullptr ? "" : text;
  rlk_string_free(text);
  return out;
}

Session::Session() {
  if (const std::string problem = config_problem(); !problem.empty()) throw Failure("RLK_CONFIG: " + problem);
  rlk_error error = RLK_ERROR_INIT;
  const rlk_runtime_options options = RLK_RUNTIME_OPTIONS_INIT;
  check(rlk_runtime_create(&options, &runtime_, &error), error);
}

Session::~Session() {
  if (stream_ != nullptr) rlk_stream_destroy(stream_, nullptr);
  rlk_runtime_destroy(runtime_, nullptr);
}

void Session::close() {
  if (stream_ == nullptr) return;
  rlk_error error = RLK_ERROR_INIT;
  const rlk_status status = rlk_stream_destroy(stream_, &error);
  stream_ = nullptr;
  check(status, error);
}

rlk_device_properties Session::properties() const {
  rlk_error error = RLK_ERROR_INIT;
  rlk_device_properties properties{};
  properties.struct_size = sizeof(properties);
  check(rlk_device_describe(runtime_, backend_.c_str(), 0, &properties, &error), error);
  return properties;
}

bool Session::unified_memory() const {
  return (properties().flags & RLK_DEVICE_UNIFIED_MEMORY) != 0;
}

std::string Session::list_json() const {
  return list_text(runtime_);
}

std::vector<std::string> Session::backends() const {
  std::vector<std::string> backends = {"cpu"};
  const nlohmann::json list = list_of(runtime_);
  for (const auto& plugin : list.at("plugins")) {
    const std::string backend = plugin.at("backend").get<std::string>();
    uint32_t devices = 0;
    if (rlk_device_count(runtime_, backend.c_str(), &devices, nullptr) != RLK_OK || devices == 0) continue;
    if (std::find(backends.begin(), backends.end(), backend) == backends.end()) backends.push_back(backend);
  }
  return backends;
}

void Session::open(const std::string& backend) {
  close();
  rlk_error error = RLK_ERROR_INIT;
  check(rlk_stream_create(runtime_, backend.c_str(), 0, 0, &stream_, &error), error);
  backend_ = backend;
}

void Session::open_for(const OpCall& call, const std::string& pin) {
  std::string variable = "RLK_OP_";
  for (const char* c = call.decl->name; *c != 0; ++c)
    variable += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  for (const char* preference : {pin.c_str(), environment(variable.c_str()), environment("RLK_BACKEND")}) {
    if (preference == nullptr || *preference == 0) continue;
    uint32_t devices = 0;
    const std::string backend = backend_of(runtime_, preference);
    // If a variable names what is not there, dispatch says so.
    if (backend.empty() && !pin.empty()) {
      throw UsageError(fmt::format("--backend {}: no plugin is called '{}'; see rlk-plugins list", pin,
                                   pin.substr(0, pin.find('/'))));
    }
    const bool here = rlk_device_count(runtime_, backend.c_str(), &devices, nullptr) == RLK_OK && devices > 0;
    return open(here ? backend : "cpu");
  }
  for (const std::string& backend : backends()) {
    if (backend == "cpu") continue;
    open(backend);
    std::string plugin;
    chosen_of(explain_json(call, call_options_of("", 0)), &plugin);
    if (!plugin.empty() && plugin != "cpu") return;
  }
  open("cpu");
}

void* Session::allocate(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  rlk_error error = RLK_ERROR_INIT;
  check(rlk_allocate(stream_, RLK_MEMORY_DEVICE, bytes, &memory, &error), error);
  return memory;
}

void Session::deallocate(void* memory) {
  if (memory == nullptr) return;
  rlk_error error = RLK_ERROR_INIT;
  check(rlk_deallocate(stream_, memory, &error), error);
}

void Session::upload(void* device, const void* host, uint64_t bytes) {
  if (bytes == 0) return;
  rlk_error error = RLK_ERROR_INIT;
  check(rlk_copy(stream_, device, host, bytes, RLK_COPY_HOST_TO_DEVICE, &error), error);
}

void Session::download(void* host, const void* device, uint64_t bytes) {
  if (bytes == 0) return;
  rlk_error error = RLK_ERROR_INIT;
  check(rlk_copy(stream_, host, device, bytes, RLK_COPY_DEVICE_TO_HOST, &error), error);
}

void Session::synchronize() {
  rlk_error error = RLK_ERROR_INIT;
  check(rlk_stream_synchronize(stream_, UINT64_MAX, &error), error);
}

std::string Session::explain_json(const OpCall& call, const rlk_call_options& options) const {
  const TensorPointers inputs(call.inputs);
  const TensorPointers outputs(call.outputs);
  rlk_error error = RLK_ERROR_INIT;
  char* text = nullptr;
  check(rlk_explain_json(stream_, find_api_op(*call.decl), call.params.data(), inputs.data(), inputs.size(),
                         outputs.data(), outputs.size(), &options, &text, &error),
        error);
  return take_text(text);
}

std::string chosen_of(const std::string& explain_json, std::string* plugin) {
  const nlohmann::json explained = nlohmann::json::parse(explain_json);
  const auto chosen = explained.find("chosen");
  if (chosen == explained.end() || !chosen->is_object()) return "";
  const std::string id = chosen->value("plugin", "");
  if (plugin != nullptr) *plugin = id;
  return id.empty() ? "" : id + "/" + chosen->value("implementation", "");
}

const rlk_op* find_api_op(const core::OpDecl& decl) {
  const rlk_op* op = nullptr;
  rlk_error error = RLK_ERROR_INIT;
  check(rlk_op_find(decl.name, &op, &error), error);
  return op;
}

rlk_call_options call_options_of(const std::string& pin, uint32_t numerics) {
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  options.numerics = numerics;
  options.pin = pin.empty() ? nullptr : pin.c_str();
  return options;
}

}  // namespace rlk::cli
