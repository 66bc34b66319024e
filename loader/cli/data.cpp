// Values by domain.
#include "loader/cli/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace rlk::cli {
namespace {

using core::ArgDecl;
using core::Domain;

using Random = std::mt19937_64;

// Drawing billions of numbers would take longer than the measurement: a block of this many repeats.
constexpr int64_t kBlock = (1 << 20) + 7;

template <class Draw>
void fill(Array* array, const Draw& draw) {
  const int64_t fresh = std::min(array->count(), kBlock);
  for (int64_t i = 0; i < fresh; ++i) draw(i);
  const int64_t size = core::size_of(array->dtype());
  auto* bytes = static_cast<std::byte*>(array->data());
  for (int64_t done = fresh; done < array->count();) {
    const int64_t step = std::min(fresh, array->count() - done);
    std::memcpy(bytes + done * size, bytes, static_cast<size_t>(step * size));
    done += step;
  }
}

// What the first i of n equal parts of the total hold.
int64_t share(int64_t total, int64_t n, int64_t i) {
  return total / n * i + std::min(total % n, i);
}

Array made_up(const OpCall& call, const ArgDecl& input, const TensorSpec& spec, Random* random) {
  Array array(spec.dtype, spec.shape);
  const core::DomainDecl& domain = input.domain;
  const auto bound = [&](const core::Expr& expr, int64_t otherwise) {
    return expr.eval == nullptr ? otherwise : expr.eval(call.values());
  };
  switch (domain.kind) {
    case Domain::uniform: {
      std::uniform_real_distribution<double> draw(domain.min, domain.max);
      fill(&array, [&](int64_t i) { array.set(i, draw(*random)); });
      break;
    }
    case Domain::integer:
    case Domain::id: {
      const int64_t low = bound(domain.low, 0);
      std::uniform_int_distribution<int64_t> draw(low, std::max(low, bound(domain.high, 1) - 1));
      fill(&array, [&](int64_t i) { array.set_integer(i, draw(*random)); });
      break;
    }
    case Domain::mask: {
      std::uniform_int_distribution<int> draw(0, 7);
      fill(&array, [&](int64_t i) { array.set_integer(i, draw(*random) == 0 ? 0 : 1); });
      break;
    }
    case Domain::row_index: {
      const int64_t rows = bound(domain.high, 0);
      for (int64_t i = 0; i < array.count(); ++i) array.set_integer(i, share(rows, array.count(), i));
      break;
    }
    case Domain::cu_seqlens: {
      const int64_t total = bound(domain.high, 0);
      const int64_t sequences = std::max<int64_t>(array.count() - 1, 1);
      for (int64_t i = 0; i < array.count(); ++i) array.set_integer(i, share(total, sequences, i));
      break;
    }
    case Domain::length:
      fill(&array, [&](int64_t i) { array.set_integer(i, bound(domain.high, 0)); });
      break;
    case Domain::block_table: {
      const int64_t blocks = std::max<int64_t>(bound(domain.high, 1), 1);
      fill(&array, [&](int64_t i) { array.set_integer(i, i % blocks); });
      break;
    }
    case Domain::owner: {
      const int64_t shards = spec.shape[0], rows = shards > 0 ? array.count() / shards : 0;
      std::normal_distribution<double> draw(0.0, domain.scale);
      const auto owned = [&](int64_t i) { return i / rows == i % rows % shards; };
      fill(&array, [&](int64_t i) { array.set(i, owned(i) ? -std::fabs(draw(*random)) : -HUGE_VAL); });
      break;
    }
    case Domain::real:
    case Domain::forward: {
      std::normal_distribution<double> draw(0.0, domain.scale);
      fill(&array, [&](int64_t i) { array.set(i, draw(*random)); });
      break;
    }
  }
  return array;
}

// The call of `forward_op` that shares inputs and parameters by name with `call`.
Array forward_output(Session* session, const OpCall& call, const Arrays& arrays, const core::DomainDecl& domain) {
  const core::OpDecl& decl = find_op(domain.forward_op);
  OpCall forward;
  forward.decl = &decl;
  forward.params = parse_params(decl, {});
  for (const core::ParamDecl& param : decl.params) {
    for (const core::ParamDecl& ours : call.decl->params) {
      if (std::strcmp(param.name, ours.name) == 0 && param.type == ours.type)
        std::memcpy(forward.params.data() + param.offset, call.params.data() + ours.offset, sizeof(int64_t));
    }
  }
  Arrays inputs(decl.inputs.size());
  forward.inputs.resize(decl.inputs.size());
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    const int ours = find_input(*call.decl, decl.inputs[i].name);
    if (ours < 0 || !call.inputs[static_cast<size_t>(ours)]) continue;
    forward.inputs[i] = call.inputs[static_cast<size_t>(ours)];
    inputs[i] = cast(*arrays[static_cast<size_t>(ours)], forward.inputs[i]->dtype);
  }
  const auto output = static_cast<size_t>(find_output(decl, domain.forward_output));
  infer(&forward, uint64_t{1} << output);
  session->open("cpu");
  Execution execution(session, std::move(forward), &inputs, "cpu", 0);
  execution.enqueue();
  if (const std::string error = execution.finish(); !error.empty()) throw Failure(error);
  return std::move(*execution.outputs()[output]);
}

}  // namespace

Arrays make_inputs(Session* session, const OpCall& call) {
  Random random(1);
  Arrays arrays(call.inputs.size());
  const auto each = [&](bool forward) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const ArgDecl& input = call.decl->inputs[i];
      if (!call.inputs[i] || (input.domain.kind == Domain::forward) != forward) continue;
      arrays[i] = forward ? forward_output(session, call, arrays, input.domain)
                          : made_up(call, input, *call.inputs[i], &random);
    }
  };
  each(false);
  each(true);
  return arrays;
}

}  // namespace rlk::cli
