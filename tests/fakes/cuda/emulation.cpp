// The scheduler: fibers that run until they wait, waves of them, blocks of waves.
#include "clusters.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace rlk::emulation {
namespace {

// Switching between stacks. On x86-64 by hand, because swapcontext enters the kernel twice; blocks switch a lot.
#if defined(__x86_64__)
using Context = void*;  // the stack pointer, everything else lies on the stack
extern "C" void rlk_emulation_switch(Context* from, Context to);
asm(R"(
.text
.globl rlk_emulation_switch
.hidden rlk_emulation_switch
.type rlk_emulation_switch, @function
rlk_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rlk_emulation_switch, . - rlk_emulation_switch
)");
void switch_to(Context& from, Context& to) {
  rlk_emulation_switch(&from, to);
}
void start_at(Context& context, Seat& seat, void (*entry)()) {
  void** top = reinterpret_cast<void**>(&seat);
  *--top = nullptr;  // as if entry had been called: keeps the alignment that functions expect
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context = top;
}
#else
using Context = ucontext_t;
void switch_to(Context& from, Context& to) {
  swapcontext(&from, &to);
}
void start_at(Context& context, Seat& seat, void (*entry)()) {
  const uintptr_t end = reinterpret_cast<uintptr_t>(&seat), begin = end / kStackBytes * kStackBytes;
  getcontext(&context);
  context.uc_stack.ss_sp = reinterpret_cast<void*>(begin);
  context.uc_stack.ss_size = end - begin;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
#endif

enum class State : uint8_t { ready, in_wave, in_block, asks, done };

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Wave {
  alignas(kSlotBytes) unsigned char slots[2][kWave][kSlotBytes];
  Context contexts[kWave];
  State states[kWave];
  bool votes[kWave];
  unsigned lanes = 0;  // there are, of which so many wait for the others, wait for the block, have returned
  unsigned in_wave = 0, in_block = 0, done = 0;
};

// Of a block's 16.
struct NumberedBarrier {
  unsigned arrived = 0, turn = 0;
};

struct Cluster;
struct Block : Place {
  std::vector<Wave> waves;
  Cluster* cluster = nullptr;
  NumberedBarrier numbered[16];
  std::vector<unsigned char> shared;
  const std::function<void()>* body = nullptr;
  Context scheduler{};
  bool all = true;
};

// A copy that some barrier counts.
struct Counted {
  const void* barrier;
  std::function<void()> copy;
};

// Blocks that run at the same time.
struct Cluster {
  std::vector<Block> blocks;
  std::vector<Counted> copies;  // that have not happened
  size_t arrived = 0;           // threads at the barrier of all
  unsigned turn = 0;
};

struct Fiber : Seat {
  Block* block = nullptr;
  Wave* wave = nullptr;
  const std::function<bool()>* ready = nullptr;  // of one that asks
  std::vector<Copy> copies;                      // that have not happened
  std::vector<size_t> group_ends;                // of those, in copies: what was committed together
};
static_assert(sizeof(Fiber) <= kSeatBytes);

// Of the calling thread, kept for its next launch: there are many small ones.
class Fibers {
public:
  Fibers() = default;
  ~Fibers() {
    for (Fiber* fiber : fibers_) fiber->~Fiber();
    for (void* stacks : mapped_) munmap(stacks, kMapped);
  }
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  Fiber& operator[](size_t i) {
    while (fibers_.size() <= i) add();
    return *fibers_[i];
  }

private:
  static constexpr size_t kAtOnce = 64, kMapped = (kAtOnce + 1) * kStackBytes;  // one for the alignment

  void add() {
    void* const stacks =
        mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) std::abort();
    madvise(stacks, kMapped, MADV_NOHUGEPAGE);  // little of each is used
    mapped_.push_back(stacks);
    const uintptr_t first = (reinterpret_cast<uintptr_t>(stacks) + kStackBytes - 1) / kStackBytes;
    for (size_t i = 0; i < kAtOnce; ++i) fibers_.push_back(new (reinterpret_cast<void*>(seat_at(first + i))) Fiber);
  }

  std::vector<Fiber*> fibers_;
  std::vector<void*> mapped_;
};

Fiber& running() {
  return static_cast<Fiber&>(seat());
}

// When every lane of the wave waits or has returned, those that wait may go on.
bool release(Wave& wave) {
  if (wave.in_wave == 0 || wave.in_wave + wave.done < wave.lanes) return false;
  for (unsigned lane = 0; lane < wave.lanes; ++lane) {
    if (wave.states[lane] == State::in_wave) wave.states[lane] = State::ready;
  }
  return wave.in_wave = 0, true;
}

// To the next lane of the wave that is ready, and to the scheduler when there is none.
void yield(Fiber& fiber, State state) {
  Wave& wave = *fiber.wave;
  const auto own = static_cast<unsigned>(fiber.lane);
  wave.states[own] = state;
  if (state != State::asks) {
    ++(state == State::in_wave ? wave.in_wave : state == State::in_block ? wave.in_block : wave.done);
  }
  if (release(wave) && state == State::in_wave) return;  // the last to come goes on at once
  for (unsigned step = 1; step < wave.lanes; ++step) {
    const unsigned next = own + step < wave.lanes ? own + step : own + step - wave.lanes;
    if (wave.states[next] == State::ready) return switch_to(wave.contexts[own], wave.contexts[next]);
  }
  switch_to(wave.contexts[own], fiber.block->scheduler);
}

void fiber_main() {
  (*running().block->body)();
  yield(running(), State::done);
  std::abort();
}

// The kernel's threads wait for each other: some left out a barrier or a shuffle that others reached.
[[noreturn]] void abort_deadlock(const std::vector<Block>& blocks) {
  unsigned lanes = 0, in_wave = 0, in_block = 0, done = 0;
  for (const Block& block : blocks) {
    for (const Wave& wave : block.waves) {
      lanes += wave.lanes, in_wave += wave.in_wave, in_block += wave.in_block, done += wave.done;
    }
  }
  std::fprintf(stderr,
               "emulated kernel: of %u threads %u wait for their wave, %u for their block, %u for another barrier, %u "
               "have returned\n",
               lanes, in_wave, in_block, lanes - in_wave - in_block - done, done);
  std::abort();
}

// Runs the fibers of a wave until none is ready. True when any ran.
bool run_wave(Block& block, Wave& wave, Fibers& fibers, size_t first) {
  bool any = false;
  for (unsigned lane = 0; lane < wave.lanes; ++lane) {
    if (wave.states[lane] == State::asks && (*fibers[first + lane].ready)()) wave.states[lane] = State::ready;
    if (wave.states[lane] != State::ready) continue;
    switch_to(block.scheduler, wave.contexts[lane]);  // the others' turns come there
    any = true;
  }
  return any;
}

// Past the barrier at which all threads wait that have not returned.
void open_barrier(Block& block) {
  block.all = true;
  for (Wave& wave : block.waves) {
    for (unsigned lane = 0; lane < wave.lanes; ++lane) {
      if (wave.states[lane] != State::in_block) continue;
      block.all = block.all && wave.votes[lane];
      wave.states[lane] = State::ready;
    }
    wave.in_block = 0;
  }
}

// A turn of all threads; first: of its fibers. True when any ran.
bool run_block(Block& block, Fibers& fibers, size_t first, bool& is_done) {
  bool any = false;
  for (size_t w = block.waves.size(); w-- > 0;) {
    any = run_wave(block, block.waves[w], fibers, first + w * kWave) || any;
  }
  size_t lanes = 0, done = 0, waiting = 0;
  for (const Wave& wave : block.waves) lanes += wave.lanes, done += wave.done, waiting += wave.in_block;
  is_done = done == lanes;
  if (waiting == 0 || done + waiting < lanes) return any;
  open_barrier(block);
  return true;
}

void run_cluster(Cluster& cluster, Fibers& fibers, size_t block_threads) {
  for (size_t done = 0; done < cluster.blocks.size();) {
    bool any = false;
    done = 0;
    for (size_t b = cluster.blocks.size(); b-- > 0;) {
      bool is_done = false;
      any = run_block(cluster.blocks[b], fibers, b * block_threads, is_done) || any;
      done += is_done ? 1 : 0;
    }
    if (!any && done < cluster.blocks.size()) abort_deadlock(cluster.blocks);
  }
  if (cluster.copies.empty()) return;
  std::fprintf(stderr, "emulated kernel: has returned before %zu of its copies were waited for\n",
               cluster.copies.size());
  std::abort();
}

// The scheduler asks it between the turns of threads; this thread does not.
void wait_until(const std::function<bool()>& ready) {
  if (ready()) return;
  Fiber& fiber = running();
  fiber.ready = &ready;
  yield(fiber, State::asks);
}

}  // namespace

