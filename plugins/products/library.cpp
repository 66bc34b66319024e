// What a code of the library means.
#include "library.hpp"

namespace rlk::products {

void check(Status status, const char* attempt) {
  if (status == 0) return;
  const Library& table = library();
  const char* name = table.status_name != nullptr ? table.status_name(status) : nullptr;
  const rlk_status mine = status == table.numbers.out_of_memory   ? RLK_OUT_OF_MEMORY
                          : status == table.numbers.not_supported ? RLK_UNSUPPORTED
                                                                  : RLK_BACKEND_ERROR;
  throw sdk::Error(
      mine, sdk::format("%s: %s failed with %s (%d)", table.name, attempt, name != nullptr ? name : "an error", status),
      status, table.domain);
}

}  // namespace rlk::products
