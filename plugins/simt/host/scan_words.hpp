// The host's words for scans, with which maps.hpp reads the files of ../operators (../skeleton/scan.cuh).
#pragma once

#include "scan.hpp"
#include "words.hpp"

#define RLK_SIMT_SCAN_DECLARE(OP, tokens, ...)                                                                   \
  namespace rlk::simt::host::scans {                                                                             \
  struct OP {                                                                                                    \
    using Op = sdk::ops::OP;                                                                                     \
    static constexpr ScanKernels kKernels = {RLK_SIMT_IMAGE_NAME, RLK_SIMT_IMAGE_NAME "_scan_" #OP "_", tokens}; \
    static ScanCall call_of(const sdk::Arguments<Op>& call) { return __VA_ARGS__; }                              \
  };                                                                                                             \
  }                                                                                                              \
  RLK_SIMT_NUMBER(Scans<scans::OP>)
#define RLK_SIMT_SCAN(OP, Sum, ...) RLK_SIMT_SCAN_DECLARE(OP, false, __VA_ARGS__)
#define RLK_SIMT_SCAN_TOKENS(OP, Sum, ...) RLK_SIMT_SCAN_DECLARE(OP, true, __VA_ARGS__)
