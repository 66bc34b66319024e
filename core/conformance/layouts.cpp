// Words from strides; and the layouts that differ in strides, at the production bases.
#include "core/conformance/layouts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "core/conformance/elementwise.hpp"
#include "core/conformance/sizes.hpp"

namespace rlk::core::conformance {
namespace {

constexpr uint64_t kOfInputs = 0xffffffffu;
constexpr uint64_t kOfOutputs = kOfInputs << 32;
constexpr Layout kLayouts[] = {Layout::transposed, Layout::padded,   Layout::mirrored,  Layout::stepped,
                               Layout::turned,     Layout::reversed, Layout::exchanged, Layout::expanded};
constexpr size_t kMainLayouts = 5;  // of them the smoke test tries these with each input alone

// "" for a tensor that is row-major without gaps.
std::string lies_of(const rlk_tensor& tensor) {
  struct Axis {
    int32_t number;
    int64_t size, stride;
  };
  std::vector<Axis> axes;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return {};
    if (tensor.shape[i] != 1) axes.push_back({i, tensor.shape[i], tensor.strides[i]});
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return std::abs(a.stride) > std::abs(b.stride); });
  std::string text;
  int64_t dense = 1;
  bool is_ordinary = true;
  for (size_t i = axes.size(); i-- > 0;) {
    const auto& [number, size, stride] = axes[i];
    const bool has_gap = stride != 0 && std::abs(stride) != dense;
    text += fmt::format(" {}{}{}", stride < 0 ? "-" : stride == 0 ? "0*" : "", number, has_gap ? "+gap" : "");
    is_ordinary = is_ordinary && stride > 0 && !has_gap && (i == 0 || axes[i - 1].number < number);
    dense = std::abs(stride) * size;
  }
  return is_ordinary ? std::string() : text;
}

// The strides of every tensor: equal ones, equal case.
std::string strides_of(const ConcreteCall& call) {
  std::string text;
  for (const std::vector<Argument>* arguments : {&call.inputs, &call.outputs}) {
    for (const Argument& argument : *arguments) {
      if (!argument.present) continue;
      for (const int64_t stride : argument.placement().strides) text += fmt::format("{},", stride);
      text += ';';
    }
  }
  return text;
}

class LayoutList {
public:
  explicit LayoutList(std::vector<Case>& list) : list_(list) {}

  // A base has every layout once, however it is named.
  void begin(const Case& base) {
    base_ = base;
    seen_.clear();
    ConcreteCall call;
    if (resolve(base, call)) seen_.insert(strides_of(call));
  }
  void add(Layout layout, uint64_t which) {
    Case c = base_;
    Variation& v = c.variations.emplace_back();
    v.layout = layout;
    v.layout_of = which;
    ConcreteCall call;
    if (resolve(c, call) && seen_.insert(strides_of(call)).second) list_.push_back(std::move(c));
  }

private:
  std::vector<Case>& list_;
  Case base_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<std::string> layout_words(std::span<const rlk_tensor* const> inputs,
                                      std::span<const rlk_tensor* const> outputs) {
  std::vector<std::string> words;
  const auto add = [&](std::span<const rlk_tensor* const> tensors, const char* kind) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string text = tensors[i] != nullptr ? lies_of(*tensors[i]) : "";
      if (!text.empty()) words.push_back(fmt::format("{} {} lies{}", kind, i, text));
    }
  };
  add(inputs, "input");
  add(outputs, "output");
  return words;
}

std::vector<Case> layout_cases(const OpDecl& decl, int dtype_choice, int form, bool smoke) {
  std::vector<Case> list;
  LayoutList add_to(list);
  const std::vector<Case> bases = production_bases(decl, dtype_choice, form, smoke);
  for (size_t b = 0; b < bases.size(); ++b) {
    // The smoke test has the most at one base, in which every operand has many elements, and less of the rarer dtypes.
    const size_t largest = decl.shape_cases.empty() ? std::min<size_t>(1, bases.size() - 1) : 0;
    if (smoke && dtype_choice > 1 && b != largest) continue;
    add_to.begin(bases[b]);
    const size_t tried = smoke && b != largest ? kMainLayouts : std::size(kLayouts);
    // Thousands of equal terms in a sum round alike: that is a question of accuracy, and no test of a layout.
    const auto fits = [&](Layout layout) { return layout != Layout::expanded || is_elementwise(decl); };
    for (size_t l = 0; l < tried; ++l) {
      if (fits(kLayouts[l])) add_to.add(kLayouts[l], kOfInputs);
    }
    if (smoke && (dtype_choice > 1 || b != largest)) continue;
    for (size_t l = 0; l < (smoke ? kMainLayouts : std::size(kLayouts)); ++l) {
      if (!fits(kLayouts[l])) continue;
      for (size_t i = 0; i < decl.inputs.size(); ++i) add_to.add(kLayouts[l], uint64_t{1} << i);
      if (kLayouts[l] == Layout::expanded) continue;
      add_to.add(kLayouts[l], kOfOutputs);
      add_to.add(kLayouts[l], kOfInputs | kOfOutputs);
    }
  }
  return list;
}

}  // namespace rlk::core::conformance
