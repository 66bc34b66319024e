// The words are what config.cpp reads.
#include "loader/api/policy_words.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "core/declaration/declaration.hpp"
#include "core/declaration/near_name.hpp"

namespace rlk::loader {
namespace {

using Names = std::vector<std::string>;

// In [dispatch] beside the operators.
constexpr const char* kOfDispatch[] = {"all", "numerics", "fallback", "watch", "call_timeout"};
// Of the whole file.
constexpr const char* kOfFile[] = {"include", "probe_retry", "require", "counters", "allow", "allow_list"};
constexpr const char* kEvidence[] = {"device_count",    "device_name", "device_node",     "driver",
                                     "driver_version",  "kernel",      "pci_device",      "pci_id",
                                     "runtime_library", "simt_width",  "runtime_symbols", "runtime_version"};
constexpr size_t kSlipsInEvidence = 2;

bool is_one_of(const std::string& name, const Names& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void add_operators(Names* names) {
  for (const core::OpDecl& decl : core::declarations()) names->emplace_back(decl.name);
}

}  // namespace

std::string problem_of_dispatch_name(const std::string& name, bool plain) {
  if (core::find_declaration(name) != nullptr) return {};
  Names settings(std::begin(kOfDispatch), std::end(kOfDispatch));
  if (plain) settings.insert(settings.end(), std::begin(kOfFile), std::end(kOfFile));
  if (is_one_of(name, settings)) return {};
  Names known = settings;
  add_operators(&known);
  const std::string near = core::near_name(name, known);
  if (!is_one_of(near, settings)) return {};
  return fmt::format("'{}' is neither a setting nor an operator, did you mean '{}'?", name, near);
}

std::string problem_of_operator(const std::string& which) {
  const std::string op = which.substr(0, which.find(':'));
  if (core::find_declaration(op) != nullptr) return {};
  Names known;
  add_operators(&known);
  const std::string near = core::near_name(op, known);
  return fmt::format(
      "has the operator '{}'{}", op,
      near.empty() ? ", which rlk does not have; `rlk-plugins ops` lists them" : ", did you mean '" + near + "'?");
}

std::string problem_of_evidence(const std::string& kind) {
  const Names known(std::begin(kEvidence), std::end(kEvidence));
  const std::string near = core::near_name(kind, known);
  if (near.empty() || core::slips_between(kind, near) == 0 || core::slips_between(kind, near) > kSlipsInEvidence)
    return {};
  return fmt::format("has seen '{}', did you mean '{}'?", kind, near);
}

}  // namespace rlk::loader
