// Generalised advantage estimation and discounted returns. One number per token, in fp64.
#pragma once

#include "core/cpu/advantages/reverse_scan.hpp"

namespace rlk::cpu {

struct GaeArgs {
  Sequences sequences;
  Array rewards, values;
  Mask mask;        // optional
  Array bootstrap;  // optional, [sequences]
  double gamma = 1, lam = 1;
  bool carry = true;  // masked tokens do not exist; else they have reward 0 and value 0
  Array advantages;
  Array returns;              // optional
  void* workspace = nullptr;  // reverse_scan_workspace_bytes
};
// Returns the data error of cu_seqlens.
DataError gae(const GaeArgs& args, const ParallelFor& hook);

struct ReturnsArgs {
  Sequences sequences;
  Array rewards;
  Mask mask;        // optional
  Array bootstrap;  // optional, [sequences]
  double gamma = 1;
  bool reset = true;  // no reward reaches across a masked token; else it has reward 0
  Array returns;
  void* workspace = nullptr;  // reverse_scan_workspace_bytes
};
DataError returns(const ReturnsArgs& args, const ParallelFor& hook);

}  // namespace rlk::cpu
