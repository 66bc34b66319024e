// What a verdict depends on beside the plugin's own file, and the name under which it is remembered.
#pragma once

#include <string>
#include <vector>

#include "loader/probe/probe.hpp"
#include "loader/probe/standing_report.hpp"
#include "loader/screen/screen.hpp"
#include "loader/store/cache.hpp"

namespace rlk::loader {

// Of one run over all plugins: the prober, its libraries and the machine's devices are looked up once.
class VerdictKeys {
public:
  // All outlive the keys. `prober` is the executable's path, "" where there is none.
  VerdictKeys(const ProbeOptions& options, const ScreenOptions& screen, const ReportShelf& reports,
              const std::string& prober);

  // `backend` stands for all files of the plugin's backend. Fills in the plugin's content hash.
  ResultKey key_of(ProbedPlugin* plugin, const std::string& backend) const;

private:
  const ProbeOptions& options_;
  const ReportShelf& reports_;
  std::string fingerprint_, host_;
  std::vector<std::string> libraries_of_prober_;
};

}  // namespace rlk::loader
