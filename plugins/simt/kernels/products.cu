// The kernels around products. Names: products_map_<from>_<to>, products_columns_<dtype>,
// products_columns_finish_<accumulator>, products_rows_<bytes of an element>, products_largest, products_scale and
// products_errors.
#include "../products.cuh"

using namespace rlk::simt;

#define RLK_PRODUCTS_MAP(from, From, to, To)                                                              \
  RLK_SIMT_KERNEL(kProductsThreads) products_map_##from##_##to(RLK_SIMT_ARGUMENT(ProductsMapArgs) args) { \
    products_map<From, To>(args);                                                                         \
  }
RLK_PRODUCTS_MAP(f32, float, f32, float)
RLK_PRODUCTS_MAP(bf16, bf16, bf16, bf16)
RLK_PRODUCTS_MAP(f16, f16, f16, f16)
RLK_PRODUCTS_MAP(f64, double, f64, double)
RLK_PRODUCTS_MAP(f32, float, bf16, bf16)
RLK_PRODUCTS_MAP(f32, float, f16, f16)
RLK_PRODUCTS_MAP(bf16, bf16, f32, float)
RLK_PRODUCTS_MAP(f16, f16, f32, float)

#define RLK_PRODUCTS_COLUMNS(suffix, T)                                                                      \
  RLK_SIMT_KERNEL(kProductsThreads) products_columns_##suffix(RLK_SIMT_ARGUMENT(ProductsColumnsArgs) args) { \
    products_columns<T>(args);                                                                               \
  }
RLK_PRODUCTS_COLUMNS(f32, float)
RLK_PRODUCTS_COLUMNS(bf16, bf16)
RLK_PRODUCTS_COLUMNS(f16, f16)
RLK_PRODUCTS_COLUMNS(f64, double)

RLK_SIMT_KERNEL(kProductsThreads) products_columns_finish_f32(RLK_SIMT_ARGUMENT(ProductsColumnsArgs) args) {
  products_columns_finish<float>(args);
}
RLK_SIMT_KERNEL(kProductsThreads) products_columns_finish_f64(RLK_SIMT_ARGUMENT(ProductsColumnsArgs) args) {
  products_columns_finish<double>(args);
}

#define RLK_PRODUCTS_ROWS(bytes, Bits)                                                                \
  RLK_SIMT_KERNEL(kProductsThreads) products_rows_##bytes(RLK_SIMT_ARGUMENT(ProductsRowsArgs) args) { \
    products_rows<Bits>(args);                                                                        \
  }
RLK_PRODUCTS_ROWS(2, uint16_t)
RLK_PRODUCTS_ROWS(4, uint32_t)
RLK_PRODUCTS_ROWS(8, uint64_t)

RLK_SIMT_KERNEL(kProductsThreads) products_largest(RLK_SIMT_ARGUMENT(ProductsScaleArgs) args) {
  products_find_largest(args);
}
RLK_SIMT_KERNEL(1) products_scale(RLK_SIMT_ARGUMENT(ProductsScaleArgs) args) {
  products_set_scale(args);
}

RLK_SIMT_KERNEL(1) products_errors(RLK_SIMT_ARGUMENT(ProductsErrorsArgs) args) {
  products_report(args);
}
