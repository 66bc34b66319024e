// Lists in macros: RLK_SIMT_COUNT(a, b) is 2, RLK_SIMT_EACH(M, a, b) is M(a) M(b). Twenty entries at most.
#pragma once

#define RLK_SIMT_CAT_(a, b) a##b
#define RLK_SIMT_CAT(a, b) RLK_SIMT_CAT_(a, b)
#define RLK_SIMT_TWENTIETH(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, n, ...) n
#define RLK_SIMT_COUNT(...) \
  RLK_SIMT_TWENTIETH(__VA_ARGS__, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)

#define RLK_SIMT_EACH_1(M, a) M(a)
#define RLK_SIMT_EACH_2(M, a, ...) M(a) RLK_SIMT_EACH_1(M, __VA_ARGS__)
#define RLK_SIMT_EACH_3(M, a, ...) M(a) RLK_SIMT_EACH_2(M, __VA_ARGS__)
#define RLK_SIMT_EACH_4(M, a, ...) M(a) RLK_SIMT_EACH_3(M, __VA_ARGS__)
#define RLK_SIMT_EACH_5(M, a, ...) M(a) RLK_SIMT_EACH_4(M, __VA_ARGS__)
#define RLK_SIMT_EACH_6(M, a, ...) M(a) RLK_SIMT_EACH_5(M, __VA_ARGS__)
#define RLK_SIMT_EACH_7(M, a, ...) M(a) RLK_SIMT_EACH_6(M, __VA_ARGS__)
#define RLK_SIMT_EACH_8(M, a, ...) M(a) RLK_SIMT_EACH_7(M, __VA_ARGS__)
#define RLK_SIMT_EACH_9(M, a, ...) M(a) RLK_SIMT_EACH_8(M, __VA_ARGS__)
#define RLK_SIMT_EACH_10(M, a, ...) M(a) RLK_SIMT_EACH_9(M, __VA_ARGS__)
#define RLK_SIMT_EACH_11(M, a, ...) M(a) RLK_SIMT_EACH_10(M, __VA_ARGS__)
#define RLK_SIMT_EACH_12(M, a, ...) M(a) RLK_SIMT_EACH_11(M, __VA_ARGS__)
#define RLK_SIMT_EACH_13(M, a, ...) M(a) RLK_SIMT_EACH_12(M, __VA_ARGS__)
#define RLK_SIMT_EACH_14(M, a, ...) M(a) RLK_SIMT_EACH_13(M, __VA_ARGS__)
#define RLK_SIMT_EACH_15(M, a, ...) M(a) RLK_SIMT_EACH_14(M, __VA_ARGS__)
#define RLK_SIMT_EACH_16(M, a, ...) M(a) RLK_SIMT_EACH_15(M, __VA_ARGS__)
#define RLK_SIMT_EACH_17(M, a, ...) M(a) RLK_SIMT_EACH_16(M, __VA_ARGS__)
#define RLK_SIMT_EACH_18(M, a, ...) M(a) RLK_SIMT_EACH_17(M, __VA_ARGS__)
#define RLK_SIMT_EACH_19(M, a, ...) M(a) RLK_SIMT_EACH_18(M, __VA_ARGS__)
#define RLK_SIMT_EACH_20(M, a, ...) M(a) RLK_SIMT_EACH_19(M, __VA_ARGS__)
#define RLK_SIMT_EACH(M, ...) RLK_SIMT_CAT(RLK_SIMT_EACH_, RLK_SIMT_COUNT(__VA_ARGS__))(M, __VA_ARGS__)
