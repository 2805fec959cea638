// Requests of a worker that wait for a place in the engine or run in it: into the engine, and deltas back to the
// client.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serve/core/reader.h"
#include "serve/report/metrics.h"
#include "serve/worker/messages.h"
#include "serve/worker/shared.h"

namespace tern::serve {

// Those who wait for answers on this I/O thread.
class Readers {
 public:
  virtual ~Readers() = default;
  virtual Reader* find(uint64_t id) = 0;  // null: it is gone
  // While its request that is meant waits for an answer; else null.
  virtual Reader* find_waiting(const ReplyTo& to) = 0;
};

// A request that waits for an engine slot or whose rows run in the engine.
struct ActiveRequest {
  uint64_t key = 0, reader = 0;
  int key_index = 0;  // of the API key that asked
  std::unique_ptr<Generation> generation;
  std::vector<engine::Request> requests;  // until submitted
  Ticket ticket;
  MemoryBudget::Lease memory;  // of its prompts
  bool has_slot = false;
  bool told = false;  // the log knows of its first chunk
  EngineSlots::Waiter place;
  int64_t wait_deadline_ns = 0;
  int64_t heard_ns = 0;                                // when its last message went to the client, or it began
  std::vector<std::pair<size_t, engine::Delta>> held;  // choice, delta: the client reads too slowly
  size_t held_tokens = 0;
};

class ActiveRequests {
 public:
  // `worker`: the number of the one whose thread this is.
  ActiveRequests(Shared& shared, int worker, MetricsShard& metrics, Readers& readers)
      : shared_(shared), worker_(worker), metrics_(metrics), readers_(readers) {}

  bool empty() const { return all_.empty(); }
  void start(Ready&& m);
  void grant(SlotGranted&& m);
  void take(DeltaBatch&& m);
  void resume_held(Reader& reader);  // its client has read
  void client_left(Reader& reader);
  void lose(uint64_t reader) noexcept;  // there is no memory to go on with it
  void sweep(int64_t now_ns);           // ends what has waited too long for a place
  // Ends the requests that the sweep names and notes them in it.
  void abort_matching(AbortSweep& sweep);
  void engine_gone();
  void clear() { all_.clear(); }

 private:
  struct Row {
    ActiveRequest* active = nullptr;
    size_t choice = 0;
  };

  void start_generation(ActiveRequest& a);
  bool submit_rows(ActiveRequest& a, Error& error);
  void take_or_hold(ActiveRequest& a, size_t choice, engine::Delta&& delta, int64_t now);
  void take_delta(ActiveRequest& a, size_t choice, engine::Delta&& delta, int64_t now_ns);
  void settle(ActiveRequest& a, const Generation::Outcome& outcome, size_t choice);
  void complete(ActiveRequest& a);
  void fail(ActiveRequest& a, const Error& error);
  void abandon(ActiveRequest& a);  // aborts its rows and forgets it
  void sweep_silent(int64_t now_ns);
  void release(ActiveRequest& a);  // forgets a request whose rows have ended

  Shared& shared_;
  const int worker_;
  MetricsShard& metrics_;
  Readers& readers_;
  uint64_t next_key_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<ActiveRequest>> all_;
  std::unordered_map<engine::RequestId, Row> rows_;
  std::string discard_;  // text of requests whose client left but that run on
};

}  // namespace tern::serve
