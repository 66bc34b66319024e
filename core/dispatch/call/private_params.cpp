// Parameters that only one plugin knows.
#include "core/dispatch/call/private_params.hpp"

#include <cstring>

#include "core/declaration/error.hpp"

namespace rlk::core {
namespace {

constexpr int kMaxChain = 64;  // longer ones are taken for a loop

}  // namespace

rlk_status PrivateParams::read(const OpDecl& decl, const rlk_ext* chain, rlk_error* error) {
  count_ = 0;
  required_ = {};
  uint64_t bytes = 0;
  int length = 0;
  for (const rlk_ext* e = chain; e != nullptr; e = e->next) {
    if (++length > kMaxChain) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "%s: options.next has more than %d elements; expected a chain that ends with NULL", decl.name,
                   kMaxChain);
    }
    const bool required = (e->type & RLK_EXT_REQUIRED) != 0;
    if ((e->type & ~RLK_EXT_REQUIRED) != RLK_EXT_PRIVATE_PARAMS) {
      if (!required) continue;
      return failf(error, RLK_UNSUPPORTED,
                   "%s: options.next has a required element of type %u, which this rlk does not know; known is %u "
                   "(RLK_EXT_PRIVATE_PARAMS)",
                   decl.name, e->type & ~RLK_EXT_REQUIRED, RLK_EXT_PRIVATE_PARAMS);
    }
    const auto* item = reinterpret_cast<const rlk_private_params*>(e);
    if (e->struct_size < sizeof(rlk_private_params)) {
      return failf(error, RLK_INVALID_ARGUMENT, "%s: a rlk_private_params has the struct_size %u; expected %zu",
                   decl.name, e->struct_size, sizeof(rlk_private_params));
    }
    const size_t id_length = item->plugin == nullptr ? 0 : strnlen(item->plugin, kMaxIdLength + 1);
    if (id_length == 0 || id_length > kMaxIdLength) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "%s: a rlk_private_params names %s; expected the id of a plugin, 1 to %zu characters", decl.name,
                   item->plugin == nullptr ? "no plugin (NULL)" : "a plugin by an empty or overlong id", kMaxIdLength);
    }
    bytes += item->bytes;
    if (item->bytes > RLK_MAX_PRIVATE_BYTES || bytes > RLK_MAX_PRIVATE_BYTES) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "%s: the private parameters of a call have %llu bytes; expected at most %d", decl.name,
                   static_cast<unsigned long long>(bytes), RLK_MAX_PRIVATE_BYTES);
    }
    if (item->bytes != 0 && item->data == nullptr) {
      return failf(error, RLK_INVALID_ARGUMENT, "%s: private parameters for %s have %llu bytes at NULL", decl.name,
                   item->plugin, static_cast<unsigned long long>(item->bytes));
    }
    if (of(item->plugin) != nullptr) {
      return failf(error, RLK_INVALID_ARGUMENT, "%s: options.next has private parameters for %s twice", decl.name,
                   item->plugin);
    }
    if (count_ == kMaxPlugins) {
      return failf(error, RLK_INVALID_ARGUMENT, "%s: options.next has private parameters for more than %zu plugins",
                   decl.name, kMaxPlugins);
    }
    if (required && !required_.empty()) {
      return failf(error, RLK_INVALID_ARGUMENT,
                   "%s: options.next requires both %s and %s to serve the call; expected one of them", decl.name,
                   std::string(required_).c_str(), item->plugin);
    }
    if (required) required_ = item->plugin;
    items_[count_++] = item;
  }
  return RLK_OK;
}

const rlk_private_params* PrivateParams::of(std::string_view plugin) const {
  for (size_t i = 0; i < count_; ++i) {
    if (plugin == items_[i]->plugin) return items_[i];
  }
  return nullptr;
}

OwnPrivateParams::OwnPrivateParams(const rlk_private_params* from) {
  if (from == nullptr) return;
  plugin_ = from->plugin;
  type_ = from->type;
  const auto* data = static_cast<const std::byte*>(from->data);
  data_.assign(data, data + from->bytes);
}

rlk_private_params OwnPrivateParams::view() const {
  rlk_private_params view{};
  view.struct_size = sizeof(view);
  view.type = type_;
  view.plugin = plugin_.c_str();
  view.data = data_.data();
  view.bytes = data_.size();
  return view;
}

}  // namespace rlk::core
