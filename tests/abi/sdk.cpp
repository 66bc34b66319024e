// The C++ SDK alone, as C++17 and as C++20: an umbrella header that needs nothing before it, included twice from two
// files of one program.
#include <rlk/sdk.hpp>
#include <rlk/sdk/ops.hpp>

#include <rlk/sdk.hpp>

static_assert(rlk::sdk::ops::Logp::kInputs == RLK_LOGP_N_INPUTS, "traits and header differ");

int other_file();

#if defined(RLK_TEST_OTHER_FILE)
int other_file() {
  return static_cast<int>(rlk::sdk::Support::no("X", "y").reason_code.size());
}
#else
// The host was built before the second parameter existed: what it does not say has its default, not 0.
static bool older_host_leaves_defaults() {
  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  params.temperature = 0.5;
  params.softcap = 9.0;  // beyond what the host's struct holds
  params.ignore_index = 7;
  params.struct_size = offsetof(rlk_logp_params, softcap);
  rlk_call_desc desc = rlk_call_desc();
  desc.params = &params;
  const rlk::sdk::Call<rlk::sdk::ops::Logp> call(desc);
  return call.params().temperature == 0.5 && call.params().softcap == 0.0 && call.params().ignore_index == -100 &&
         call.params().struct_size == sizeof(params);
}

int main() {
  if (!older_host_leaves_defaults()) return 1;
  rlk_error error = rlk_error();
  error.struct_size = sizeof(error);
  const rlk_status status = rlk::sdk::detail::guard(
      &error, []() -> rlk_status { throw rlk::sdk::Error(RLK_OUT_OF_MEMORY, "a text", 7, "acme"); });
  const bool told = status == RLK_OUT_OF_MEMORY && error.status == status && error.native_code == 7 &&
                    std::string(error.text) == "a text" && std::string(error.domain) == "acme";
  return told && other_file() == 1 ? 0 : 1;
}
#endif
