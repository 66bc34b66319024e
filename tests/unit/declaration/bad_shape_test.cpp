// Every operator against the sizes of its declaration: ranks, numbers that no memory holds, symbols that disagree.
#include "bad_input.hpp"

namespace rlk::test {
namespace {

TEST(BadInput, WrongRank) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    if (arg.shapes[static_cast<size_t>(call.form)].kind != ShapeDecl::Kind::dims) return;
    Argument& argument = side(call, output)[i];
    argument.shape.insert(argument.shape.begin(), 1);
    argument.strides = contiguous_strides(argument.shape);
    call.refresh();
    expect_refused(call, quoted(arg, output), std::to_string(argument.shape.size()) + " dimensions",
                   arg.shapes[static_cast<size_t>(call.form)].text);
    if (argument.shape.size() > 1) expect_refused(call, quoted(arg, output), "reshape(-1", ")");
  });
}

TEST(BadInput, RankAndStructureOutOfBounds) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    rlk_tensor& tensor = side(call, output)[i].tensor;
    const rlk_tensor good = tensor;
    for (const int32_t ndim : {-1, RLK_MAX_NDIM + 1, INT32_MAX}) {
      tensor.ndim = ndim;
      expect_refused(call, quoted(arg, output), std::to_string(ndim) + " dimensions", "0 to 8");
    }
    tensor = good;
    tensor.struct_size = sizeof(rlk_tensor) - 8;
    expect_refused(call, quoted(arg, output), "struct_size", "at least");
    tensor = good;
    if (tensor.ndim == 0) return;
    tensor.shape = nullptr;
    expect_refused(call, quoted(arg, output), "shape NULL", "array");
    tensor = good;
    tensor.strides = nullptr;
    expect_refused(call, quoted(arg, output), "strides NULL", "array");
    tensor = good;
    side(call, output)[i].shape[0] = -1;
    expect_refused(call, quoted(arg, output), "[-1", "no negative size");
  });
}

TEST(BadInput, ANegativeSizeBehindAZero) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    Argument& argument = side(call, output)[i];
    if (argument.shape.size() < 2) return;
    argument.shape.front() = 0;
    argument.shape.back() = -5;
    expect_refused(call, quoted(arg, output), "has shape [0", "no negative size");
  });
}

TEST(BadInput, SizesThatOverflow) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    Argument& argument = side(call, output)[i];
    if (argument.shape.empty()) return;
    const Argument good = argument;
    argument.shape[0] = INT64_MAX;
    expect_refused(call, quoted(arg, output), std::to_string(INT64_MAX), "2^58");
    argument.shape[0] = 2;
    argument.strides[0] = INT64_MIN;
    expect_refused(call, quoted(arg, output), std::to_string(INT64_MIN), "2^58");
    argument.strides[0] = INT64_MAX;
    expect_refused(call, quoted(arg, output), std::to_string(INT64_MAX), "2^58");
  });
}

// A workspace of a row for each of 2^61 columns has a size that is 0 modulo 2^64, although there are no rows.
TEST(BadInput, SizesThatOverflowBesideAZero) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    Argument& argument = side(call, output)[i];
    if (argument.shape.size() < 2) return;
    argument.shape.front() = 0;
    argument.shape.back() = int64_t{1} << 61;
    expect_refused(call, quoted(arg, output), "has shape [0", "2^58 elements, of an empty tensor");
  });
}

TEST(BadInput, SymbolMismatch) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    const ShapeDecl& shape = arg.shapes[static_cast<size_t>(call.form)];
    for (size_t d = 0; d < shape.dims.size(); ++d) {
      if (shape.dims[d].symbol < 0) continue;  // a number
      // Another argument of the call must use the symbol too, or there is nothing to disagree with.
      int users = 0;
      for (const bool o : {false, true}) {
        for (size_t k = 0; k < side(*call.decl, o).size(); ++k) {
          if (!side(call, o)[k].given) continue;
          for (const core::Dim& dim : side(*call.decl, o)[k].shapes[static_cast<size_t>(call.form)].dims) {
            users += dim.symbol == shape.dims[d].symbol;
          }
        }
      }
      const int symbol = shape.dims[d].symbol;  // -1: a size that the declaration gives
      if (symbol >= 0 && users < 2) continue;
      Argument& argument = side(call, output)[i];
      const Argument good = argument;
      argument.shape[d] += 1;
      argument.strides = contiguous_strides(argument.shape);
      call.refresh();
      // The text is about this argument or about the next one that disagrees with it.
      const char* about = symbol >= 0 ? call.decl->symbols[static_cast<size_t>(symbol)].name : arg.name;
      expect_refused(call, about, "has shape [", "expected [");
      argument = good;
      call.refresh();
    }
  });
}

