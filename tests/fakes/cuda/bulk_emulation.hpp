// The copies of plugins/cuda/kernels/bulk_copies.cuh and cluster_copies.cuh on the host, by the documented rules of
// barriers, tensor maps and swizzles.
#pragma once

#include "clusters.hpp"
#include "mma_emulation.hpp"
#include "tensor_maps.hpp"

#include <cstdio>
#include <cstdlib>

// The blocks of the kernel's clusters are found by its name.
#define RLK_CLUSTER_KERNEL(name, blocks, threads)                                  \
  extern "C" __attribute__((visibility("default"))) const unsigned name##_cluster; \
  const unsigned name##_cluster = blocks;                                          \
  extern "C" __attribute__((visibility("default"))) void name

namespace rlk::cuda_kernels {

// In shared memory, 8 bytes.
struct EmulatedBarrier {
  int32_t bytes;  // under way; below 0 where they have come before they were expected
  uint8_t arrivals, pending, parity, unused;
};

inline void end_phase(EmulatedBarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  barrier.pending = barrier.arrivals;
  barrier.parity ^= 1;
}
inline EmulatedBarrier& barrier_at(uint32_t barrier, int block = emulation::block_of_cluster()) {
  return *reinterpret_cast<EmulatedBarrier*>(emulation::shared_of(block) + barrier);
}
inline void arrive(EmulatedBarrier& barrier) {
  if (barrier.pending == 0) {
    std::fputs("emulated kernel: more arrivals at a barrier than it counts\n", stderr);
    std::abort();
  }
  --barrier.pending;
  end_phase(barrier);
}

inline void barrier_init(uint32_t barrier, int arrivals) {
  barrier_at(barrier) = {0, static_cast<uint8_t>(arrivals), static_cast<uint8_t>(arrivals), 0, 0};
}
inline void barriers_ready() {}
inline void barrier_expect(uint32_t barrier, int bytes) {
  barrier_at(barrier).bytes += bytes;
  arrive(barrier_at(barrier));
}
inline void barrier_arrive(uint32_t barrier) {
  arrive(barrier_at(barrier));
}
inline void barrier_arrive_at(uint32_t barrier, int block) {
  arrive(barrier_at(barrier, block));
}
inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  const EmulatedBarrier& at = barrier_at(barrier);
  emulation::wait_for_copies(&at, [&at, parity] { return at.parity != parity; });
}

inline void warpgroup_sync(int number) {
  emulation::wait_for_threads(number, 128);
}

inline int block_of_cluster() {
  return emulation::block_of_cluster();
}
inline void cluster_sync() {
  emulation::wait_for_cluster();
}

// The 16-byte chunks of a line of 128 bytes are swizzled by the line's place among 8.
inline void copy_box_to(uint32_t to, const cuda::TensorMap& from, int column, int row, int matrix, uint32_t barrier,
                        uint32_t blocks) {
  fake_cuda::TensorMap map;
  std::memcpy(&map, &from, sizeof(map));
  for (int block = 0; blocks >> block != 0; ++block) {
    if ((blocks >> block & 1) == 0) continue;
    unsigned char* const shared = emulation::shared_of(block);
    EmulatedBarrier& counts = barrier_at(barrier, block);
    emulation::copy_for(&counts, [=, &counts] {
      for (uint32_t r = 0; r < map.box_rows; ++r) {
        for (uint32_t c = 0; c < fake_cuda::kBoxColumns; ++c) {
          const int64_t at_row = row + int64_t{r}, at_column = column + int64_t{c};
          uint16_t element = 0;
          if (at_row >= 0 && at_row < map.rows && at_column >= 0 && at_column < map.columns && matrix >= 0 &&
              matrix < map.matrices) {
            const auto* const data = static_cast<const unsigned char*>(map.data);
            std::memcpy(&element, data + matrix * map.matrix_bytes + at_row * map.row_bytes + 2 * at_column, 2);
          }
          const uint32_t address = to + 128 * r + 2 * c;
          std::memcpy(shared + (address ^ (address >> 7 & 7) << 4), &element, 2);
        }
      }
      counts.bytes -= static_cast<int32_t>(map.box_rows * fake_cuda::kBoxColumns * 2);
      end_phase(counts);
    });
  }
}
inline void copy_box(uint32_t to, const cuda::TensorMap& from, int column, int row, int matrix, uint32_t barrier) {
  copy_box_to(to, from, column, row, matrix, barrier, 1u << emulation::block_of_cluster());
}
inline void copy_slab(uint32_t to, const cuda::TensorMap& from, int column, int row, uint32_t barrier) {
  copy_box(to, from, column, row, 0, barrier);
}

template <int kRegisters>
void give_registers() {}
template <int kRegisters>
void take_registers() {}

}  // namespace rlk::cuda_kernels
