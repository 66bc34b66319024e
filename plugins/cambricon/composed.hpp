// CNNL as a vendor of composed operators (plugins/composed/operator.hpp).
#pragma once

#include "device.hpp"
#include "plugins/composed/operator.hpp"

namespace rlk::cambricon {

struct Cnnl {
  using Device = cambricon::Device;
  static constexpr const char* kName = "cnnl";
  static const composed::Primitives& primitives();
  static sdk::Refusal refuse(const rlk_call_desc& desc);
  static std::unique_ptr<sdk::Plan> plan(Device& device, const composed::Shape& shape, composed::Recipe recipe);
};

}  // namespace rlk::cambricon
