// What is declared about an operator, as tables that the generator fills from plugin_api/ops/*.toml.
// Validation, shape inference, case generation, `rlk-plugins ops` and the Python signatures all read these tables.
#pragma once

#include <rlk/sdk/dtype.hpp>

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rlk::core {

// What a tensor of a declared argument may hold. declaration_schema.py lists the same.
using Dtype = sdk::Dtype;
// What the tables hold of one operator; the generator refuses more.
inline constexpr int kMaxSymbols = 16;
inline constexpr int kMaxArguments = 32;  // inputs, and outputs
inline constexpr int kMaxDtypeVariables = 8;
inline constexpr int kMaxParams = 127;
inline constexpr uint32_t kMaxParamsBytes = 8 + 8 * kMaxParams;  // the header and the parameters
using ParamSet = std::bitset<kMaxParams>;                        // by index

// The values that the expressions of a declaration are evaluated over.
struct Values {
  const int64_t* symbols = nullptr;  // in the order of OpDecl::symbols
  const void* params = nullptr;      // rlk_<op>_params, complete
  uint64_t present = 0;              // bit i: input i is given; bit 32 + i: output i is wanted

  int64_t symbol(int i) const { return symbols[i]; }
  int64_t i64(uint32_t offset) const {
    return *reinterpret_cast<const int64_t*>(static_cast<const char*>(params) + offset);
  }
  double f64(uint32_t offset) const {
    return *reinterpret_cast<const double*>(static_cast<const char*>(params) + offset);
  }
  bool has(int bit) const { return (present >> bit & 1) != 0; }
};

// An integer or truth value over Values, with the text it was declared by.
struct Expr {
  const char* text = nullptr;
  int64_t (*eval)(const Values&) = nullptr;
};

// Sizes are computed so widely that the product of two parameters does not overflow.
__extension__ typedef __int128 Wide;

// a / b rounded up, for b > 0.
template <class A, class B>
constexpr auto ceil_divide(A a, B b) -> decltype(a / b) {
  return a / b + (a % b > 0 ? 1 : 0);
}
// What is no size, because it is negative or too large, is -1.
constexpr int64_t size_from(Wide size) {
  return size < 0 || size > INT64_MAX ? -1 : static_cast<int64_t>(size);
}

// A dtype, a dtype variable, or the accumulation dtype of a variable (f64 for f64, else f32).
struct DtypeExpr {
  enum class Kind : uint8_t { fixed, variable, accumulate } kind = Kind::fixed;
  Dtype dtype = Dtype::f32;
  int variable = -1;
};

struct DtypeVariable {
  const char* name;
  std::span<const DtypeExpr> choices;  // a choice may name earlier variables
};

// One dimension: symbol + offset; the constant offset when symbol is -1; or computed from symbols and parameters.
// Symbols are known from dimensions that are not computed, or are a multiple of one: the generator sees to it that
// there is one of each.
struct Dim {
  int symbol = -1;
  int64_t offset = 0;
  Expr size{};           // computed
  uint32_t uses = 0;     // computed: bit i: it depends on symbol i
  int multiple_of = -1;  // computed as factor * this symbol
  int64_t factor = 0;

  bool is_computed() const { return size.eval != nullptr; }
  // -1 where a symbol is unknown, or what is computed is no size.
  int64_t evaluate(const Values& values) const {
    for (int i = 0; i < kMaxSymbols; ++i) {
      if ((uses >> i & 1) != 0 && values.symbol(i) < 0) return -1;
    }
    if (is_computed()) return size.eval(values);
    if (symbol < 0) return offset;
    return values.symbol(symbol) < 0 ? -1 : values.symbol(symbol) + offset;
  }
};

struct ShapeDecl {
  enum class Kind : uint8_t {
    none,  // not part of this form
    dims,
    any,        // of an input: whatever it is
    same,       // that of an input, which has `any`
    broadcast,  // of an output: the common one of all inputs that have `any`
  } kind = Kind::none;
  std::span<const Dim> dims;  // dims
  const char* text = "";      // as declared: "[R, V]", "*A"
  int of = -1;                // same: the input
};

struct SymbolDecl {
  const char* name;
  const char* doc;
  bool dynamic;  // plans may serve any value; it then leaves the plan key
  int64_t min;
  int form;                               // the only form that has it, or -1
  std::span<const Expr> sizes;            // for case generation, over earlier symbols; the first is the ordinary one
  std::span<const int64_t> production{};  // sizes at which it is really run; empty where it equals another symbol
};

// uniform: reals in [min, max], both ends included. integer: any number in [low, high) is as good as another. id and
// row_index are what it takes to find memory, so that a value outside is a data error. owner: log-probabilities [shard,
// row] that are -inf but where the shard owns the row. length: [0, high]. block_table: of each row the blocks in which
// as many tokens lie as its length says; what is behind them is not read.
enum class Domain : uint8_t {
  real,
  uniform,
  integer,
  id,
  mask,
  row_index,
  cu_seqlens,
  forward,
  owner,
  length,
  block_table
};

struct DomainDecl {
  Domain kind = Domain::real;
  double scale = 1.0;       // real and owner: standard deviation
  double wide = 0;          // real: magnitude of wide contents, whose rows are then scores; 0: a multiple of scale
  double step = 0;          // real: multiples of this, where ties matter; 0: any number
  bool minus_inf = false;   // real: cases put -inf somewhere
  bool nan_rows = false;    // real: cases have a row of NaN
  double min = 0, max = 0;  // uniform
  // id and integer: [low, high); row_index and block_table: [0, high); length: [0, high]; cu_seqlens: high is the total
  Expr low{}, high{};
  int ignore_param = -1;        // id: the parameter whose value marks an ignored element
  bool increasing = false;      // row_index: strictly
  int block = -1;               // block_table: the symbol of a block's size
  int lengths = -1;             // block_table: the input with the length of each row
  const char* forward_op = "";  // forward: the output of another operator on the same inputs
  const char* forward_output = "";
  // Bits of the inputs that say what is never read of this one: a mask over its first dimensions (where it is 0), ids
  // over them (where they are ignored), row indices (what no row that counts names), a block table (of tensors whose
  // first dimension counts blocks, the places in which no token lies).
  uint32_t hidden_by = 0;
};

// Where a NaN in one element goes. Of an output, every element that depends on that element becomes NaN, and everything
// else keeps its bits: of integers, which cannot be NaN, the second half. The word bounds what can depend.
enum class NanReach : uint8_t {
  none,      // nothing of the output
  element,   // the element at the same place
  row,       // what shares the leading dimensions: a row of logits, a query of a head
  column,    // what shares the last dimension
  earlier,   // the same place and what is before it in its sequence
  sequence,  // its sequence
  head,      // the key head, with its query heads, of its sequence
  group,     // the group of samples that are compared with each other
  all,       // anything
  text,      // no NaN need follow: nan_text says what does
  undefined  // implementations differ, and no case tries it
};

struct NanRule {
  Expr when{};      // without one: always
  int output = -1;  // or every output
  NanReach reach = NanReach::all;
};

struct ArgDecl {
  const char* name;
  const char* doc;
  DtypeExpr dtype;
  bool optional;
  bool host;                          // the host must be able to read the values
  int form;                           // the only form that has it, or -1
  std::span<const ShapeDecl> shapes;  // one per form
  DomainDecl domain;                  // inputs
  std::span<const int> may_alias;     // outputs: inputs whose exact memory and layout it may share
  double absolute_error = 0;          // fp32 outputs of 16-bit inputs: also at most this far from golden; 0: no limit
  std::span<const char* const> elements{};  // outputs of one fixed dimension whose elements have names
  std::span<const NanRule> nan{};           // real inputs: of the rules for an output the first that holds counts
  const char* nan_text = "";
  // Outputs: the input whose memory and layout it always has, or -1. Of the same name: an in-out argument, whose
  // elements that are not written keep their bits.
  int must_alias = -1;
};

enum class ParamType : uint8_t { f64, i64, enumeration };

struct ParamDecl {
  const char* name;
  const char* doc;
  ParamType type;
  uint32_t offset;  // in rlk_<op>_params
  double default_f64;
  int64_t default_i64;  // also the ordinal of an enumeration's default
  bool has_min, min_exclusive, finite;
  double min;
  std::span<const char* const> values;  // of an enumeration, by ordinal
  std::span<const double> tries;        // values other than the default that cases use
};

// A named joint setting that cases use: parameters by expression, and optional arguments that go together. A unit of
// verification has its name, or, where features share members, those of the members.
struct FeatureSetting {
  int param;
  Expr value;         // or, without one,
  double number = 0;  // a number that is no integer

  double evaluate(const Values& values) const {
    return value.eval != nullptr ? static_cast<double>(value.eval(values)) : number;
  }
};
struct FeatureDecl {
  const char* name;
  std::span<const FeatureSetting> settings;
  uint64_t present;  // as in Values
  bool is_unit;      // false: only cases know it; its members keep their own names
};

// A predicate over symbols, parameters and presence; and one way to break it, for the table of bad inputs.
struct SymbolSetting {
  int symbol;
  Expr value;
};
struct RuleDecl {
  const char* name;
  Expr holds;
  const char* hint;
  std::span<const SymbolSetting> violate_symbols;
  std::span<const FeatureSetting> violate_params;
  uint64_t violate_present;
};

// An intermediate that an implementation of class `tolerance` may round to the tensors' dtype, where that has 16 bits,
// before it goes into a product: what well-made kernels of the field do.
struct RoundedDecl {
  const char* name;           // "weights"
  const char* source;         // the kernels that do it
  std::span<const int> over;  // the symbols over whose values products of it are summed; cases make these sums long
};

struct ShapeCase {
  std::span<const std::span<const int64_t>> shapes;  // one per shape of kind any, in the order of the inputs
  std::span<const int64_t> production{};  // sizes that the first and the last dimension of the result take in turn
};

struct OpDecl {
  const char* name;
  uint32_t revision;
  const char* family;
  const char* summary;
  const char* formula;
  const char* notes;
  std::span<const char* const> sources;
  const char* backward;  // "" when not differentiable
  // How far from the golden value an implementation may be, beside one ulp of the output dtype: this times 2^-24 (2^-53
  // for f64) times the condition that golden gives with each element. Never above golden.hpp's general limit. That is
  // class `accurate`; class `tolerance` has what golden gives for each intermediate in `rounded` besides.
  double error_factor;
  const char* error_reason;
  std::span<const RoundedDecl> rounded;
  // Whether a row's result can depend on that row alone. Not where rows are summed or normalised together.
  bool batch_invariant;
  Expr combines_rows;  // of parameters alone: the calls in which it depends on others all the same; without one: none
  // Whether the formula specifies the arithmetic to the bit, so that every backend can give golden's bits. Integer
  // outputs then do; a floating output is still judged by its error bound, unless an implementation claims more.
  bool portable;
  uint32_t params_size;  // sizeof(rlk_<op>_params)
  const void* defaults;  // an rlk_<op>_params with every default
  int form_param;        // the enumeration that selects the form, or -1: one form
  std::span<const char* const> forms;
  std::span<const DtypeVariable> dtypes;
  std::span<const SymbolDecl> symbols;
  std::span<const ArgDecl> inputs;
  std::span<const ArgDecl> outputs;
  std::span<const ParamDecl> params;
  std::span<const FeatureDecl> features;
  std::span<const RuleDecl> rules;
  std::span<const ShapeCase> shape_cases;
};

const char* name_of(NanReach reach);
// The rules of a real input in words, as in the header of the operator: "grad_q row, grad_k head; not read where ...".
std::string nan_words(const OpDecl& decl, const ArgDecl& input);
// The rule of a real input for an output.
NanReach nan_reach(const ArgDecl& input, int output, const Values& values);

// Whether the result of a row may depend on the others, with these parameters.
inline bool combines_rows(const OpDecl& decl, const Values& values) {
  return !decl.batch_invariant || (decl.combines_rows.eval != nullptr && decl.combines_rows.eval(values) != 0);
}

// All operators, in one order; the same objects for the whole of the process. [thread-safe]
std::span<const OpDecl> declarations();

// nullptr when there is none. [thread-safe]
const OpDecl* find_declaration(std::string_view name);

}  // namespace rlk::core
