// Plugins that were found good become candidates of dispatch: loaded in this process, their verified units published.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/dispatch/call/registry.hpp"
#include "loader/probe/attempt.hpp"
#include "loader/probe/probe.hpp"
#include "loader/register/beside.hpp"

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
  // Published again, a plugin whose file has other content is loaded beside its old one and takes its place; where the
  // new file is refused the old one goes on. The records of old ones, which go on or are retired, are added behind.
  void publish(std::vector<ProbedPlugin>* plugins, const Patience& patience = Patience::of_process());

  // What the last publish did to plugins that were there before, or were not.
  struct Change {
    enum class Kind : uint8_t { added, replaced, refused, retired };
    Kind kind = Kind::added;
    PluginRecord record;  // of the new file, but of one that is retired the old one's
  };
  const std::vector<Change>& changes() const { return changes_; }

private:
  struct Opening;
  // A file that was loaded. Never freed: streams, plans and threads of the vendor's may be inside.
  struct Generation {
    core::PluginBinding binding;
    LoadedFile file;
    std::string content;
    std::map<const rlk_plugin_instance*, Devices> attached;  // of an operators-only plugin, by the owner
    bool was_published = false;
    PluginRecord record;  // as it was published last
  };
  // The next generation while it is put together.
  struct Next {
    std::map<std::string, Generation*> by_id;
    std::vector<const core::PluginBinding*> owners;  // in search order
  };
  std::optional<Failure> load(const ProbedPlugin& plugin, const Patience& patience, Next* next);
  Generation* find_loaded(const ProbedPlugin& plugin);
  std::optional<Failure> refuse_worse(const PluginRecord& record) const;
  // The one that goes on because this file, which was to replace it, is refused; nullptr: there is none.
  Generation* find_refused(const ProbedPlugin& refused, const Next& next) const;
  std::optional<Failure> refuse_second_owner(const Generation& generation, Next* next, PluginRecord* record) const;
  std::optional<Failure> lend_devices(Generation* generation, const Next& next) const;
  void note_changes(const Next& next, std::vector<ProbedPlugin>* plugins);

  core::Registry& registry_;
  const rlk_host& host_;
  std::vector<std::unique_ptr<Generation>> loaded_;
  std::map<std::string, Generation*> live_;  // by id: what is published
  std::vector<Change> changes_;
  std::shared_ptr<Opening> hung_in_linker_;  // holds the dynamic linker's lock
};

}  // namespace rlk::loader
