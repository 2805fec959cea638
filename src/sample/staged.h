// An array the host fills and the device reads (or the other way round) at a fixed address.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "device/device.h"

namespace tern::sample {

// Pieces of one copy_many(). Room for everything a step sends or gets back.
class CopyList {
 public:
  void add(const device::CopySpan& piece) {
    if (piece.bytes == 0 || piece.rows == 0) return;
    TERN_CHECK(count_ < pieces_.size());
    pieces_[count_++] = piece;
  }
  std::span<const device::CopySpan> pieces() const { return {pieces_.data(), count_}; }
  Status run(device::Device& device, device::Stream stream) const {
    return count_ == 0 ? Status() : device.copy_many(pieces(), stream);
  }

 private:
  std::array<device::CopySpan, 24> pieces_;
  size_t count_ = 0;
};

// Host and device side of [n] values of T. Where the device's memory is the host's (CPU), both are one buffer and
// nothing is copied.
template <class T>
class Staged {
 public:
  // `shares`: null, or an array of the same size whose device side this one uses too. The order of the stream keeps
  // them apart: one sends its values after the work that read the other's. One memory: each array is its own.
  // `of`: null, or an array whose host side this one has instead of its own, for another rank's device; in one memory
  // the device side is then a copy.
  static Expected<Staged> create(int64_t n, device::Device& device, const Staged* shares = nullptr,
                                 const Staged* of = nullptr) {
    Staged s;
    const size_t bytes = static_cast<size_t>(n > 0 ? n : 1) * sizeof(T);
    if (of == nullptr) {
      TERN_ASSIGN_OR_RETURN(s.memory_of_host_, device.allocate_host(bytes));
      s.host_ = reinterpret_cast<T*>(s.memory_of_host_.data());
    } else {
      TERN_CHECK(of->size_ == n);
      s.host_ = of->host_;
    }
    s.device_ = s.host_;
    s.shared_ = of == nullptr && !device.own_memory();
    if (!s.shared_ && shares != nullptr) {
      TERN_CHECK(shares->size_ == n);
      s.device_ = shares->device_;
    } else if (!s.shared_) {
      TERN_ASSIGN_OR_RETURN(s.memory_, device.allocate(bytes));
      s.device_ = reinterpret_cast<T*>(s.memory_.data());
    }
    s.size_ = n;
    return s;
  }

  T* host() const { return host_; }
  T* device() const { return device_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) const { return host()[i]; }

  // Entries [0, n) to the device, or back.
  void upload(int64_t n, CopyList& list) const { send(device_, host(), n, 1, 0, list); }
  void download(int64_t n, CopyList& list) const { send(host(), device_, n, 1, 0, list); }
  // The first n entries of each of `rows` rows from row `begin` on; rows lie `stride` entries apart.
  void upload_rows(int64_t begin, int64_t n, int64_t rows, int64_t stride, CopyList& list) const {
    send(device_ + begin * stride, host() + begin * stride, n, rows, stride, list);
  }
  // Entries [begin, begin + n) in a copy of their own.
  void upload(int64_t begin, int64_t n, device::Device& d, device::Stream stream) const {
    if (!shared_ && n > 0)
      d.copy_to_device(device_ + begin, host() + begin, static_cast<size_t>(n) * sizeof(T), stream);
  }

 private:
  void send(T* to, const T* from, int64_t n, int64_t rows, int64_t stride, CopyList& list) const {
    if (shared_ || n <= 0 || rows <= 0) return;
    const size_t pitch = static_cast<size_t>(stride) * sizeof(T);
    list.add({to, from, static_cast<size_t>(n) * sizeof(T), static_cast<size_t>(rows), pitch, pitch});
  }

  device::Buffer memory_of_host_, memory_;
  T *host_ = nullptr, *device_ = nullptr;
  bool shared_ = true;
  int64_t size_ = 0;
};

}  // namespace tern::sample
