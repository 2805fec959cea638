// A completion queue of gRPC and the one thread that drives it. The calls of a queue begin, read, write and end on that
// thread alone; others ask it for a turn.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tern::transport {

// What a queue's tags point to.
class Event {
 public:
  virtual void happened(bool ok) = 0;

 protected:
  ~Event() = default;
};

class Turn {
 public:
  virtual void turn() = 0;
  Turn* next = nullptr;  // of the queue: who has asked after it

 protected:
  ~Turn() = default;
};

class CallQueue;

// A call of a client. It deletes itself when everything that was begun has ended.
class Call {
 public:
  class User {
   public:
    virtual void on_read(bool ok) = 0;
    virtual void on_written(bool) {}
    virtual void on_cancelled() {}
    virtual void on_ended() = 0;  // nothing comes after it, and the call is gone; each call must have been finished

   protected:
    ~User() = default;
  };
  explicit Call(CallQueue& queue);

  CallQueue& queue() { return queue_; }
  const ::grpc::GenericServerContext& context() const { return context_; }
  void set_user(User& user) { user_ = &user; }
  // One of each at a time; what is read and written lies there until it is done.
  void read(::grpc::ByteBuffer& in);
  void write(const ::grpc::ByteBuffer& message, ::grpc::WriteOptions options);
  void finish(const ::grpc::Status& status);
  void finish(const ::grpc::ByteBuffer& last_message);
  void cancel() { context_.TryCancel(); }  // any thread

 private:
  friend class CallQueue;
  template <void (Call::*kThen)(bool)>
  class Step final : public Event {
   public:
    explicit Step(Call& call) : call_(call) {}
    void happened(bool ok) override { (call_.*kThen)(ok); }
    void* tag() { return static_cast<Event*>(this); }

   private:
    Call& call_;
  };
  ~Call() = default;
  void* begun(void* tag);
  void settle();  // one step has ended
  void requested(bool ok);
  void has_read(bool ok);
  void has_written(bool ok);
  void has_finished(bool ok);
  void is_over(bool ok);

  CallQueue& queue_;
  User* user_ = nullptr;
  int open_steps_ = 0;
  ::grpc::GenericServerContext context_;
  ::grpc::GenericServerAsyncReaderWriter io_{&context_};
  Step<&Call::requested> request_{*this};
  Step<&Call::has_read> read_{*this};
  Step<&Call::has_written> write_{*this};
  Step<&Call::has_finished> finish_{*this};
  Step<&Call::is_over> over_{*this};
};

class CallQueue final : private Event {
 public:
  // Gives the call its user and begins it, on the queue's thread. It may throw std::bad_alloc before there is a user.
  using Accept = std::function<void(Call&)>;

  CallQueue(std::unique_ptr<::grpc::ServerCompletionQueue> queue, ::grpc::AsyncGenericService& service, Accept accept);
  ~CallQueue() { stop(); }
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  void start();  // once the server runs
  void close();  // no more calls
  void stop();   // once the server has been shut down
  // A turn on this queue's thread, soon; the asker lives until then, and asks once. Any thread. False: the queue has
  // stopped.
  bool ask(Turn& turn);

 private:
  friend class Call;
  void run();
  void happened(bool ok) override;  // the alarm: somebody has asked
  void give_turns();
  void request_call();

  std::unique_ptr<::grpc::ServerCompletionQueue> queue_;
  ::grpc::AsyncGenericService& service_;
  const Accept accept_;
  bool requested_ = false;  // the next call; of the thread alone
  std::mutex mutex_;
  Turn *first_ = nullptr, *last_ = nullptr;  // who has asked; nothing is allocated for it
  bool woken_ = false, closed_ = false, stopped_ = false;
  ::grpc::Alarm alarm_;
  std::thread thread_;
};

}  // namespace tern::transport