void wait_for_block() {
  block_and(true);
}

bool block_and(bool vote) {
  Fiber& fiber = running();
  fiber.wave->votes[fiber.lane] = vote;
  yield(fiber, State::in_block);
  return fiber.block->all;
}

void wait_for_wave() {
  yield(running(), State::in_wave);
}

void copy_later(void* to, const void* from, size_t bytes) {
  running().copies.push_back({to, from, bytes});
}
void commit_copies() {
  Fiber& fiber = running();
  fiber.group_ends.push_back(fiber.copies.size());
}
void wait_copies(int pending) {
  std::vector<Copy>& copies = running().copies;
  std::vector<size_t>& ends = running().group_ends;
  if (static_cast<int>(ends.size()) <= pending) return;
  const size_t groups = ends.size() - static_cast<size_t>(pending), count = ends[groups - 1];
  for (size_t i = 0; i < count; ++i) {
    const Copy& copy = copies[i];
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(count));
  ends.erase(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(groups));
  for (size_t& end : ends) end -= count;
}

void wait_for_threads(int number, unsigned threads) {
  NumberedBarrier& barrier = running().block->numbered[static_cast<size_t>(number)];
  const unsigned turn = barrier.turn;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.turn;
  }
  wait_until([&barrier, turn] { return barrier.turn != turn; });
}

