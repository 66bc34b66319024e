// The kernels of width 64 are compiled to ask about every address that they follow (tests/fakes/simt). At one that does
// not fit its type the test ends: a device faults there.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// NOLINTNEXTLINE(bugprone-reserved-identifier): the name is the compilers'
extern "C" void __ubsan_handle_type_mismatch_v1_abort(const void* /*seen*/, uintptr_t address) {
  std::fprintf(stderr, "a kernel reads or writes at %#zx, which does not fit its type\n", static_cast<size_t>(address));
  std::abort();
}
