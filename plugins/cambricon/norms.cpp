// The norms of CNNL: one call for all rows. The numbers of each row, which the call gives besides, go to the workspace.
#include "descriptors.hpp"

namespace rlk::cambricon {
namespace {

constexpr int kFirstNormalised = 1;  // the axis of [rows, columns] from which on elements are one row

}  // namespace

void Calls::layer_norm(const NormOperands& norm, float eps) {
  const Runtime& r = runtime();
  const int rows = norm.x.dims[0];
  // As wide as fp32, whatever the call makes of it.
  const Operand means = scratch(kFloat, {rows}), roots = scratch(kFloat, {rows});
  const Descriptor from(norm.x), factors(norm.weight), to(norm.y), numbers({means.data, norm.x.dtype, {rows}});
  const Extra more = extra("cnnlGetLayerNormOpWorkspaceSize", [&](CnnlHandle h, size_t* bytes) {
    return r.cnnlGetLayerNormOpWorkspaceSize(h, kFirstNormalised, from, bytes);
  });
  call("cnnlLayerNormForward", [&](CnnlHandle h) {
    return r.cnnlLayerNormForward(h, from, norm.x.data, kFirstNormalised, factors, norm.weight.data, norm.bias.data,
                                  eps, more.data, more.bytes, to, norm.y.data, numbers, means.data, roots.data);
  });
}

void Calls::rms_norm(const NormOperands& norm, float eps) {
  const Runtime& r = runtime();
  const int rows = norm.x.dims[0];
  const Operand roots = scratch(kFloat, {rows});
  const Descriptor from(norm.x), factors(norm.weight), to(norm.y), numbers({roots.data, norm.x.dtype, {rows}});
  const Extra more = extra("cnnlGetRmsNormOpWorkspaceSize", [&](CnnlHandle h, size_t* bytes) {
    return r.cnnlGetRmsNormOpWorkspaceSize(h, kFirstNormalised, from, bytes);
  });
  call("cnnlRmsNormForward", [&](CnnlHandle h) {
    return r.cnnlRmsNormForward(h, kFirstNormalised, from, norm.x.data, factors, norm.weight.data, nullptr, eps,
                                more.data, more.bytes, to, norm.y.data, numbers, roots.data);
  });
}

}  // namespace rlk::cambricon
