// What self_test.py reads by rule; it is not compiled.
namespace rlk::cpu {

constexpr int kBlock = 64;
template <class T>
T min(T a, T b);
double IfThenElseZero(int mask, double number);

double reduce(const double* x, int n, bool is_mean, bool is_sum) {
  if (n == 0) return -1.0;
  double sum = 0;
  for (int i = 0; i < min(n, kBlock); ++i) sum += x[i];
  const double count = n;
  if (!is_sum) return sum;
  return is_mean ? sum / count : IfThenElseZero(n, sum);
}

}  // namespace rlk::cpu
