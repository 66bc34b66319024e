// Plugins that were found good become candidates of dispatch: loaded in this process, their verified units published.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/dispatch/registry.hpp"
#include "loader/probe/attempt.hpp"
#include "loader/probe/probe.hpp"

namespace rlk::loader {

// [one call at a time; no lock is held while a plugin's code runs]
class Registrar {
public:
  // Both outlive the registrar.
  Registrar(core::Registry* registry, const rlk_host* host) : registry_(*registry), host_(*host) {}
  // Destroys every plugin's instance: nothing may use what was published any more. The registrar of a whole process is
  // better never destroyed, because what vendor runtimes do at exit has crashed many a process.
  ~Registrar();
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // Publishes the built-in CPU alone, unverified: it serves class tolerance while the others are probed. What the
  // record says on return is why it could not, should that ever be.
  void publish_built_in(PluginRecord* record);

  // Publishes the next generation: every plugin that ended in smoke_tested or partial, loaded now if it was not yet,
  // and the reasons of all others. Of plugins that own the same devices the first is published. A record that was
  // published is `registered` (or stays `partial`); one that could not be loaded here becomes `rejected`. The built-in
  // is always registered, with the reason if it is unverified. A plugin whose code does not come back is given up when
  // patience ends (`deferred`), and the others are loaded. Instances and the handles of devices, which are opened
  // when first used, live as long as the registrar.
  void publish(std::vector<ProbedPlugin>* plugins, const Patience& patience = Patience::of_process());

private:
  struct Opening;
  std::optional<Failure> load(const ProbedPlugin& plugin, const Patience& patience);
  std::optional<Failure> refuse_second_owner(const std::string& id, std::vector<const core::PluginBinding*>* owners,
                                             PluginRecord* record) const;
  std::optional<Failure> lend_devices(const std::string& id, const std::vector<const core::PluginBinding*>& owners);

  core::Registry& registry_;
  const rlk_host& host_;
  std::map<std::string, core::PluginBinding> live_;  // by id
  std::shared_ptr<Opening> stuck_in_linker_;         // holds the dynamic linker's lock
};

}  // namespace rlk::loader
