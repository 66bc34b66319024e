#include "core/dispatch/call/measured_cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/declaration/declaration.hpp"

namespace rlk::core {
namespace {

constexpr double kFar = 1.0;  // in powers of two

// How many powers of two lie between them; infinite where one of the sizes is too far.
double distance(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (a[i] <= 0 || b[i] <= 0) return std::numeric_limits<double>::infinity();
    const double own = std::abs(std::log2(static_cast<double>(a[i]) / static_cast<double>(b[i])));
    if (own > kFar) return std::numeric_limits<double>::infinity();
    sum += own;
  }
  return sum;
}

}  // namespace

std::string kind_of_call(const BoundCall& call, const std::vector<std::string>& features) {
  std::string kind = name_of(call.dtypes[0]);
  for (const std::string& feature : features) kind += " " + feature;
  return kind;
}

std::vector<int64_t> sizes_of_call(const BoundCall& call) {
  return {call.symbols.begin(), call.symbols.begin() + static_cast<std::ptrdiff_t>(call.decl->symbols.size())};
}

double measured_cost(const std::vector<const MeasuredCost*>& known, const std::string& kind,
                     const std::vector<int64_t>& sizes, double stated_us) {
  const MeasuredCost* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const MeasuredCost* one : known) {
    if (one->kind != kind) continue;
    const double its = distance(one->sizes, sizes);
    if (its < least) least = its, nearest = one;
  }
  if (nearest == nullptr) return 0;
  const bool scales = stated_us > 0 && nearest->stated_us > 0;
  return scales ? nearest->measured_us * stated_us / nearest->stated_us : nearest->measured_us;
}

}  // namespace rlk::core
