// add: types, broadcasts, scales, aliases and paddings against the loop.
#include "reference.hpp"

#include <algorithm>

namespace selfcheck {
namespace {

using Shape = std::vector<int64_t>;

std::string text(const Shape& shape) {
  std::string out = "[";
  for (const int64_t size : shape) out += std::to_string(size) + " ";
  return out + "]";
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t d = 0; d < out.size(); ++d) {
    const int64_t x = d + a.size() < out.size() ? 1 : a[d + a.size() - out.size()];
    const int64_t y = d + b.size() < out.size() ? 1 : b[d + b.size() - out.size()];
    out[d] = x == 1 ? y : x;
  }
  return out;
}

size_t element(const Shape& operand, const Shape& out, int64_t index) {
  size_t at = 0, stride = 1;
  for (size_t d = out.size(); d-- > 0;) {
    const int64_t i = index % out[d];
    index /= out[d];
    if (d + operand.size() < out.size()) continue;
    const int64_t size = operand[d + operand.size() - out.size()];
    at += size == 1 ? 0 : static_cast<size_t>(i) * stride;
    stride *= static_cast<size_t>(size);
  }
  return at;
}

void check_case(Plugin& plugin, Report& report, Type type, const Shape& sa, const Shape& sb, double alpha, int alias,
                int64_t offset, int64_t padding, uint64_t seed) {
  const Shape so = broadcast(sa, sb);
  Tensor a(plugin, type, sa, padding, offset), b(plugin, type, sb), out(plugin, type, so, padding, offset);
  std::vector<double> va(static_cast<size_t>(a.count())), vb(static_cast<size_t>(b.count()));
  for (size_t i = 0; i < va.size(); ++i) va[i] = uniform(seed, i) < 0.02 ? -kInf : round_to(type, 2 * normal(seed, i));
  for (size_t i = 0; i < vb.size(); ++i) vb[i] = round_to(type, 2 * normal(seed + 1, i));
  a.upload(va);
  b.upload(vb);
  Tensor& to = alias == 0 ? a : alias == 1 ? b : out;
  rlk_add_params params = RLK_ADD_PARAMS_INIT;
  params.alpha = alpha;
  Call call(plugin, plugin.find("add", "packs"), &params, {&a, &b}, {&to}, {}, {alias});
  call.enqueue();
  plugin.synchronize();
  const std::vector<double> got = to.download();
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double x = va[element(sa, so, static_cast<int64_t>(i))],
                 y = alpha * vb[element(sb, so, static_cast<int64_t>(i))];
    const double size = std::isfinite(x) ? std::fabs(x) + std::fabs(y) : 0;
    worst = std::max(worst, error_ratio(type, got[i], x + y, 2 * epsilon_of(accumulator_of(type)) * size));
  }
  const std::string name = std::string("add ") + name_of(type) + " " + text(sa) + text(sb) + " alias " +
                           std::to_string(alias) + " offset " + std::to_string(offset) + " padding " +
                           std::to_string(padding);
  report.ratio(worst, name);
  report.check(to.red_zones_intact(), name + ": red zones");
}

}  // namespace

void check_add(Plugin& plugin, Report& report) {
  const std::pair<Shape, Shape> shapes[] = {{{5}, {5}},
                                            {{3, 5, 129}, {5, 1}},
                                            {{1, 7}, {4, 1, 1}},
                                            {{}, {3}},
                                            {{2, 0, 3}, {3}},
                                            {{1000}, {1000}},
                                            {{100003}, {100003}},
                                            {{64, 4096}, {4096}},
                                            {{64, 4096}, {1}},
                                            {{1}, {64, 4096}},
                                            {{7, 64}, {7, 1}},
                                            {{}, {}},
                                            {{33, 1024}, {33, 1024}},
                                            {{8, 1, 64}, {4, 64}},
                                            {{2, 1, 2, 1, 2, 1, 2, 3}, {2, 1, 3, 1, 2, 1}}};
  uint64_t seed = 9000;
  for (const Type type : {Type::f32, Type::bf16, Type::f16, Type::f64}) {
    for (const auto& [a, b] : shapes) {
      const Shape out = broadcast(a, b);
      check_case(plugin, report, type, a, b, 1, -1, 0, 0, ++seed);
      check_case(plugin, report, type, a, b, -0.5, -1, 1, 0, ++seed);
      check_case(plugin, report, type, a, b, 0.3, -1, 0, 8, ++seed);
      if (a == out) check_case(plugin, report, type, a, b, 1, 0, 0, 0, ++seed);
      if (b == out) check_case(plugin, report, type, a, b, 1, 1, 0, 0, ++seed);
    }
  }
}

}  // namespace selfcheck
