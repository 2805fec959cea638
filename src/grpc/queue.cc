#include "grpc/queue.h"

#include <pthread.h>

#include <new>
#include <utility>

namespace tern::transport {
namespace {

thread_local const CallQueue* own_queue = nullptr;  // of a queue's thread

}  // namespace

Call::Call(CallQueue& queue) : queue_(queue) { context_.AsyncNotifyWhenDone(over_.tag()); }

void* Call::begun(void* tag) {
  ++open_steps_;
  return tag;
}

void Call::settle() {
  if (--open_steps_ > 0) return;
  User* const user = user_;
  delete this;
  if (user != nullptr) user->on_ended();
}

// Without a server there is no call, and nothing tells that it is over.
void Call::requested(bool ok) {
  queue_.requested_ = false;
  if (!ok) {
    delete this;
    return;
  }
  open_steps_ = 1;  // until it is over
  queue_.request_call();
  try {
    queue_.accept_(*this);
  } catch (const std::bad_alloc&) {  // before it had a user
    finish(::grpc::Status(::grpc::StatusCode::RESOURCE_EXHAUSTED, ""));
  }
}

void Call::has_read(bool ok) {
  user_->on_read(ok);
  settle();
}

void Call::has_written(bool ok) {
  user_->on_written(ok);
  settle();
}

void Call::has_finished(bool) { settle(); }

void Call::is_over(bool) {
  if (context_.IsCancelled() && user_ != nullptr) user_->on_cancelled();
  settle();
}

void Call::read(::grpc::ByteBuffer& in) { io_.Read(&in, begun(read_.tag())); }
void Call::write(const ::grpc::ByteBuffer& message, ::grpc::WriteOptions options) {
  io_.Write(message, options, begun(write_.tag()));
}
void Call::finish(const ::grpc::Status& status) { io_.Finish(status, begun(finish_.tag())); }
void Call::finish(const ::grpc::ByteBuffer& last_message) {
  io_.WriteAndFinish(last_message, ::grpc::WriteOptions(), ::grpc::Status::OK, begun(finish_.tag()));
}

CallQueue::CallQueue(std::unique_ptr<::grpc::ServerCompletionQueue> queue, ::grpc::AsyncGenericService& service,
                     Accept accept)
    : queue_(std::move(queue)), service_(service), accept_(std::move(accept)) {}

void CallQueue::start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "grpc-calls");
    own_queue = this;
    run();
  });
}

void CallQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void CallQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    closed_ = stopped_ = true;
    queue_->Shutdown();
  }
  if (thread_.joinable()) thread_.join();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<Event*>(tag)->happened(ok);  // where no thread has run
  give_turns();  // nothing is begun any more: who has asked is let go
}

void CallQueue::run() {
  request_call();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    static_cast<Event*>(tag)->happened(ok);
    give_turns();
    if (!requested_) request_call();  // there was no memory for it
  }
}

// The thread itself finds what it has asked for when the event it handles is done; for others an alarm wakes it, one
// for all who ask until then.
bool CallQueue::ask(Turn& turn) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return false;
  turn.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &turn;
  last_ = &turn;
  if (own_queue == this || woken_) return true;
  woken_ = true;
  alarm_.Set(queue_.get(), gpr_time_0(GPR_CLOCK_REALTIME), static_cast<Event*>(this));
  return true;
}

void CallQueue::happened(bool) {
  const std::lock_guard lock(mutex_);
  woken_ = false;
}

void CallQueue::give_turns() {
  while (true) {
    Turn* turn = nullptr;
    {
      const std::lock_guard lock(mutex_);
      turn = std::exchange(first_, nullptr);
    }
    if (turn == nullptr) return;
    while (turn != nullptr) {
      Turn* const next = turn->next;  // the turn may ask again, or be gone afterwards
      turn->turn();
      turn = next;
    }
  }
}

void CallQueue::request_call() {
  try {
    auto* call = new Call(*this);
    const std::lock_guard lock(mutex_);
    if (closed_) {
      delete call;
      return;
    }
    requested_ = true;
    service_.RequestCall(&call->context_, &call->io_, queue_.get(), queue_.get(), call->request_.tag());
  } catch (const std::bad_alloc&) {  // again after the next event
  }
}

}  // namespace tern::transport
