// Are the lanes of a wave what simt.cuh promises? Waves take turns at doing more than others: each has barriers of its
// own.
#include "lanes.h"

#include "plugins/simt/simt.cuh"

using namespace rlk::simt;

RLK_SIMT_KERNEL(kLanesThreads)
lanes(RLK_SIMT_ARGUMENT(LanesArgs) args) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWave;
  LanesResult result{};
  for (int round = 0; round <= thread / kWave; ++round) {
    result.far = wave_xor(thread, kWave / 2);
    result.read = wave_read(thread, (7 * lane + 3) % kWave);
    result.every3rd = wave_ballot(lane % 3 == 0);
    result.sum = thread;
    for (int far = kWave / 2; far > 0; far /= 2) result.sum += wave_xor(result.sum, far);
    wave_sync();
  }
  __syncthreads();
  args.result[thread] = result;
}
