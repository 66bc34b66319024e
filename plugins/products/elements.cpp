// Elements that a kernel converts, scales or fills beside the library's products.
#include "product.hpp"

#include "../simt/products.h"

#include <algorithm>

namespace rlk::products {

using namespace simt::host;

ElementMap::ElementMap(Device& device, sdk::Dtype from, sdk::Dtype to)
    : function_(device.kernel("products", std::string("products_map_") + sdk::name_of(from) + "_" + sdk::name_of(to))) {
}

void ElementMap::run(const Elements& elements, StreamHandle stream) const {
  const Matrix &x = elements.x, &y = elements.y;
  simt::ProductsMapArgs args{};
  args.x = elements.factor != 0 ? x.data : nullptr;
  args.y = y.data;
  args.bias = elements.bias;
  args.factor = elements.factor;
  args.scale = elements.scale;
  int64_t count = 1;
  const int64_t size[4] = {elements.batch[0], elements.batch[1], y.rows, y.columns};
  const int64_t x_stride[4] = {x.batch_stride[0], x.batch_stride[1], x.row_stride, x.column_stride};
  const int64_t y_stride[4] = {y.batch_stride[0], y.batch_stride[1], y.row_stride, y.column_stride};
  bool is_dense = args.x != nullptr && args.bias == nullptr && reinterpret_cast<uintptr_t>(y.data) % 16 == 0;
  for (int d = 3; d >= 0; --d) {
    is_dense = is_dense && (size[d] == 1 || (x_stride[d] == count && y_stride[d] == count));
    args.size[d] = size[d];
    args.x_stride[d] = x_stride[d];
    args.y_stride[d] = y_stride[d];
    count *= size[d];
  }
  if (count == 0) return;
  args.dense = is_dense ? count : 0;
  const int64_t threads = is_dense ? ceil_divide(count, simt::kProductsPack) : count;
  launch_walking(function_, std::min<int64_t>(ceil_divide(threads, simt::kProductsThreads), 1 << 16),
                 simt::kProductsThreads, 0, stream, args);
}

}  // namespace rlk::products
