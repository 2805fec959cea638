#include "engine/echo.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/outbox.h"
#include "engine/stops.h"

namespace tern::engine {
namespace {

struct Stream {
  Request request;
  std::vector<int32_t> output;
  RequestTimes times;
  const ScriptedAnswer* answer = nullptr;  // null: the prompt again
  int64_t due_ns = 0;                      // its next token
};

class EchoEngine final : public EngineClient {
 public:
  explicit EchoEngine(const EchoConfig& config) : config_(config), outbox_(config.outbox_capacity) {
    outbox_.tell(config.news);
    outbox_.on_drained([](void* self) { static_cast<EchoEngine*>(self)->wake(); }, this);
    thread_ = std::thread([this] { run(); });
  }
  ~EchoEngine() override {
    shutdown(true);
    thread_.join();
  }

  Status submit(Request request) override {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return make_error(ErrorCode::kUnavailable, "the engine is shutting down");
      if (inbox_.size() >= config_.inbox_capacity) {
        return make_error(ErrorCode::kResourceExhausted, "too many requests are waiting");
      }
      inbox_.push_back(std::move(request));
    }
    wake_.notify_one();
    return {};
  }
  void abort(RequestId id) override {
    {
      std::lock_guard lock(mutex_);
      aborts_.push_back(id);
    }
    wake_.notify_one();
  }
  bool poll(std::vector<Delta>& out, std::chrono::milliseconds timeout) override { return outbox_.poll(out, timeout); }
  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats s = stats_;
    s.waiting += static_cast<int>(inbox_.size());
    for (const Request& r : inbox_) s.open_tokens += static_cast<int64_t>(r.prompt.size());
    s.max_num_seqs = config_.max_num_seqs;
    s.capacity = config_.max_num_seqs + static_cast<int>(std::min<size_t>(config_.inbox_capacity, 1 << 30));
    return s;
  }
  bool healthy() const override { return true; }
  std::future<Status> control(ControlOrder order) override {
    std::promise<Status> done;
    std::future<Status> result = done.get_future();
    {
      std::lock_guard lock(mutex_);
      if (ended_)
        done.set_value(make_error(ErrorCode::kUnavailable, "the engine has ended"));
      else
        orders_.emplace_back(std::move(order), std::move(done));
    }
    wake_.notify_one();
    return result;
  }
  void shutdown(bool now) override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      ending_ = ending_ || now;
    }
    wake_.notify_one();
  }

 private:
  void wake() {
    { std::lock_guard lock(mutex_); }
    wake_.notify_one();
  }
  bool busy() const { return !running_.empty() || !waiting_.empty(); }

  void run() {
    set_thread_name("echo-engine");
    int64_t next_step = 0;
    for (;;) {
      bool stop = false, end = false;
      {
        std::unique_lock lock(mutex_);
        const auto called = [&] { return stopping_ || !inbox_.empty() || !aborts_.empty() || !orders_.empty(); };
        if (!busy() || paused_) {
          wake_.wait(lock, called);
        } else if (outbox_.full()) {
          wake_.wait(lock, [&] { return ending_ || !aborts_.empty() || !outbox_.full(); });
        } else if (!config_.script.empty()) {
          const int64_t left = next_due() - monotonic_ns();
          if (left > 0) wake_.wait_for(lock, std::chrono::nanoseconds(left), [&] { return ending_ || called(); });
        } else if (config_.step_ns > 0) {
          const int64_t left = next_step - monotonic_ns();
          if (left > 0) wake_.wait_for(lock, std::chrono::nanoseconds(left), [&] { return ending_; });
        }
        for (Request& r : inbox_) waiting_.push_back({.request = std::move(r)});
        inbox_.clear();
        taken_aborts_.swap(aborts_);
        taken_orders_.swap(orders_);
        stop = stopping_, end = ending_;
      }
      for (RequestId id : taken_aborts_) abort_one(id);
      taken_aborts_.clear();
      for (auto& [order, done] : taken_orders_) carry_out(order);
      if (end || (stop && paused_)) abort_all();
      if (busy() && !paused_ && !outbox_.full()) {
        next_step = std::max(next_step + config_.step_ns, monotonic_ns());
        step();
      }
      publish_stats();  // before anybody hears that a request has ended
      outbox_.publish(news_);
      for (auto& [order, done] : taken_orders_) done.set_value({});
      taken_orders_.clear();
      if (stop && !busy()) break;
    }
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      for (auto& [order, done] : orders_) done.set_value(make_error(ErrorCode::kUnavailable, "the engine has ended"));
    }
    outbox_.close();
  }

  void carry_out(const ControlOrder& order) {
    if (order.what == Control::kResume) paused_ = false;
    if (order.what != Control::kPause) return;
    paused_ = true;
    if (!order.why) return abort_all();
    for (const Stream& s : running_) fail(s, *order.why);
    for (const Stream& s : waiting_) fail(s, *order.why);
    running_.clear();
    waiting_.clear();
  }

  // When a scripted stream says its next token, or the place for one that waits is there.
  int64_t next_due() const {
    if (!waiting_.empty() && running_.size() < static_cast<size_t>(config_.max_num_seqs)) return 0;
    int64_t due = std::numeric_limits<int64_t>::max() / 2;
    for (const Stream& s : running_) due = std::min(due, s.due_ns);
    return due;
  }

  bool find_answer(Stream& s) const {
    if (config_.script.empty()) return true;
    const auto it = std::find_if(config_.script.begin(), config_.script.end(), [&](const ScriptedAnswer& a) {
      return s.request.last_said.find(a.match) != std::string::npos;
    });
    if (it == config_.script.end()) return false;
    s.answer = &*it;
    s.due_ns = monotonic_ns() + s.answer->token_delay_ns;
    return true;
  }

  void step() {
    const int64_t now = monotonic_ns();
    while (!waiting_.empty() && running_.size() < static_cast<size_t>(config_.max_num_seqs)) {
      Stream s = std::move(waiting_.front());
      waiting_.pop_front();
      if (Status ok = check(s.request); !ok.ok()) {
        fail(s, std::move(ok).error());
        continue;
      }
      if (!find_answer(s)) {
        fail(s, make_error(ErrorCode::kInvalidArgument, "no line of the script matches the last text", "messages"));
        continue;
      }
      s.times.arrival = s.request.arrival_ns;
      s.times.planned = s.times.scheduled = now;
      prompt_tokens_ += s.request.prompt.size();
      running_.push_back(std::move(s));
    }
    ++steps_;
    size_t kept = 0;
    for (size_t i = 0; i < running_.size(); ++i) {
      if (advance(running_[i], now)) continue;
      if (kept != i) running_[kept] = std::move(running_[i]);
      ++kept;
    }
    running_.resize(kept);
  }

  Status check(const Request& r) const {
    if (r.prompt.empty()) return make_error(ErrorCode::kInvalidArgument, "the prompt is empty", "prompt");
    if (r.prompt.size() >= static_cast<size_t>(config_.max_model_len)) {
      return make_error(ErrorCode::kTooLarge, "the prompt does not fit the context", "prompt");
    }
    for (int32_t id : r.prompt) {
      if (id < 0 || id >= config_.vocab_size) {
        return make_error(ErrorCode::kInvalidArgument, "a token id of the prompt is outside the vocabulary", "prompt");
      }
    }
    if (r.max_tokens <= 0) return make_error(ErrorCode::kInvalidArgument, "max_tokens must be positive", "max_tokens");
    return {};
  }

  // Streams of one delay have their tokens together, at its multiples, as those of one step have.
  static int64_t next_due(const ScriptedAnswer& answer, int64_t now) {
    const int64_t delay = answer.token_delay_ns;
    return delay > 0 ? (now / delay + 1) * delay : now;
  }

  bool pool(Stream& s, int64_t now) {
    s.times.first_token = s.times.finished = now;
    begin_event(s).head.finish = FinishReason::kStop;
    std::span<const int32_t> ids = s.request.prompt;
    double mean = 0;
    for (const int32_t id : ids) mean += static_cast<double>(id) / static_cast<double>(ids.size());
    if (s.request.pooled == PooledRows::kLast) ids = ids.last(1);
    if (s.request.pooled == PooledRows::kFirst || s.request.pooled == PooledRows::kMean) ids = ids.first(1);
    std::vector<float>& out = news_.extra().pooled;
    for (const int32_t id : ids) {
      const double value = s.request.pooled == PooledRows::kMean ? mean : id;
      for (int j = 0; j < config_.pooled; ++j) out.push_back(static_cast<float>(value + j));
    }
    return true;
  }

  // One token; true when the stream has ended.
  bool advance(Stream& s, int64_t now) {
    if (config_.pooled > 0) return pool(s, now);
    if (s.answer != nullptr && s.due_ns > now) return false;
    const Request& r = s.request;
    const std::vector<int32_t>& said = s.answer != nullptr ? s.answer->ids : r.prompt;
    const size_t n = said.size(), at = s.output.size();
    const bool free_length = s.answer != nullptr || (config_.fixed_tokens == 0 && !r.ignore_eos);
    const bool past = free_length && at >= n;
    const int32_t id = past ? config_.eos_token_id : said[at % n];
    if (s.answer != nullptr) s.due_ns = next_due(*s.answer, now);
    s.output.push_back(id);
    if (at == 0) s.times.first_token = now;
    ++generated_;

    StopRules rules{r.stop_token_ids, r.stop_sequences};
    StopHit hit = find_stop(rules, s.output, std::max(r.sampling.min_tokens, 0));
    FinishReason finish = hit.found() ? FinishReason::kStop : FinishReason::kNone;
    if (finish == FinishReason::kNone && past) finish = FinishReason::kStop, hit.token = id;
    if (finish == FinishReason::kNone && free_length && at + 1 >= n) {
      if (s.answer != nullptr && !s.answer->natural) finish = FinishReason::kLength;
      if (finish == FinishReason::kNone && config_.eos_token_id < 0) finish = FinishReason::kStop;
    }
    const auto limit =
        static_cast<size_t>(config_.fixed_tokens > 0 ? std::min(config_.fixed_tokens, r.max_tokens) : r.max_tokens);
    if (finish == FinishReason::kNone && at + 1 >= limit) finish = FinishReason::kLength;

    News::Event& e = begin_event(s);
    e.head.finish = finish;
    e.head.stop_sequence = hit.sequence;
    e.head.stop_token = hit.token;
    if (finish != FinishReason::kNone) e.head.times.finished = s.times.finished = now;
    news_.token(id);
    if (r.sampling.logprobs >= 0) add_logprobs(id, r.sampling.logprobs);
    if (config_.entropy) news_.entropy(0.5f);
    if (config_.kept_tokens && r.sampling.truncates()) {
      news_.kept(id);
      if (!r.sampling.greedy() && id + 1 < config_.vocab_size) news_.kept(id + 1);
    }
    if (at == 0 && r.sampling.prompt_logprobs >= 0) add_prompt_logprobs(r);
    return finish != FinishReason::kNone;
  }

  TokenLogprob candidate(int32_t id, int i) const {
    return {static_cast<int32_t>((static_cast<int64_t>(id) + i) % config_.vocab_size),
            -0.25f * static_cast<float>(i + 1), i + 1};
  }
  void add_logprobs(int32_t id, int count) {
    news_.logprob(candidate(id, 0));
    for (int i = 0; i < std::min(count, config_.vocab_size); ++i) news_.logprob(candidate(id, i));
  }
  void add_prompt_logprobs(const Request& r) {
    auto& rows = news_.extra().prompt_logprobs;
    rows.resize(r.prompt.size() - 1);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].push_back(candidate(r.prompt[i + 1], 0));
      const int count = std::min(r.sampling.prompt_logprobs, config_.vocab_size);
      for (int k = 0; k < count; ++k) rows[i].push_back(candidate(r.prompt[i + 1], k));
    }
  }

  News::Event& begin_event(const Stream& s) {
    News::Event& e = news_.event(s.request.id);
    e.head.prompt_tokens = static_cast<int32_t>(s.request.prompt.size());
    e.head.times = s.times;
    return e;
  }
  void fail(const Stream& s, Error error) {
    begin_event(s).head.finish = FinishReason::kError;
    news_.extra().error = std::move(error);
  }
  void end_aborted(const Stream& s) {
    News::Event& e = begin_event(s);
    e.head.finish = FinishReason::kAbort;
    e.head.times.finished = monotonic_ns();
  }
  void abort_one(RequestId id) {
    const auto is = [id](const Stream& s) { return s.request.id == id; };
    if (auto it = std::find_if(running_.begin(), running_.end(), is); it != running_.end()) {
      end_aborted(*it);
      running_.erase(it);
    } else if (auto w = std::find_if(waiting_.begin(), waiting_.end(), is); w != waiting_.end()) {
      end_aborted(*w);
      waiting_.erase(w);
    }
  }
  void abort_all() {
    for (const Stream& s : running_) end_aborted(s);
    for (const Stream& s : waiting_) end_aborted(s);
    running_.clear();
    waiting_.clear();
  }

  void publish_stats() {
    std::lock_guard lock(mutex_);
    stats_.running = static_cast<int>(running_.size());
    stats_.waiting = static_cast<int>(waiting_.size());
    stats_.open_tokens = 0;
    for (const Stream& s : running_)
      stats_.open_tokens += static_cast<int64_t>(s.request.prompt.size() + s.output.size());
    for (const Stream& s : waiting_) stats_.open_tokens += static_cast<int64_t>(s.request.prompt.size());
    stats_.steps = steps_, stats_.prompt_tokens = prompt_tokens_, stats_.generated_tokens = generated_;
  }

  const EchoConfig config_;
  Outbox outbox_;
  mutable std::mutex mutex_;  // of the members up to stats_
  std::condition_variable wake_;
  std::vector<Request> inbox_;
  std::vector<RequestId> aborts_;
  std::vector<std::pair<ControlOrder, std::promise<Status>>> orders_;
  bool stopping_ = false, ending_ = false, ended_ = false;
  EngineStats stats_;
  // Of the thread alone.
  std::vector<RequestId> taken_aborts_;
  std::vector<std::pair<ControlOrder, std::promise<Status>>> taken_orders_;
  bool paused_ = false;
  std::deque<Stream> waiting_;
  std::vector<Stream> running_;
  News news_;
  uint64_t steps_ = 0, prompt_tokens_ = 0, generated_ = 0;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<EngineClient> make_echo_engine(const EchoConfig& config) {
  return std::make_unique<EchoEngine>(config);
}

}  // namespace tern::engine
