// The cache of examples, and the threads that fill in what comes next.
#include "core/conformance/examples.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/conformance/data.hpp"

namespace rlk::core::conformance {
namespace {

constexpr size_t kBytesKept = size_t{64} << 20;
constexpr size_t kBytesAhead = size_t{64} << 20;
constexpr size_t kCasesAhead = 256;

std::string key_of(const Case& c, const ConcreteCall& call, bool other_data) {
  return std::string(c.decl->name) + (other_data ? " other " : " ") + describe(c, call);
}

void complete(Example& example, uint64_t seed, Answers& answers) {
  fill_inputs(example.spec, seed, example.call, &answers);
  example.answer = answers.to(example.call);
}

size_t size_of(const Example& example) {
  size_t bytes = sizeof(Example);
  for (const Argument& input : example.call.inputs) bytes += input.bytes.size();
  for (const auto& output : example.answer->outputs) {
    bytes += (output.value.size() + output.cond.size() + output.rounded.size()) * sizeof(double);
  }
  return bytes;
}

}  // namespace

class Examples::Ahead {
public:
  Ahead(const std::vector<Case>& upcoming, uint64_t seed, Answers& answers, unsigned threads)
      : seed_(seed), answers_(answers) {
    for (const Case& c : upcoming) {
      ConcreteCall call;
      if (!resolve(c, call) || !index_.emplace(key_of(c, call, false), slots_.size()).second) continue;
      slots_.emplace_back().spec = c;
    }
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Ahead() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  // nullptr when no thread has begun it: it is then the caller's. While another thread makes it, the caller makes what
  // comes behind.
  std::shared_ptr<const Example> take(const std::string& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[found->second];
    for (; passed_ <= found->second; ++passed_) {
      if (passed_ == found->second) continue;
      give(slots_[passed_]);  // left out: the caller will not ask for it
      slots_[passed_].state = State::taken;
    }
    changed_.notify_all();
    if (slot.state == State::open) slot.state = State::taken;
    while (slot.state == State::begun) {
      if (may_begin()) {
        make_next(lock);
      } else {
        changed_.wait(lock);
      }
    }
    slot.state = State::taken;
    return give(slot);
  }

private:
  enum class State : uint8_t { open, begun, done, taken };
  struct Slot {
    Case spec;
    State state = State::open;
    std::shared_ptr<const Example> example;
  };

  std::shared_ptr<const Example> give(Slot& slot) {
    if (slot.example != nullptr) bytes_ -= size_of(*slot.example);
    return std::move(slot.example);
  }

  bool may_begin() {
    next_ = std::max(next_, passed_);  // what the caller has passed stays its own
    return next_ < std::min(slots_.size(), passed_ + kCasesAhead) && bytes_ < kBytesAhead;
  }

  void make_next(std::unique_lock<std::mutex>& lock) {
    Slot& slot = slots_[next_++];
    if (slot.state != State::open) return;
    slot.state = State::begun;
    lock.unlock();
    std::shared_ptr<const Example> example = made(slot.spec);
    lock.lock();
    if (slot.state != State::begun) return;  // left out meanwhile
    if (example != nullptr) bytes_ += size_of(*example);
    slot.example = std::move(example);
    slot.state = State::done;
    changed_.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopped_ || may_begin(); });
      if (stopped_) return;
      make_next(lock);
    }
  }

  // nullptr when it cannot be made; the caller then meets the reason itself.
  std::shared_ptr<const Example> made(const Case& spec) const {
    try {
      auto example = std::make_shared<Example>();
      example->spec = spec;
      if (!resolve(spec, example->call)) return nullptr;
      example->words = describe(spec, example->call);
      complete(*example, seed_, answers_);
      return example;
    } catch (...) {
      return nullptr;
    }
  }

  uint64_t seed_;
  Answers& answers_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, size_t> index_;  // of slots_, by key
  std::mutex mutex_;                               // for what follows, and the slots
  std::condition_variable changed_;
  size_t next_ = 0;    // to be begun
  size_t passed_ = 0;  // behind the last one that was asked for
  size_t bytes_ = 0;   // of what was made and not yet taken
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

Examples::Examples(uint64_t seed, std::shared_ptr<Answers> answers) : seed_(seed), answers_(std::move(answers)) {}
Examples::~Examples() = default;

void Examples::expect(const std::vector<Case>& upcoming) {
  ahead_.reset();
  const unsigned threads = std::min(std::thread::hardware_concurrency(), kMostThreads);
  if (threads > 1 && upcoming.size() > 1) ahead_ = std::make_unique<Ahead>(upcoming, seed_, *answers_, threads - 1);
}

std::shared_ptr<const Example> Examples::get(const Case& c, bool other_data) {
  auto example = std::make_shared<Example>();
  example->spec = c;
  if (!resolve(c, example->call)) return nullptr;
  example->words = describe(c, example->call);
  const std::string key = key_of(c, example->call, other_data);
  if (const auto found = index_.find(key); found != index_.end()) {
    kept_.splice(kept_.begin(), kept_, found->second);
    return kept_.front().example;
  }
  std::shared_ptr<const Example> ready = ahead_ != nullptr && !other_data ? ahead_->take(key) : nullptr;
  if (ready == nullptr) {
    complete(*example, seed_ + (other_data ? 1 : 0), *answers_);
    ready = std::move(example);
  }
  keep(key, ready);
  return ready;
}

void Examples::keep(std::string key, const std::shared_ptr<const Example>& example) {
  const size_t bytes = size_of(*example) + 2 * key.size();
  kept_.push_front({std::move(key), bytes, example});
  index_.emplace(kept_.front().key, kept_.begin());
  bytes_ += bytes;
  while (bytes_ > kBytesKept && kept_.size() > 1) {
    bytes_ -= kept_.back().bytes;
    index_.erase(kept_.back().key);
    kept_.pop_back();
  }
}

}  // namespace rlk::core::conformance
