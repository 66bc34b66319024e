// Activations and gates of feed-forward layers, and their gradients.
#if defined(RLK_FORMULA_ACTIVATION) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_ACTIVATION
#undef RLK_FORMULA_ACTIVATION
#else
#define RLK_FORMULA_ACTIVATION
#endif

#include <rlk/formula/vocabulary.hpp>

RLK_FORMULA_BEGIN

// --- relu and sigmoid ------------------------------------------------------------------------------------------------
template <class D, class V>
RLK_FORMULA V relu_of(D d, V x) {
  return at_least(d, 0, x);
}
// By y = relu(x). NaN stays NaN.
template <class D, class V>
RLK_FORMULA V relu_gradient(D d, V grad, V y) {
  return IfThenElse(IsNaN(y), y, IfThenElseZero(Gt(y, Zero(d)), grad));
}

// By y = sigmoid(x).
template <class D, class V>
RLK_FORMULA V sigmoid_gradient(D d, V grad, V y) {
  return Mul(Mul(grad, y), Sub(number(d, 1), y));
}

// --- silu ------------------------------------------------------------------------------------------------------------
// The logistic function s of x in parts that stay normal numbers where x s is one: of exp(-|x|) the root, 1 or that
// root, whose square is the numerator, and the denominator.
template <class V>
struct Logistic {
  V root, numerator, denominator;
};
template <class D, class V>
RLK_FORMULA Logistic<V> logistic(D d, V x) {
  const V one = number(d, 1);
  const V root = exp(d, Mul(Abs(x), number(d, -0.5)));
  return {root, IfThenElse(Lt(x, Zero(d)), root, one), MulAdd(root, root, one)};
}

// x s.
template <class D, class V>
RLK_FORMULA V silu_of(D d, V x, const Logistic<V>& s) {
  return quotient(d, Mul(Mul(x, s.numerator), s.numerator), s.denominator);
}
// 1 + x (1 - s), which times s is the slope of silu.
template <class D, class V>
RLK_FORMULA V silu_slope_over_s(D d, V x, const Logistic<V>& s) {
  const V one = number(d, 1);
  const V opposite = IfThenElse(Lt(x, Zero(d)), one, Mul(s.root, s.root));
  return MulAdd(x, quotient(d, opposite, s.denominator), one);
}
// No factor but the last is above 1, so that nothing overflows where the whole does not. s by its two roots: it may be
// smaller than any normal number where the gradient is large.
template <class D, class V>
RLK_FORMULA V silu_gradient(D d, V grad, V x) {
  const Logistic<V> s = logistic(d, x);
  const V rest = Mul(silu_slope_over_s(d, x, s), quotient(d, s.numerator, s.denominator));
  return Mul(Mul(grad, s.numerator), rest);
}

// input silu(gate), and the gradients of gate and input.
template <class D, class V>
RLK_FORMULA V silu_gate(D d, V gate, V input) {
  return Mul(input, silu_of(d, gate, logistic(d, gate)));
}
template <class D, class V>
RLK_FORMULA Two<V> silu_gate_gradients(D d, V grad, V gate, V input) {
  const Logistic<V> s = logistic(d, gate);
  const V share = Mul(s.numerator, quotient(d, s.numerator, s.denominator));
  // The slope first: grad input may be beyond the largest number where the whole is not.
  return {Mul(Mul(grad, Mul(share, silu_slope_over_s(d, gate, s))), input), Mul(grad, Mul(gate, share))};
}

