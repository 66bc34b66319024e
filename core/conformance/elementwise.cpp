// Runs of indices on each axis, so that their product has the places that are looked at.
#include "core/conformance/elementwise.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rlk::core::conformance {
namespace {

constexpr int64_t kFirstBoundary = int64_t{1} << 15;  // tests have what is below
constexpr int64_t kFewOfAxis = 64;  // an axis is not taken whole where that leaves fewer of the ones before

using IndexRun = std::pair<int64_t, int64_t>;  // [begin, end)

bool is_free(const ShapeDecl& shape) {
  using enum ShapeDecl::Kind;
  return shape.kind == any || shape.kind == same || shape.kind == broadcast;
}

uint64_t mixed(uint64_t z) {  // the finalizer of splitmix64
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t count_of(const std::vector<IndexRun>& runs) {
  int64_t count = 0;
  for (const auto& [begin, end] : runs) count += end - begin;
  return count;
}

// Sorted, and one where they touch or overlap.
void unite_runs(std::vector<IndexRun>& runs) {
  std::sort(runs.begin(), runs.end());
  std::vector<IndexRun> united;
  for (const IndexRun& run : runs) {
    if (!united.empty() && run.first <= united.back().second) {
      united.back().second = std::max(united.back().second, run.second);
    } else {
      united.push_back(run);
    }
  }
  runs = std::move(united);
}

// At most `most` indices of an axis of `size`, of which each has `inner` elements.
std::vector<int64_t> some_indices(int64_t size, int64_t inner, int64_t total, int64_t most, uint64_t seed) {
  std::vector<int64_t> points = {size - 1, 0};
  for (const int64_t boundary : boundaries(total)) points.push_back(boundary / inner % size);
  const auto at_points = static_cast<int64_t>(points.size());
  for (int64_t i = 0; i < at_points; ++i) {
    points.push_back(static_cast<int64_t>(mixed(seed + static_cast<uint64_t>(i)) % static_cast<uint64_t>(size)));
  }
  const int64_t length = std::max<int64_t>(most / static_cast<int64_t>(points.size()), 1);
  std::vector<IndexRun> runs;
  for (const int64_t point : points) {
    if (count_of(runs) + length > most) break;
    const int64_t begin = std::clamp<int64_t>(point - length / 2, 0, size - length);
    runs.emplace_back(begin, begin + length);
  }
  unite_runs(runs);
  std::vector<int64_t> indices;
  for (const auto& [begin, end] : runs) {
    for (int64_t i = begin; i < end; ++i) indices.push_back(i);
  }
  return indices;
}

// The kept indices of each axis of the common shape.
Kept some_of_shape(const std::vector<int64_t>& shape, int64_t most, uint64_t seed) {
  Kept kept(shape.size());
  int64_t total = 1, inner = 1, left = 0;
  for (const int64_t size : shape) total *= size;
  for (const int64_t size : shape) left += size > 1 ? 1 : 0;
  for (size_t axis = shape.size(); axis-- > 0; inner *= shape[axis]) {
    if (shape[axis] == 1) continue;
    // As much for each axis that is left, this one included; all of this one where enough is left for each of the
    // others.
    const int64_t axes = left--;
    const auto share = static_cast<int64_t>(std::pow(static_cast<double>(most), 1.0 / static_cast<double>(axes)));
    int64_t affordable = most;
    for (int64_t other = 1; other < axes; ++other) affordable /= kFewOfAxis;
    affordable = std::max({affordable, share, int64_t{1}});
    int64_t count = shape[axis];
    if (count > affordable) {
      kept[axis] = some_indices(shape[axis], inner, total, std::max<int64_t>(share, 1), mixed(seed + axis));
      count = static_cast<int64_t>(kept[axis]->size());
    }
    most = std::max<int64_t>(most / count, 1);
  }
  return kept;
}

// Of an argument whose axes are aligned with the last ones of the common shape, and repeated where they are 1.
bool cut_axes(const std::vector<int64_t>& shape, const Kept& kept, Argument& argument, Kept& list) {
  if (argument.shape.size() > shape.size()) return false;
  const size_t before = shape.size() - argument.shape.size();
  for (size_t axis = 0; axis < argument.shape.size(); ++axis) {
    list.emplace_back();
    int64_t& size = argument.shape[axis];
    if (size != 1 && size != shape[before + axis]) return false;
    if (size == 1 || !kept[before + axis]) continue;
    list.back() = kept[before + axis];
    size = static_cast<int64_t>(list.back()->size());
  }
  argument.layout = Layout::contiguous;
  argument.shift = 0;
  return true;
}

}  // namespace

bool is_elementwise(const OpDecl& decl) {
  const auto free = [](const ArgDecl& arg) { return std::all_of(arg.shapes.begin(), arg.shapes.end(), is_free); };
  return decl.symbols.empty() && !decl.outputs.empty() && std::all_of(decl.inputs.begin(), decl.inputs.end(), free) &&
         std::all_of(decl.outputs.begin(), decl.outputs.end(), free);
}

std::vector<int64_t> boundaries(int64_t total) {
  std::vector<int64_t> list;
  for (int64_t power = 1; power < total && power < int64_t{1} << 46; power *= 2) {
    if (power >= kFirstBoundary) list.push_back(power);
    if (const int64_t grid = 65535 * power; grid < total) list.push_back(grid);
  }
  std::sort(list.begin(), list.end(), std::greater<>());
  return list;
}

std::optional<Sample> some_elements(const ConcreteCall& whole, int64_t most, uint64_t seed) {
  if (!is_elementwise(*whole.decl)) return std::nullopt;
  const auto given =
      std::find_if(whole.outputs.begin(), whole.outputs.end(), [](const Argument& a) { return a.present; });
  if (given == whole.outputs.end() || given->count() == 0) return std::nullopt;
  const std::vector<int64_t> shape = given->shape;
  for (const Argument& output : whole.outputs) {
    if (output.present && output.shape != shape) return std::nullopt;
  }
  const Kept kept = some_of_shape(shape, most, seed);
  Sample sample;
  sample.call = whole;
  const auto take = [&](Argument& argument, std::vector<Kept>& list) {
    list.emplace_back();
    return !argument.present || cut_axes(shape, kept, argument, list.back());
  };
  for (Argument& input : sample.call.inputs) {
    if (!take(input, sample.inputs)) return std::nullopt;
  }
  for (Argument& output : sample.call.outputs) {
    if (!take(output, sample.outputs)) return std::nullopt;
    sample.judged.push_back(output.present);
  }
  return sample;
}

}  // namespace rlk::core::conformance
