// Norms of rows and softmax, and their gradients: what is done with one element, and with a row's own numbers. Those
// are double, or whatever else number(d, ...) takes.
#if defined(RLK_FORMULA_NORM) == defined(HWY_TARGET_TOGGLE)  // once, with Highway once for each instruction set
#ifdef RLK_FORMULA_NORM
#undef RLK_FORMULA_NORM
#else
#define RLK_FORMULA_NORM
#endif

#include <rlk/formula/vocabulary.hpp>

RLK_FORMULA_BEGIN

// --- rms -------------------------------------------------------------------------------------------------------------
// x root weight, where root is scale of_scaled: x times the power of two is within the range in which x root is.
template <class D, class V, class N>
RLK_FORMULA V rms_of(D d, V x, N scale, N of_scaled, V weight) {
  return Mul(Mul(Mul(x, number(d, scale)), number(d, of_scaled)), weight);
}
// What the gradient is projected on, x root, times the gradient that reaches it.
template <class D, class V, class N>
RLK_FORMULA V rms_gradient_along(D d, V grad, V x, V weight, N root) {
  return Mul(Mul(grad, weight), Mul(x, number(d, root)));
}
// root (grad weight - x root mean) + more, where mean is that of rms_gradient_along over the row.
template <class D, class V, class N>
RLK_FORMULA V rms_gradient(D d, V grad, V x, V weight, N root, N mean, V more) {
  const V along = Mul(Mul(x, number(d, root)), number(d, mean));
  return MulAdd(number(d, root), Sub(Mul(grad, weight), along), more);
}

// --- layer norm ------------------------------------------------------------------------------------------------------
// x - mean, the mean in two parts where V has fewer digits than it.
template <class D, class V>
RLK_FORMULA V less_mean(D d, V x, double mean) {
  const double high = static_cast<double>(static_cast<TFromD<D>>(mean));
  return Sub(Sub(x, number(d, high)), number(d, mean - high));
}
template <class D, class V, class Mean, class N>
RLK_FORMULA V normal_of(D d, V x, Mean mean, N rstd) {
  return Mul(less_mean(d, x, mean), number(d, rstd));
}
// rstd (grad weight - mean of it - n mean of (grad weight n)), n the normalised x
template <class D, class V, class N>
RLK_FORMULA V normal_gradient(D d, V grad, V n, V weight, N rstd, N mean, N mean_along) {
  const V centred = Sub(Mul(grad, weight), number(d, mean));
  return Mul(number(d, rstd), NegMulAdd(n, number(d, mean_along), centred));
}

// --- softmax ---------------------------------------------------------------------------------------------------------
// share: one over the sum of the powers.
template <class D, class V, class N>
RLK_FORMULA V softmax_of(D d, V x, N largest, N share) {
  return Mul(exp(d, Sub(x, number(d, largest))), number(d, share));
}
template <class D, class V, class N>
RLK_FORMULA V log_softmax_of(D d, V x, N largest, N log_sum) {
  return Sub(Sub(x, number(d, largest)), number(d, log_sum));
}
// sum: of grad y over the row.
template <class D, class V, class N>
RLK_FORMULA V softmax_gradient(D d, V grad, V y, N sum) {
  return Mul(y, Sub(grad, number(d, sum)));
}
// sum: of grad over the row; y is the logarithm.
template <class D, class V, class N>
RLK_FORMULA V log_softmax_gradient(D d, V grad, V y, N sum) {
  return NegMulAdd(exp(d, y), number(d, sum), grad);
}

RLK_FORMULA_END
#endif
