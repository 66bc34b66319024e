// What every operator declines.
#include "operator.hpp"

#include <algorithm>
#include <cctype>

namespace rlk::composed {

sdk::Refusal refuse_factors(const Factors& factors) {
  for (const Factor& factor : factors) {
    std::string code = factor.name;
    std::transform(code.begin(), code.end(), code.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (auto no = sdk::refuse_beyond_fp32(factor.value, code.c_str(), factor.name)) return no;
  }
  return std::nullopt;
}

bool has_f64(const std::vector<View>& views) {
  return std::any_of(views.begin(), views.end(),
                     [](const View& view) { return view.is_present() && view.dtype == sdk::Dtype::f64; });
}

}  // namespace rlk::composed
