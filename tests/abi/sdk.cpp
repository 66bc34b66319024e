// The C++ SDK alone, as C++17 and as C++20: an umbrella header that needs nothing before it, included twice from two
// files of one program.
#include <rlk/sdk.hpp>

#include <rlk/sdk.hpp>

static_assert(rlk::sdk::ops::Logp::kInputs == RLK_LOGP_N_INPUTS, "traits and header differ");

int other_file();

#if defined(RLK_TEST_OTHER_FILE)
int other_file() {
  return static_cast<int>(rlk::sdk::Support::no("X", "y").reason_code.size());
}
#else
int main() {
  rlk_error error = rlk_error();
  error.struct_size = sizeof(error);
  const rlk_status status = rlk::sdk::detail::guard(
      &error, []() -> rlk_status { throw rlk::sdk::Error(RLK_OUT_OF_MEMORY, "a text", 7, "acme"); });
  const bool told = status == RLK_OUT_OF_MEMORY && error.status == status && error.native_code == 7 &&
                    std::string(error.text) == "a text" && std::string(error.domain) == "acme";
  return told && other_file() == 1 ? 0 : 1;
}
#endif
