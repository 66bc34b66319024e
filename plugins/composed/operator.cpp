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

double cost_of_call(const Speed& speed, const rlk_call_desc& desc) {
  double bytes = 0;
  const auto add = [&](const rlk_tensor* const* tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      if (tensors[i] == nullptr) continue;
      bytes += static_cast<double>(sdk::element_count(*tensors[i]) * sdk::bytes_of(sdk::dtype_of(*tensors[i])));
    }
  };
  add(desc.inputs, desc.n_inputs);
  add(desc.outputs, desc.n_outputs);
  return speed.step_us + bytes / speed.bytes_per_us;
}

bool has_f64(const std::vector<View>& views) {
  return std::any_of(views.begin(), views.end(),
                     [](const View& view) { return view.is_present() && view.dtype == sdk::Dtype::f64; });
}

}  // namespace rlk::composed
