// Who may come in: open requests and connections, ids in use.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tern::serve {

// A count that is given back when the ticket dies.
class Ticket {
 public:
  Ticket() = default;
  ~Ticket() { release(); }
  Ticket(Ticket&& other) noexcept
      : count_(std::exchange(other.count_, nullptr)), second_(std::exchange(other.second_, nullptr)) {}
  Ticket& operator=(Ticket&& other) noexcept {
    release();
    count_ = std::exchange(other.count_, nullptr);
    second_ = std::exchange(other.second_, nullptr);
    return *this;
  }
  // Adds one unless `limit` are taken.
  static Ticket take(std::atomic<int>& count, int limit);
  // Adds one to a second count, which is given back with the first. False when `limit` are taken.
  bool also(std::atomic<int>& count, int limit);
  explicit operator bool() const { return count_ != nullptr; }
  void release();

 private:
  std::atomic<int>* count_ = nullptr;
  std::atomic<int>* second_ = nullptr;
};

// Open connections by address.
class AddressCounts {
 public:
  class Lease {
   public:
    Lease() = default;
    ~Lease() {
      if (counts_ != nullptr) counts_->leave(owner_);
    }
    Lease(Lease&& other) noexcept : counts_(std::exchange(other.counts_, nullptr)), owner_(other.owner_) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(counts_, other.counts_);
      std::swap(owner_, other.owner_);
      return *this;
    }
    explicit operator bool() const { return counts_ != nullptr; }

   private:
    friend class AddressCounts;
    AddressCounts* counts_ = nullptr;
    uint64_t owner_ = 0;
  };
  // Empty when `limit` connections of the owner are open.
  Lease enter(uint64_t owner, size_t limit);

 private:
  void leave(uint64_t owner);

  std::mutex mutex_;
  std::unordered_map<uint64_t, size_t> counts_;
};

// Request ids that are being answered: one id, one request.
class ActiveIds {
 public:
  bool insert(const std::string& id);  // false: taken
  void erase(const std::string& id);

 private:
  std::mutex mutex_;
  std::unordered_set<std::string> ids_;
};

// An id that is free again when the lease dies, unless somebody else has taken charge of it.
class IdLease {
 public:
  IdLease() = default;
  ~IdLease() {
    if (ids_ != nullptr) ids_->erase(id_);
  }
  IdLease(IdLease&& other) noexcept : ids_(std::exchange(other.ids_, nullptr)), id_(std::move(other.id_)) {}
  IdLease& operator=(IdLease&& other) noexcept {
    std::swap(ids_, other.ids_);
    std::swap(id_, other.id_);
    return *this;
  }
  // Empty when the id is taken.
  static IdLease take(ActiveIds& ids, const std::string& id) {
    IdLease lease;
    if (!ids.insert(id)) return lease;
    lease.ids_ = &ids;
    lease.id_ = id;
    return lease;
  }
  explicit operator bool() const { return ids_ != nullptr; }
  void keep() { ids_ = nullptr; }

 private:
  ActiveIds* ids_ = nullptr;
  std::string id_;
};

}  // namespace tern::serve
