// Memory that requests in flight may take together: bodies as they arrive, their values, and prompts inside the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace tern::serve {

// Bytes, counted before they are spent. Three rules, so that nobody's large bodies keep everybody's small ones out: all
// together at most the limit; an owner at most half of it; and the last eighth is for requests up to kSmall.
class MemoryBudget {
 public:
  static constexpr size_t kSmall = 1u << 20;

  explicit MemoryBudget(size_t limit) : limit_(limit) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // What one request holds; given back when it dies.
  class Lease {
   public:
    Lease() = default;
    // `owner`: a key or an address that has a share; 0: none.
    Lease(MemoryBudget& budget, uint64_t owner) : budget_(&budget), owner_(owner) {}
    ~Lease() { release(); }
    Lease(Lease&& other) noexcept
        : budget_(other.budget_), owner_(other.owner_), bytes_(std::exchange(other.bytes_, 0)) {}
    Lease& operator=(Lease&& other) noexcept {
      if (this == &other) return *this;
      release();
      budget_ = other.budget_, owner_ = other.owner_, bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    // Makes it `bytes` in all. False, with nothing changed, when the budget has not that much.
    [[nodiscard]] bool resize(size_t bytes);
    [[nodiscard]] bool cover(size_t bytes) { return bytes <= bytes_ || resize(bytes); }
    void release() {
      if (bytes_ > 0) [[maybe_unused]]
        const bool smaller = resize(0);
    }
    size_t bytes() const { return bytes_; }

   private:
    MemoryBudget* budget_ = nullptr;
    uint64_t owner_ = 0;
    size_t bytes_ = 0;
  };

  size_t limit() const { return limit_; }
  size_t used() const;

 private:
  bool change(uint64_t owner, size_t from, size_t to);

  const size_t limit_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::unordered_map<uint64_t, size_t> owners_;
};

}  // namespace tern::serve
