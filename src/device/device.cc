#include "device/device.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/clock.h"

namespace tern::device {
namespace {

// On a CPU work is done when it has been given.
class PastEvent final : public Event {
 public:
  Status record(Stream) override { return {}; }
  Status wait_on(Stream) override { return {}; }
  Status synchronize() override { return {}; }
  bool done() override { return true; }
};

class TimedPastEvent final : public Event {
 public:
  Status record(Stream) override {
    time_ = monotonic_ns();
    return {};
  }
  Status wait_on(Stream) override { return {}; }
  Status synchronize() override { return {}; }
  bool done() override { return true; }
  Expected<int64_t> nanoseconds_since(const Event& earlier) const override {
    return time_ - static_cast<const TimedPastEvent&>(earlier).time_;
  }

 private:
  int64_t time_ = 0;
};

// Pages of a CPU get memory when they are touched: addresses and memory are one.
class LazyRange final : public AddressRange {
 public:
  explicit LazyRange(Buffer memory, size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  char* base() const override { return memory_.data(); }
  size_t reserved() const override { return bytes_; }
  size_t mapped() const override { return mapped_; }
  Status grow(size_t bytes) override {
    if (bytes > bytes_) {
      return make_error(ErrorCode::kResourceExhausted,
                        fmt::format("{} bytes are more than the {} that were reserved", bytes, bytes_));
    }
    if (bytes > mapped_) mapped_ = bytes;
    return {};
  }
  Status shrink(size_t bytes) override {
    if (bytes >= mapped_) return {};
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t kept = round_up(bytes, page), end = round_up(mapped_, page);
    if (kept < end && madvise(memory_.data() + kept, end - kept, MADV_DONTNEED) != 0) {
      return make_error(ErrorCode::kInternal, fmt::format("giving memory back failed: {}", std::strerror(errno)));
    }
    // The rest of a page that stays must be zero when it comes again.
    if (kept > bytes) std::memset(memory_.data() + bytes, 0, std::min(kept, mapped_) - bytes);
    mapped_ = bytes;
    return {};
  }

 private:
  Buffer memory_;
  size_t bytes_, mapped_ = 0;
};

}  // namespace

Expected<std::unique_ptr<Event>> Device::make_event() { return std::unique_ptr<Event>(std::make_unique<PastEvent>()); }

Expected<std::unique_ptr<Event>> Device::make_timed_event() {
  return std::unique_ptr<Event>(std::make_unique<TimedPastEvent>());
}

Expected<int64_t> Event::nanoseconds_since(const Event&) const {
  return make_error(ErrorCode::kUnsupported, "this event keeps no time");
}

Status Device::begin_capture(Stream) {
  return make_error(ErrorCode::kUnsupported, "this device does not capture work into graphs");
}

Expected<std::unique_ptr<Graph>> Device::end_capture(Stream) {
  return make_error(ErrorCode::kUnsupported, "this device does not capture work into graphs");
}

Expected<std::unique_ptr<AddressRange>> Device::reserve(size_t bytes) {
  TERN_ASSIGN_OR_RETURN(Buffer memory, allocate(bytes));
  return std::unique_ptr<AddressRange>(std::make_unique<LazyRange>(std::move(memory), bytes));
}

Status Device::copy_many(std::span<const CopySpan> pieces, Stream stream) {
  for (const CopySpan& p : pieces) {
    for (size_t r = 0; r < p.rows; ++r) {  // one memory: no direction
      copy_to_device(static_cast<char*>(p.dst) + r * p.dst_stride, static_cast<const char*>(p.src) + r * p.src_stride,
                     p.bytes, stream);
    }
  }
  return status();
}

Status Device::copy_in_turn(const std::array<std::span<const CopySpan>, 2>&, const HostTurn&, Stream) {
  return make_error(ErrorCode::kUnsupported, "this device has no graphs that copies could be part of");
}

Status Device::inject(Fault fault, Stream) {
  if (fault == Fault::kNone) return {};
  while (fault == Fault::kHang) ::pause();
  return make_error(ErrorCode::kInternal, "a fault was asked for");
}

}  // namespace tern::device