TEST(BadInput, SymbolBelowItsMinimum) {
  for_each_form([](const auto& fresh, const OpDecl& decl, int form) {
    for (size_t s = 0; s < decl.symbols.size(); ++s) {
      if (decl.symbols[s].form >= 0 && decl.symbols[s].form != form) continue;
      OpCall call = fresh();
      bool has_offset_dim = false, has_plain_dim = false;
      for (const bool output : {false, true}) {
        for (size_t i = 0; i < side(decl, output).size(); ++i) {
          if (!side(call, output)[i].given) continue;
          for (const core::Dim& dim : side(decl, output)[i].shapes[static_cast<size_t>(form)].dims) {
            if (dim.symbol == static_cast<int>(s)) (dim.offset > 0 ? has_offset_dim : has_plain_dim) = true;
          }
        }
      }
      const bool reachable = decl.symbols[s].min > 0 || (has_offset_dim && !has_plain_dim);
      if (!reachable) continue;
      call.symbols[s] = decl.symbols[s].min - 1;
      call.rebuild();
      expect_refused(call, decl.symbols[s].name, "= " + std::to_string(decl.symbols[s].min - 1),
                     "at least " + std::to_string(decl.symbols[s].min));
    }
  });
}

TEST(BadInput, ShapesThatDoNotBroadcast) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    const auto kind = arg.shapes[static_cast<size_t>(call.form)].kind;
    const auto free = std::count_if(call.decl->inputs.begin(), call.decl->inputs.end(), [&](const ArgDecl& input) {
      return input.shapes[static_cast<size_t>(call.form)].kind == ShapeDecl::Kind::any;
    });
    const bool is_broadcast = (kind == ShapeDecl::Kind::any && free > 1) || kind == ShapeDecl::Kind::broadcast;
    if (!is_broadcast && kind != ShapeDecl::Kind::same) return;
    Argument& argument = side(call, output)[i];
    argument.shape.back() += 1;
    argument.strides = contiguous_strides(argument.shape);
    call.refresh();
    const char* expected = kind == ShapeDecl::Kind::same ? "that of '" : output ? "expected [" : "equal or 1";
    expect_refused(call, quoted(arg, output), "[", expected);
  });
}

TEST(BadInput, SizeThatIsNoMultiple) {
  int tried = 0;
  for_each_argument([&](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    const ShapeDecl& shape = arg.shapes[static_cast<size_t>(call.form)];
    for (size_t d = 0; d < shape.dims.size(); ++d) {
      const core::Dim& dim = shape.dims[d];
      if (dim.multiple_of < 0 || dim.factor < 2) continue;
      Argument& argument = side(call, output)[i];
      const Argument good = argument;
      argument.shape[d] += 1;
      argument.strides = contiguous_strides(argument.shape);
      call.refresh();
      expect_refused(call, quoted(arg, output), "has shape [", "a multiple of " + std::to_string(dim.factor));
      argument = good;
      call.refresh();
      ++tried;
    }
  });
  EXPECT_GT(tried, 0);
}

TEST(BadInput, TheTableIsNotEmpty) {
  std::cout << bad_calls << " bad calls over " << declarations().size() << " operators\n";
  if (::testing::GTEST_FLAG(filter) != "*") return;  // the other tests fill the count
  EXPECT_GT(bad_calls, 50 * static_cast<int>(declarations().size()));
}

}  // namespace
}  // namespace rlk::test
