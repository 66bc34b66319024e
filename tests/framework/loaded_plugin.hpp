// A plugin as a host sees it: loaded from its file (RLK_TEST_PLUGIN), created, and driven through its tables.
#pragma once

#include <string>
#include <vector>

#include "framework/plugin_fixture.hpp"

namespace rlk::test {

struct Loaded {
  const rlk_plugin* api = nullptr;
  rlk_plugin_instance* instance = nullptr;

  Loaded() {
    static const rlk_host host{sizeof(rlk_host),
                               RLK_ABI_MAJOR,
                               RLK_ABI_MINOR,
                               RLK_ABI_DRAFT,
                               0,
                               0,
                               "test",
                               "0",
                               nullptr,
                               [](void*, const char*) -> const void* { return nullptr; }};
    void* library = dlopen(RLK_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      ADD_FAILURE() << dlerror();
      return;
    }
    const auto entry = reinterpret_cast<rlk_plugin_entry_v1_fn>(dlsym(library, RLK_PLUGIN_ENTRY_SYMBOL));
    rlk_error error = no_error();
    api = entry(&host, &error);
    if (api == nullptr || api->create(&host, &instance, &error) != RLK_OK) ADD_FAILURE() << error.text;
  }
  ~Loaded() {
    if (instance != nullptr) api->destroy(instance, nullptr);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  // What probe concluded, and "kind=value" of all it saw.
  rlk_probe_result probe(std::vector<std::string>* seen = nullptr) const {
    std::vector<std::string> ignored;
    rlk_evidence_sink sink{
        sizeof(sink), 0, seen != nullptr ? seen : &ignored, [](void* context, const rlk_evidence* item) {
          static_cast<std::vector<std::string>*>(context)->push_back(std::string(item->kind) + "=" + item->value);
        }};
    rlk_probe_result result{};
    result.struct_size = sizeof(result);
    rlk_error error = no_error();
    EXPECT_EQ(api->probe(instance, &sink, &result, &error), RLK_OK) << error.text;
    return result;
  }

  const rlk_implementation* implementation(const std::string& op) const {
    for (uint32_t i = 0; i < api->n_implementations; ++i) {
      if (op == api->implementations[i]->op) return api->implementations[i];
    }
    ADD_FAILURE() << "no implementation of " << op;
    return nullptr;
  }
};

}  // namespace rlk::test
