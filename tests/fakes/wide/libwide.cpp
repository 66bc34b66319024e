// A libwide.so.1 of no vendor, of HIP's and MACA's shape, over the simulated runtime (../simt). Its devices are harsh:
// waves of 64, 64 KiB of shared memory, fewer than 2^14 threads in a grid, no attribute but three. Memory that is not
// there has a code of its own. Variables: RLK_FAKE_WIDE_...
#define P(name) wide##name
#include "tests/fakes/simt/functions.inc"

const Runtime& fake::runtime() {
  static constexpr Runtime only = [] {
    Runtime numbers = shared_numbers("wide", "RLK_FAKE_WIDE_", 50221153);
    numbers.out_of_memory = 10007;
    return numbers;
  }();
  return only;
}

const Vendor& fake_simt::vendor() {
  static const auto* const only = [] {
    auto* const made = new Vendor{"Wide device",
                                  0xab,
                                  {{63, 4}},
                                  87,
                                  74,
                                  [](int code) { return code == 0 ? "wideSuccess" : "wideErrorEmulated"; }};
    made->pci_format = "0000:%02X:00.0";
    made->grid_threads = 1 << 14;
    return made;
  }();
  return *only;
}

API wideMallocHost(void** pointer, size_t bytes) {
  S(MallocHost);
  return allocate_pinned(bytes, pointer);
}
API wideFreeHost(void* pointer) {
  S(FreeHost);
  return release(pointer, true, "wideFreeHost"), 0;
}
