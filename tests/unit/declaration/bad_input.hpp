// What the tables of bad calls are made with: a call of each operator and form, each of its arguments, and what every
// refusal must say.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "framework/op_call.hpp"

namespace rlk::test {

using core::declarations;
using core::ParamDecl;
using core::ParamType;
using core::ShapeDecl;

inline int bad_calls = 0;

// What every text must hold, besides the operator's name.
inline void expect_refused(OpCall& call, const std::string& about, const std::string& seen,
                           const std::string& expected) {
  ++bad_calls;
  rlk_error error;
  const rlk_status status = call.validate(error);
  EXPECT_EQ(status, RLK_INVALID_ARGUMENT) << about;
  EXPECT_EQ(error.status, status);
  const std::string text = error.text;
  EXPECT_EQ(text.rfind(std::string(call.decl->name) + ": ", 0), 0u) << text;
  for (const std::string& part : {about, seen, expected})
    EXPECT_NE(text.find(part), std::string::npos) << part << " | " << text;
  EXPECT_NE(text.find("expected"), std::string::npos) << text;
}

// Calls visit with a fresh valid call per operator and form.
inline void for_each_form(const std::function<void(const std::function<OpCall()>&, const OpDecl&, int)>& visit) {
  for (const OpDecl& decl : declarations()) {
    for (size_t form = 0; form < decl.forms.size(); ++form) {
      SCOPED_TRACE(std::string(decl.name) + " " + decl.forms[form]);
      visit([&] { return OpCall(decl, static_cast<int>(form)); }, decl, static_cast<int>(form));
    }
  }
}

inline std::vector<Argument>& side(OpCall& call, bool output) {
  return output ? call.outputs : call.inputs;
}
inline std::span<const ArgDecl> side(const OpDecl& decl, bool output) {
  return output ? decl.outputs : decl.inputs;
}

// Visits every argument that the form has, in a call where it is given.
inline void for_each_argument(const std::function<void(OpCall&, bool output, size_t i, const ArgDecl&)>& visit) {
  for_each_form([&](const auto& fresh, const OpDecl& decl, int) {
    for (const bool output : {false, true}) {
      for (size_t i = 0; i < side(decl, output).size(); ++i) {
        OpCall call = fresh();
        const ArgDecl& arg = side(decl, output)[i];
        if (!call.of_form(arg)) continue;
        side(call, output)[i].given = true;
        call.rebuild();
        rlk_error error;
        for (const core::FeatureDecl& feature : decl.features) {  // what goes together with it, where it must
          if (call.validate(error) == RLK_OK) break;
          if ((feature.present >> (output ? 32 + i : i) & 1) != 0) call.set(feature);
          call.rebuild();
        }
        SCOPED_TRACE(arg.name);
        ASSERT_EQ(call.validate(error), RLK_OK) << error.text;
        visit(call, output, i, arg);
      }
    }
  });
}

inline std::string quoted(const ArgDecl& arg, bool output) {
  return std::string(output ? "output '" : "input '") + arg.name + "'";
}

}  // namespace rlk::test
