// A call as torch's dispatcher has it: what lies on its stack is taken over, and the outputs are put there.
#include "operator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "call.hpp"

namespace rlk::torch {
namespace {

using List = Handle<StableListOpaque, &Shim::torch_delete_list>;
using Word = Handle<StringOpaque, &Shim::torch_delete_string>;

template <class T>
T* handle_of(StableIValue value) {
  return reinterpret_cast<T*>(value);
}

// An optional value lies in memory that torch took with new for us to end.
template <class T>
T* take_optional(StableIValue value) {
  auto* const inner = reinterpret_cast<StableIValue*>(value);
  if (inner == nullptr) return nullptr;
  T* const handle = handle_of<T>(*inner);
  delete inner;
  return handle;
}

struct Arguments {
  Tensors inputs;
  List real, whole;
  int64_t wanted = 0;
  Word pin, numerics;

  Arguments(const Operator& op, const StableIValue* stack) {
    const auto n = static_cast<size_t>(op.n_inputs), required = static_cast<size_t>(op.n_required);
    for (size_t i = 0; i < n; ++i) {
      inputs[i] =
          Tensor(i < required ? handle_of<AtenTensorOpaque>(stack[i]) : take_optional<AtenTensorOpaque>(stack[i]));
    }
    real = List(handle_of<StableListOpaque>(stack[n]));
    whole = List(handle_of<StableListOpaque>(stack[n + 1]));
    wanted = static_cast<int64_t>(stack[n + 2]);
    pin = Word(take_optional<StringOpaque>(stack[n + 3]));
    numerics = Word(take_optional<StringOpaque>(stack[n + 4]));
  }
};

std::string text_of(const Word& word) {
  if (!word) return {};
  size_t length = 0;
  const char* text = nullptr;
  RLK_TORCH(torch_string_length, word.get(), &length);
  RLK_TORCH(torch_string_c_str, word.get(), &text);
  return {text, length};
}

// ---- parameters

// Lists that end early leave the rest at its defaults.
void fill_params(const Operator& op, const Arguments& given, Params* out) {
  size_t n_real = 0, n_whole = 0, real = 0, whole = 0;
  RLK_TORCH(torch_list_size, given.real.get(), &n_real);
  RLK_TORCH(torch_list_size, given.whole.get(), &n_whole);
  const size_t n = op.param_kinds.size();
  out->size = static_cast<uint32_t>(8 + 8 * n);
  for (size_t i = 0; i < n; ++i) {
    const bool is_real = op.param_kinds[i] == 'f';
    size_t& next = is_real ? real : whole;
    if (next < (is_real ? n_real : n_whole)) {
      RLK_TORCH(torch_list_get_item, (is_real ? given.real : given.whole).get(), next++, &out->values[i]);
    } else {
      out->values[i] = op.defaults[i];
    }
  }
  if (real != n_real || whole != n_whole) {
    refuse(op.name + ": real has " + std::to_string(n_real) + " and whole " + std::to_string(n_whole) +
           " parameters; expected at most " +
           std::to_string(std::count(op.param_kinds.begin(), op.param_kinds.end(), 'f')) + " and " +
           std::to_string(std::count(op.param_kinds.begin(), op.param_kinds.end(), 'i')));
  }
}

uint32_t numerics_of(const Operator& op, const std::string& words) {
  static constexpr std::pair<const char*, uint32_t> kKnown[] = {{"tolerance", RLK_NUMERICS_TOLERANCE},
                                                                {"accurate", RLK_NUMERICS_ACCURATE},
                                                                {"deterministic", RLK_NUMERICS_DETERMINISTIC},
                                                                {"batch_invariant", RLK_NUMERICS_BATCH_INVARIANT},
                                                                {"portable", RLK_NUMERICS_PORTABLE}};
  uint32_t classes = 0;
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    const auto* const found =
        std::find_if(std::begin(kKnown), std::end(kKnown), [&](const auto& known) { return word == known.first; });
    if (found == std::end(kKnown)) {
      refuse(op.name + ": numerics names '" + word +
             "'; there are tolerance, accurate, deterministic, batch_invariant, portable");
    }
    classes |= found->second;
    begin = end + 1;
  }
  return classes;
}

StableIValue give(Tensors& made) {
  StableListOpaque* handle = nullptr;
  RLK_TORCH(torch_new_list_reserve_size, made.size(), &handle);
  List list(handle);
  for (Tensor& tensor : made) {
    if (tensor) RLK_TORCH(torch_list_push_back, list.get(), reinterpret_cast<StableIValue>(tensor.release()));
  }
  return reinterpret_cast<StableIValue>(list.release());
}

}  // namespace

void run(const Operator& op, StableIValue* stack, uint64_t n_arguments, uint64_t n_results) {
  if (n_arguments != static_cast<uint64_t>(op.n_inputs) + 5 || n_results != (op.gives_list ? 1 : 0)) {
    throw std::runtime_error(op.name + ": the schema is not the one that was registered");
  }
  const Arguments given(op, stack);
  Params params;
  fill_params(op, given, &params);
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  const std::string pin = text_of(given.pin);
  options.pin = given.pin ? pin.c_str() : nullptr;
  options.numerics = numerics_of(op, text_of(given.numerics));

  Handles inputs;
  std::transform(given.inputs.begin(), given.inputs.end(), inputs.begin(), [](const Tensor& x) { return x.get(); });
  Call call(op, inputs);
  Tensors& made =
      call.run(&params, given.wanted != 0 ? static_cast<uint64_t>(given.wanted) : op.required_outputs, options);
  if (op.gives_list) stack[0] = give(made);
}

}  // namespace rlk::torch
