// Where an engine's news wait for their reader. The engine thread appends flat records and never allocates once the
// buffers have grown; the reader's thread turns them into Deltas.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "engine/news_signal.h"
#include "engine/request.h"

namespace tern::engine {

// What happened to requests, as flat arrays. Filled by one thread.
class News {
 public:
  // A Delta without what has memory of its own.
  struct Head {
    RequestId id = 0;
    FinishReason finish = FinishReason::kNone;
    int32_t stop_sequence = -1, stop_token = -1;
    int32_t prompt_tokens = 0, cached_tokens = 0, preemptions = 0;
    RequestTimes times;
  };
  struct Event {
    Head head;
    int32_t token_begin = 0, token_count = 0;
    int32_t extra = -1;  // entry of extras
  };
  struct Token {
    int32_t id = 0;
    int32_t logprob_begin = 0, logprob_count = 0;
    int64_t kept_begin = 0;
    int32_t kept_count = 0;
    float entropy = -1.0f;
  };
  // What few events carry.
  struct Extra {
    Error error;
    std::vector<std::vector<TokenLogprob>> prompt_logprobs;
    std::vector<Preemption> interruptions;
    std::vector<float> pooled;
  };

  // Starts an event of `id`; tokens that follow belong to it. The reference holds until the next event.
  Event& event(RequestId id);
  void token(int32_t id);
  // Belongs to the last token.
  void logprob(const TokenLogprob& value);
  void entropy(float value) { tokens_.back().entropy = value; }
  void kept(int32_t id);
  Extra& extra();  // of the last event

  bool empty() const { return events_.empty(); }
  size_t size() const { return events_.size(); }
  void clear();
  void append(News& other);  // takes everything of `other` and leaves it empty
  // Appends the events as Deltas and leaves this empty.
  void expand(std::vector<Delta>& out);
  void swap(News& other) noexcept;
  void reserve(size_t events);

 private:
  std::vector<Event> events_;
  std::vector<Token> tokens_;
  std::vector<TokenLogprob> logprobs_;
  std::vector<int32_t> kept_;
  std::vector<Extra> extras_;
};

// One writer, one reader. Bounded by the writer's good will: publish() always succeeds (the news of a step that has run
// cannot be unsaid), and full() tells the engine to launch no further step until the reader has caught up. So the
// content is bounded by the capacity, the rows of two steps and the open requests, and a reader that stops never blocks
// an abort or a shutdown.
class Outbox {
 public:
  explicit Outbox(size_t capacity);
  // Events that there is room for from the start. The writer's buffer needs as much: the two change places.
  size_t expected() const { return capacity_ < 4096 ? capacity_ : 4096; }

  void publish(News& news);
  bool full() const;
  void close();

  // As EngineClient::poll.
  bool poll(std::vector<Delta>& out, std::chrono::milliseconds timeout);
  // Called by the reader's thread, without a lock held, after it has taken from a full outbox. Set before use.
  void on_drained(void (*callback)(void*), void* context) { callback_ = callback, callback_context_ = context; }
  // Given whenever there is something to poll. Set before use; null: nobody else waits.
  void tell(NewsSignal* signal) { signal_ = signal; }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  News pending_;
  News taken_;  // the reader's
  bool closed_ = false;
  void (*callback_)(void*) = nullptr;
  void* callback_context_ = nullptr;
  NewsSignal* signal_ = nullptr;
};

}  // namespace tern::engine
