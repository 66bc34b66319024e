// The host's side of operators of rows (../skeleton/rows.cuh): what RLK_SIMT_ROWS says of one becomes its
// implementation, for all floating dtypes and strides.
#pragma once

#include "../skeleton/rows.h"
#include "declared.hpp"

#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace rlk::simt::host {

struct RowsArgument {
  // As RowKind.
  enum class Kind {
    out,
    wide_out,
    narrow_out,
    in,
    streamed,
    or_one,
    or_zero,
    of_row,
    integer_of_row,
    integers_of_row,
    id_of_row,
    list_of_row,
    ids_of_row,
    kept,
    of_column,
    of_block,
    kept_of_block,
    of_call,
    integers_of_call,
    kept_once
  };

  bool is_read() const noexcept { return kind == Kind::in || kind == Kind::streamed; }
  bool is_matrix() const noexcept {
    return kind == Kind::out || kind == Kind::wide_out || kind == Kind::narrow_out || is_read();
  }
  // A number for each column, or a matrix that may be absent.
  bool is_vector() const noexcept { return kind == Kind::or_one || kind == Kind::or_zero; }
  // Ids that are written.
  bool is_id() const noexcept { return kind == Kind::id_of_row || kind == Kind::ids_of_row; }
  // That are read, and may be a mask.
  bool is_integer() const noexcept {
    return kind == Kind::integer_of_row || kind == Kind::integers_of_row || kind == Kind::integers_of_call;
  }
  bool has_columns() const noexcept {
    return kind != Kind::of_row && kind != Kind::integer_of_row && kind != Kind::id_of_row && kind != Kind::of_call &&
           kind != Kind::of_block;
  }
  // One of the matrices' dtype, or of its accumulator's.
  bool is_of_dtype() const noexcept { return kind != Kind::of_row && kind != Kind::of_call; }

  Kind kind = Kind::out;
  const char* name = "";  // a literal
  const rlk_tensor* tensor = nullptr;
};

// When one block does what is done of all rows (../skeleton/rows_all.cuh).
enum class RowsAll { never, before, after, around };

// A call of an operator of rows: its arguments, one of them an input that is a matrix.
struct RowsCall {
  RowsCall(std::initializer_list<RowsArgument> all, std::initializer_list<double> parameters);
  // made: what its text takes of the call, a struct that knows whether it asks_f64().
  template <class Made, class = std::enable_if_t<std::is_class<Made>::value>>
  RowsCall(std::initializer_list<RowsArgument> all, const Made& made, RowsAll when)
      : RowsCall(all, std::initializer_list<double>{}) {
    static_assert(std::is_trivially_copyable<Made>::value && sizeof(Made) <= sizeof(numbers), "kRowNumbers");
    std::memcpy(numbers, &made, sizeof(made));
    all_rows = when;
    asks_f64 = made.asks_f64();
    may_share_wave = false;
  }

  const rlk_tensor& matrix() const;  // the first that is read
  sdk::Dtype dtype() const { return sdk::dtype_of(matrix()); }
  int64_t columns() const { return matrix().shape[matrix().ndim - 1]; }

  bool has_sums() const noexcept;                                                   // over rows, of each column
  bool keeps() const noexcept { return has_sums() || all_rows != RowsAll::never; }  // numbers of rows

  int count = 0;
  RowsArgument arguments[simt::kRowTensors];
  double numbers[simt::kRowNumbers] = {};
  RowsAll all_rows = RowsAll::never;
  bool asks_f64 = false;       // for a parameter that fp32 is too narrow for
  bool may_share_wave = true;  // several rows do a wave's reductions together: what is done decides none of them by row
};

struct RowsKernels {
  const char* image;
  const char* prefix;  // of the kernels' names
  bool has_blocks;     // a kernel for RowShape::block
};

// The kernel's arguments on a device of such waves.
simt::RowArgs arguments_of_rows(const RowsCall& call, int wave);
// Whether the kernel that does the rows sums over them too, of what its threads hold.
bool are_summed_as_held(const RowsCall& call, const simt::RowArgs& args);
// Whether the rows are such as RowShape::block says: held by a block of several waves, of tensors in packs that are as
// if of two dimensions, with every output, and one weight for all of them.
bool is_of_blocks(const RowsCall& call, const simt::RowArgs& args, int wave);
// Gives what is kept and the parts of sums a place in the workspace, when it is there; the bytes it takes.
uint64_t place_kept(const RowsCall& call, simt::RowArgs& args, int wave, void* workspace);
// Threads and blocks of its launch.
int threads_of_rows(const simt::RowArgs& args, int wave);
int64_t blocks_of_rows(const simt::RowArgs& args, int wave);
// And the dynamic shared memory of one of a kernel for RowShape::block.
int shared_of_blocks(const RowsCall& call, const simt::RowArgs& args, int wave);

class RowsPlan : public KernelPlan {
public:
  static sdk::Support support(const Device& device, const RowsCall& call);
  RowsPlan(Device& device, const RowsKernels& kernels, const RowsCall& call);

protected:
  void launch(sdk::Stream& stream, const RowsCall& call, const sdk::Run& run) const;
  uint64_t workspace_of(const RowsCall& call) const;

private:
  FunctionHandle kernel_, chunks_ = nullptr, summed_ = nullptr, blocks_ = nullptr, totals_ = nullptr, first_ = nullptr,
                          all_ = nullptr;
  int wave_;
};

// Declared: what RLK_SIMT_ROWS made of an operator.
template <class Declared>
struct Rows : DeclaredBy<Declared, RowsPlan> {
  static constexpr const char* kName = "rows";
};

}  // namespace rlk::simt::host
