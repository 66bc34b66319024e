// Looks an operator up by name.
#include "core/declaration/declaration.hpp"

namespace rlk::core {

const OpDecl* find_declaration(std::string_view name) {
  for (const OpDecl& decl : declarations()) {
    if (name == decl.name) return &decl;
  }
  return nullptr;
}

}  // namespace rlk::core