int block_of_cluster() {
  const Block& own = *running().block;
  return static_cast<int>(&own - own.cluster->blocks.data());
}
unsigned char* shared_of(int block) {
  return running().block->cluster->blocks[static_cast<size_t>(block)].dynamic_shared;
}
void wait_for_cluster() {
  Cluster& cluster = *running().block->cluster;
  const unsigned turn = cluster.turn;
  const unsigned threads = running().block->block_size.x * static_cast<unsigned>(cluster.blocks.size());
  if (++cluster.arrived == threads) {
    cluster.arrived = 0;
    ++cluster.turn;
  }
  wait_until([&cluster, turn] { return cluster.turn != turn; });
}
void copy_for(const void* barrier, std::function<void()> copy) {
  running().block->cluster->copies.push_back({barrier, std::move(copy)});
}
void wait_for_copies(const void* barrier, const std::function<bool()>& is_over) {
  std::vector<Counted>& copies = running().block->cluster->copies;
  wait_until([&copies, barrier, &is_over] {
    const auto its = std::stable_partition(copies.begin(), copies.end(),
                                           [barrier](const Counted& copy) { return copy.barrier != barrier; });
    for (auto copy = its; copy != copies.end(); ++copy) copy->copy();
    copies.erase(its, copies.end());
    return is_over();
  });
}

// Blocks from the last to the first, and so a block's waves: a device may take them in any order, and what counts on
// that of their numbers is to be seen here.
uint64_t run_clusters(unsigned blocks, const Dim& grid, const Dim& size, size_t shared_bytes,
                      const std::function<void()>& body) {
  thread_local Fibers fibers;
  Fibers& own = fibers;
  const size_t count = static_cast<size_t>(size.x) * size.y * size.z;
  Cluster cluster;
  cluster.blocks.resize(blocks);
  for (unsigned b = 0; b < blocks; ++b) {
    Block& block = cluster.blocks[b];
    block.cluster = &cluster;
    block.block_size = size;
    block.grid = grid;
    block.waves.resize((count + kWave - 1) / kWave);
    block.body = &body;
    block.shared.resize(shared_bytes + 128);
    block.dynamic_shared = block.shared.data() + (128 - reinterpret_cast<uintptr_t>(block.shared.data()) % 128) % 128;
    for (size_t i = 0; i < count; ++i) {
      Fiber& fiber = own[b * count + i];
      Wave& wave = block.waves[i / kWave];
      static_cast<Seat&>(fiber) = {
          {static_cast<unsigned>(i), 0, 0}, static_cast<int>(i % kWave), 0, &block, &wave.slots[0][0][0]};
      fiber.block = &block;
      fiber.wave = &wave;
      ++wave.lanes;
    }
  }
  for (unsigned first = grid.x; first > 0;) {
    first -= blocks;
    cluster.arrived = 0;
    for (unsigned b = 0; b < blocks; ++b) {
      Block& block = cluster.blocks[b];
      block.block = {first + b, 0, 0};
      std::memset(block.shared.data(), 0xee, block.shared.size());  // no kernel may count on what it finds
      for (Wave& wave : block.waves) {
        std::memset(wave.slots, 0, sizeof(wave.slots));
        std::fill(std::begin(wave.states), std::end(wave.states), State::ready);
        wave.in_wave = wave.in_block = wave.done = 0;
      }
      for (size_t i = 0; i < count; ++i) {
        Fiber& fiber = own[b * count + i];
        fiber.turn = 0;
        fiber.copies.clear();
        fiber.group_ends.clear();
        start_at(fiber.wave->contexts[fiber.lane], fiber, &fiber_main);
      }
    }
    run_cluster(cluster, own, count);
  }
  uint64_t waits = 0;
  for (const Block& block : cluster.blocks) waits += block.waits;
  return waits;
}

void run_grid(const Dim& grid, const Dim& size, size_t shared_bytes, const std::function<void()>& body) {
  run_clusters(1, grid, size, shared_bytes, body);
}

}  // namespace rlk::emulation
