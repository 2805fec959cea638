#include "grpc/stream.h"

#include <chrono>
#include <new>

namespace tern::transport {
namespace {

using serve::kserve::CallStatus;
using serve::kserve::Code;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

InferStream::InferStream(uint64_t number, serve::kserve::Host& host, Call& call, size_t pause_bytes, bool errors_end_it)
    : number_(number),
      host_(host),
      call_(call),
      queue_(call.queue()),
      pause_bytes_(pause_bytes),
      errors_end_it_(errors_end_it) {
  call_.set_user(*this);
}

void InferStream::refuse(const CallStatus& status) {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  closed_.store(true, std::memory_order_release);
  call_.finish(status_of(status));
}

void InferStream::start() {
  Lock lock(mutex_);
  go_on(lock);
}

void InferStream::release() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

size_t InferStream::send(uint64_t call, std::string_view id, std::string_view out, bool last) {
  ::grpc::ByteBuffer message = answer_message(id, out, last);
  Lock lock(mutex_);
  return push(lock, call, std::move(message), last);
}

void InferStream::fail(uint64_t call, std::string_view id, const CallStatus& status) {
  if (errors_end_it_) return finish(status);
  Lock lock(mutex_);
  push(lock, call, error_message(id, status.text), true);
}

size_t InferStream::push(Lock& lock, uint64_t call, ::grpc::ByteBuffer message, bool last) {
  if (last && open_ > 0) --open_;
  if (ending_ || cancelled_) {
    ask(lock);
    return 0;
  }
  const size_t bytes = message.Length();
  Waiting& waiting = waiting_[call];
  items_.push_back({call, bytes, &waiting, last, std::move(message)});
  unsent_ += bytes;
  const size_t waits = waiting.bytes += bytes;
  ask(lock);
  return waits;
}

void InferStream::forget(uint64_t call) {
  const std::lock_guard lock(mutex_);
  std::erase_if(items_, [&](const Item& item) {
    if (item.call != call) return false;
    account(item);
    return true;
  });
}

void InferStream::watch(uint64_t call, size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(call);
    if (found != waiting_.end() && found->second.bytes > bytes) {
      found->second.watch = true;
      found->second.watched = bytes;
      return;
    }
  }
  host_.on_room(number_, call);
}

size_t InferStream::unsent() const {
  const std::lock_guard lock(mutex_);
  return unsent_;
}

size_t InferStream::unsent(uint64_t call) const {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(call);
  return found == waiting_.end() ? 0 : found->second.bytes;
}

int64_t InferStream::stalled_since_ns() const {
  const std::lock_guard lock(mutex_);
  return writing_ ? write_since_ns_ : 0;
}

void InferStream::finish(const CallStatus& status) {
  {
    Lock lock(mutex_);
    if (!ending_) {
      ending_ = true;
      status_ = status_of(status);
    }
    ask(lock);
  }
  close();
}

void InferStream::cancel() {
  const std::lock_guard lock(mutex_);
  if (!done_) call_.cancel();
}

void InferStream::close() {
  if (!closed_.exchange(true, std::memory_order_acq_rel)) host_.on_closed(number_);
}

bool InferStream::account(const Item& item) {
  unsent_ -= item.bytes;
  Waiting& waiting = *item.waiting;
  waiting.bytes -= item.bytes;
  const bool room = waiting.watch && waiting.bytes <= waiting.watched;
  if (room) waiting.watch = false;
  if (item.last && waiting.bytes == 0) waiting_.erase(item.call);
  return room;
}

void InferStream::ask(Lock& lock) {
  if (asked_ || done_) return lock.unlock();
  asked_ = true;
  lock.unlock();
  retain();
  if (!queue_.ask(*this)) release();
}

void InferStream::turn() {
  {
    Lock lock(mutex_);
    asked_ = false;
    go_on(lock);
  }
  release();
}

void InferStream::go_on(Lock& lock) {
  const bool read = !reading_ && !half_closed_ && !ending_ && !cancelled_ && !finished_ && unsent_ <= pause_bytes_;
  const bool write = !writing_ && !finished_ && !cancelled_ && !items_.empty();
  const bool all_said = cancelled_ || ending_ || (half_closed_ && open_ == 0);
  const bool end = all_said && !writing_ && !write && !finished_;
  ::grpc::WriteOptions options;
  if (read) reading_ = true;
  if (write) {
    writing_ = true;
    write_since_ns_ = now_ns();
    current_ = std::move(items_.front());
    items_.pop_front();
    // The next follows at once. With a hint gRPC would keep the stream's head back for it, and the next waits for the
    // head.
    if (begun_ && !items_.empty()) options.set_buffer_hint();
    begun_ = true;
  }
  if (end) finished_ = true;
  const ::grpc::Status status = !end ? ::grpc::Status() : cancelled_ ? ::grpc::Status::CANCELLED : status_;
  lock.unlock();
  if (read) call_.read(in_);
  if (write) call_.write(current_.message, options);
  if (end) call_.finish(status);
}

void InferStream::on_read(bool ok) {
  if (ok) {
    try {
      const Bytes bytes(in_);
      in_.Clear();
      if (bytes.ok()) take(bytes.view());
    } catch (const std::bad_alloc&) {
      finish({Code::kResourceExhausted, "the server has no memory for this request now; send it again"});
    }
  }
  Lock lock(mutex_);
  reading_ = false;
  if (!ok) half_closed_ = true;
  go_on(lock);
}

void InferStream::take(std::string_view bytes) {
  wire::ModelInferRequest message;
  if (!parse_request(bytes, message)) {
    return finish({Code::kInternal, "the message is no ModelInferRequest, or it has too many fields"});
  }
  {
    const std::lock_guard lock(mutex_);
    if (ending_ || cancelled_) return;
    ++open_;
  }
  const RequestView view(message);
  host_.on_request(number_, *this, view.request());
}

void InferStream::on_written(bool ok) {
  Lock lock(mutex_);
  writing_ = false;
  const uint64_t call = current_.call;
  const bool room = account(current_);
  current_ = {};
  if (!ok) cancelled_ = true;
  if (cancelled_) items_.clear();
  go_on(lock);
  if (room) host_.on_room(number_, call);
}

void InferStream::on_cancelled() {
  {
    Lock lock(mutex_);
    cancelled_ = true;
    items_.clear();
    unsent_ = writing_ ? current_.bytes : 0;
    go_on(lock);
  }
  close();
}

void InferStream::on_ended() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  close();
  release();
}

}  // namespace tern::transport
