// What all threads of the server share, and the messages between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "engine/client.h"
#include "serve/config.h"
#include "serve/core/dispatcher.h"
#include "serve/core/generation.h"
#include "serve/http/response.h"
#include "serve/limits/admission.h"
#include "serve/limits/engine_slots.h"
#include "serve/limits/memory_budget.h"
#include "serve/net/fd.h"
#include "serve/openai/template/template_form.h"
#include "serve/report/metrics.h"
#include "serve/router.h"
#include "serve/server.h"

namespace tern::serve {

class Preparations;
class Worker;

// Where an answer goes: a connection of a worker, and which of its requests. Answers for another one are dropped.
struct ReplyTo {
  int worker = 0;
  uint64_t connection = 0, exchange = 0;
};

// Goes from worker to worker and back to the first with what it found.
struct AbortSweep {
  enum class Form : uint8_t { kAbort, kReset, kScheduler };  // which route waits for the answer

  ReplyTo reply;
  bool all = false;
  std::optional<int> key_index;  // only requests of this API key; nothing: everybody's
  Form answered = Form::kAbort;
  bool unsupported = false;                              // kScheduler: also asked for what this server does not have
  std::vector<std::string> ids;                          // as they were named, for the answer's order
  std::unordered_map<std::string, bool> wanted;          // of `ids`: found
  std::vector<std::pair<std::string, int64_t>> aborted;  // choice id, tokens it had
  int hops = 0;

  // Whether a request of that key, or a sample of it, is one to end. Notes that its name was found.
  bool takes_key(int index) const { return !key_index || *key_index == index; }
  bool names(const std::string& id);
};

struct NewConnection {
  net::Fd fd;
  PortKind port = PortKind::kMain;
  net::Peer peer;
  AddressCounts::Lease place;
};
struct DeltaBatch {
  std::vector<engine::Delta> items;
};
struct Reply {
  ReplyTo to;
  http::Response response;
  Ticket ticket;  // of the open request, given back when the answer is written
};
struct Ready {
  ReplyTo to;
  std::unique_ptr<Generation> generation;
  std::vector<engine::Request> requests;  // of its choices, without ids
  Ticket ticket;
  MemoryBudget::Lease memory;  // of its prompts
};
struct SlotGranted {
  EngineSlots::Waiter place;
};
struct CloseListeners {};
struct AbortAll {};    // clients get their last chunk with "abort"
struct EngineGone {};  // every open request fails
struct Quit {};

using Message = std::variant<NewConnection, DeltaBatch, Reply, Ready, SlotGranted, std::unique_ptr<AbortSweep>,
                             CloseListeners, AbortAll, EngineGone, Quit>;

struct Shared {
  Shared(const ServeConfig& c, engine::EngineClient& e, const Content& text, size_t worker_count);
  ~Shared();

  ServeConfig config;
  engine::EngineClient& engine;
  Dispatcher dispatcher;
  Content content;
  openai::TemplateForm chat_form, tool_form;  // of the content's templates
  Auth auth;
  http::Cors cors;
  ActiveIds ids;
  EngineSlots slots;
  MemoryBudget memory;
  AddressCounts addresses;
  Metrics metrics;
  HashKey key;  // of ids, seeds and cache salts of this process
  std::atomic<uint64_t> serial{0};
  std::atomic<int> open_requests{0}, connections{0};
  std::atomic<bool> draining{false}, engine_gone{false};
  size_t max_connections = 512;
  bool metrics_on_main = true;
  std::unique_ptr<ThreadPool> pool;
  std::shared_ptr<Preparations> preparations;  // null without a media service
  std::vector<std::unique_ptr<Worker>> workers;

  bool healthy() const { return !engine_gone.load(std::memory_order_relaxed) && engine.healthy(); }
  void post(int worker, Message message);          // may wait: for the pool and the dispatcher
  void post_control(int worker, Message message);  // never waits: for workers
  std::string random_hex();                        // 32 digits, never the same twice
};

// A request for the CPU pool.
struct Job {
  ReplyTo to;
  const Route* route = nullptr;
  std::string body, content_type;
  std::string logged;  // beginning of the body, where requests are logged whole
  int key_index = 0;
  uint64_t owner = 0;          // whose turn it takes
  MemoryBudget::Lease memory;  // of body and values
  int64_t arrival_ns = 0;
  Ticket ticket;
  std::shared_ptr<std::atomic<bool>> cancelled;  // set when the client leaves
};
// Parses, validates and prepares; posts a Reply, a Ready or an AbortSweep to the worker.
void run_job(Shared& shared, Job job);
void answer_without_memory(Shared& shared, ReplyTo to);
// Runs a part of a request; where memory cannot be had the answer is 503, for that request alone.
template <class F>
void run_guarded(Shared& shared, ReplyTo to, F&& part) {
  try {
    return part();
  } catch (const std::bad_alloc&) {  // what the part held is free again
  }
  answer_without_memory(shared, to);
}
// Writes a finished whole answer on the pool.
void write_body(Shared& shared, ReplyTo to, std::unique_ptr<Generation> generation, Ticket ticket);

}  // namespace tern::serve