// --- gelu ------------------------------------------------------------------------------------------------------------
// P(-a) exp(a^2 / 2) for a >= 0, where P is the normal distribution function.
template <class D, class V>
RLK_FORMULA V scaled_normal_tail(D d, V a) {
  if constexpr (kIsBrief<D>) {
    // The quotient of two polynomials with the least relative error, 4e-7, on [0, 13.4].
    return quotient(d, horner(d, a, 0.0168907978f, 0.118868820f, 0.360815585f, 0.499999821f),
                    horner(d, a, 0.0423443280f, 0.297746897f, 0.950263143f, 1.51949799f, 1.0f));
  } else if constexpr (sizeof(TFromD<D>) == 4) {
    // With the least relative error 5e-9.
    return quotient(d, horner(d, a, 0.00402863091f, 0.0400413796f, 0.181477115f, 0.435917467f, 0.5f),
                    horner(d, a, 0.0100981388f, 0.100376152f, 0.464829922f, 1.19519377f, 1.66971982f, 1.0f));
  } else {
    // A polynomial of t = (z - 3) / (z + 3) with z = a / sqrt(2), interpolated at Chebyshev nodes: twice as much, off
    // by 5e-17.
    const V z = Mul(a, number(d, 0.70710678118654752)), three = number(d, 3);
    const V t = Div(Sub(z, three), Add(z, three));
    const V twice =
        horner(d, t, 6.643453056687051e-10, -8.094526670814713e-11, -7.13545624922474e-09, -1.736801007668219e-09,
               4.442333689876872e-08, 3.2416490857268025e-08, -2.324602315004507e-07, -2.973197304864827e-07,
               1.2512303414399659e-06, 2.121889158013071e-06, -7.977654048876724e-06, -1.2861183668613251e-05,
               6.405644001950549e-05, 4.525546089582922e-05, -0.0005970619314950936, 0.0007077464152211896,
               0.004269136331436637, -0.024392499316733204, 0.07166583719803174, -0.15011593650085095,
               0.24560380171233026, -0.3262335600430364, 0.17900115118138996);
    return Mul(twice, number(d, 0.5));
  }
}

// P(x) and P'(x), exact or approximate.
template <class V>
struct Distribution {
  V value, slope;
};

// The normal distribution function, with all its digits below 0 too, where 1 + erf would have few.
template <class D, class V>
RLK_FORMULA Distribution<V> normal_distribution(D d, V x) {
  // Beyond this the density is 0, and an infinity would make it NaN.
  const V a = at_most(d, sizeof(TFromD<D>) == 4 ? 16 : 40, Abs(x));
  const V power = exp2(d, Mul(Mul(a, a), number(d, -0.5 * 1.4426950408889634)));
  const V tail = Mul(power, scaled_normal_tail(d, a));
  return {IfThenElse(Lt(x, Zero(d)), tail, Sub(number(d, 1), tail)), Mul(power, number(d, 0.39894228040143268))};
}

// Its approximation: (1 + tanh(u)) / 2 is the logistic function of 2 u, which has all digits below 0 too.
template <class D, class V>
RLK_FORMULA Distribution<V> tanh_distribution(D d, V x) {
  const V one = number(d, 1), root = number(d, 0.79788456080286536);
  const V square = Mul(number(d, 0.044715), Mul(x, x));
  const V u = Mul(root, MulAdd(square, x, x));
  const V power = exp2(d, Mul(Abs(u), number(d, -2 * 1.4426950408889634)));
  const V share = quotient(d, one, Add(one, power));
  const V of_u = Mul(root, MulAdd(square, number(d, 3), one));
  // Far out the derivative is less than the smallest number, and a product with infinity would be anything.
  const auto is_near = Lt(Abs(x), number(d, sizeof(TFromD<D>) == 4 ? 16 : 40));
  const V derivative = Mul(Mul(power, share), Mul(share, number(d, 2)));
  return {Mul(IfThenElse(Lt(x, Zero(d)), power, one), share), IfThenElseZero(is_near, Mul(derivative, of_u))};
}

// The declarations' `approximate` as a number: none, or tanh.
template <class D, class V>
RLK_FORMULA Distribution<V> distribution_of(D d, V x, double approximate) {
  return approximate == 0 ? normal_distribution(d, x) : tanh_distribution(d, x);
}

template <class V>
RLK_FORMULA V gelu_of(V x, const Distribution<V>& p) {
  return Mul(x, p.value);
}
template <class V>
RLK_FORMULA V gelu_gradient(V grad, V x, const Distribution<V>& p) {
  return Mul(grad, MulAdd(x, p.slope, p.value));
}

// input gelu(gate), and the gradients of gate and input.
template <class V>
RLK_FORMULA V gelu_gate(V gate, V input, const Distribution<V>& p) {
  return Mul(input, gelu_of(gate, p));
}
template <class V>
RLK_FORMULA Two<V> gelu_gate_gradients(V grad, V gate, V input, const Distribution<V>& p) {
  return {Mul(gelu_gradient(grad, gate, p), input), Mul(grad, gelu_of(gate, p))};
}

RLK_FORMULA_END
#endif
