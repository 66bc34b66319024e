// add, one element after the other, with a few of its possible defects; and the plugin's entry.
#include "conformance/simple/device.hpp"
#include "conformance/simple/element.hpp"
#include "conformance/simple/implementations.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace rlk::simple {
namespace {

class AddPlan : public sdk::Plan {
public:
  explicit AddPlan(const sdk::Call<sdk::ops::Add>& call) : alpha_(call.params().alpha) {
    numerics = kAllClasses;
    variant = "serial";
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    if (mutant("captures_apart") || mutant("captures_share_the_plan")) {
      flags = RLK_PLAN_CAPTURABLE | RLK_PLAN_CAPTURED_APART;
    }
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    if (mutant("device_lost")) throw sdk::Error(RLK_DEVICE_LOST, "it fell off the bus");
    // The run is borrowed for the call: a graph keeps the tensors themselves.
    const bool shared = mutant("captures_share_the_plan");
    auto mine = std::make_shared<const Operands>(Operands{
        Operand(*run.input(RLK_ADD_IN_A)), Operand(*run.input(RLK_ADD_IN_B)), Operand(*run.output(RLK_ADD_OUT_OUT))});
    if (shared) last_ = std::exchange(mine, nullptr);
    static_cast<SimpleStream&>(stream).submit([this, alpha = alpha_, mine] {
      const auto& [a, b, out] = mine != nullptr ? *mine : *last_;
      if (sdk::dtype_of(out.tensor()) == Dtype::f64 && !mutant("f64_in_f32")) return add<double>(alpha, a, b, out);
      add<float>(alpha, a, b, out);
    });
  }

private:
  class Operand {
  public:
    explicit Operand(const rlk_tensor& tensor)
        : tensor_(tensor),
          shape_(tensor.shape, tensor.shape + tensor.ndim),
          strides_(tensor.strides, tensor.strides + tensor.ndim) {}
    rlk_tensor tensor() const {
      rlk_tensor tensor = tensor_;
      tensor.shape = shape_.data();
      tensor.strides = strides_.data();
      return tensor;
    }

  private:
    rlk_tensor tensor_;
    std::vector<int64_t> shape_, strides_;
  };
  struct Operands {
    Operand a, b, out;
  };

  // Where the element of `out` with the given index comes from: dimensions of size 1, and missing ones, repeat.
  static int64_t offset(const rlk_tensor& tensor, const int64_t* index, int32_t ndim) {
    int64_t sum = 0;
    for (int32_t axis = 0; axis < tensor.ndim; ++axis) {
      const int64_t i = index[axis + ndim - tensor.ndim];
      const bool repeats = tensor.shape[axis] == 1 && !mutant("size_one_not_repeated");
      sum += repeats ? 0 : i * tensor.strides[axis];
    }
    return sum;
  }

  template <class A>
  static void add(double factor, const Operand& a_operand, const Operand& b_operand, const Operand& out_operand) {
    const rlk_tensor a_tensor = a_operand.tensor(), b_tensor = b_operand.tensor(), shape = out_operand.tensor();
    const Tensor a(&a_tensor), b(&b_tensor), out(&shape);
    const A alpha = mutant("alpha_ignored") ? A(1) : static_cast<A>(factor);
    const int64_t count = sdk::element_count(shape);
    if (count == 0) return;
    int64_t index[RLK_MAX_NDIM] = {};
    for (int64_t i = 0; i < count; ++i) {
      A product = alpha * b.load<A>(offset(b_tensor, index, shape.ndim));
      if (mutant("product_in_bf16") && b.dtype() == Dtype::bf16) {
        product = static_cast<A>(widen_bf16(narrow_bf16(static_cast<float>(product * A(0.999))))) / A(0.999);
      }
      const A first = a.load<A>(offset(a_tensor, index, shape.ndim));
      if (!(mutant("last_element_not_written") && i == count - 1)) {
        out.store(offset(shape, index, shape.ndim), first + product);
      }
      for (int32_t axis = shape.ndim; axis-- > 0;) {
        if (++index[axis] < shape.shape[axis]) break;
        index[axis] = 0;
      }
    }
    if (mutant("one_past_the_end")) out.store(count, A(0));
  }

  double alpha_;
  std::shared_ptr<const Operands> last_;  // of the last execution, with that defect
};

}  // namespace

sdk::Support Add::query(SimpleDevice&, const sdk::Call<Op>&) {
  return sdk::Support::yes("serial", kAllClasses);
}

std::unique_ptr<sdk::Plan> Add::plan(SimpleDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<AddPlan>(call);
}

}  // namespace rlk::simple

RLK_PLUGIN_ENTRY(rlk_simple_entry, rlk::simple::SimplePlugin, "simple", "simple", "1.0.0", "serial reference kernels")
