// What all threads of the server share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "engine/client.h"
#include "serve/config.h"
#include "serve/control/controller.h"
#include "serve/core/dispatcher.h"
#include "serve/core/generation.h"
#include "serve/limits/admission.h"
#include "serve/limits/auth.h"
#include "serve/limits/engine_slots.h"
#include "serve/limits/memory_budget.h"
#include "serve/net/tls_stream.h"
#include "serve/prepare/template_form.h"
#include "serve/report/metrics.h"
#include "serve/router.h"
#include "serve/server.h"
#include "serve/worker/messages.h"

namespace tern::serve {

class Preparations;
class Worker;

struct Shared {
  Shared(const ServeConfig& c, engine::EngineClient& e, const Content& text, control::Weights* weights,
         size_t worker_count);
  ~Shared();

  ServeConfig config;
  engine::EngineClient& engine;
  Dispatcher dispatcher;
  Content content;
  prepare::TemplateForm chat_form, tool_form;  // of the content's templates
  Auth auth, admin;                            // admin: of control routes, where it asks for a key
  control::Controller control;
  net::Certificates certificates;
  http::Cors cors;
  ActiveIds ids;
  EngineSlots slots;
  MemoryBudget memory;
  AddressCounts addresses;
  Metrics metrics;
  HashKey key;  // of ids, seeds and cache salts of this process
  std::atomic<uint64_t> serial{0};
  std::atomic<int> open_requests{0}, connections{0};
  std::atomic<int> paddlenlp_open{0};  // of these, those that came over that front's port and were admitted
  std::atomic<bool> draining{false}, engine_gone{false};
  size_t max_connections = 512;
  bool metrics_on_main = true;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<ThreadPool> grammar_pool;    // compiles grammars, so that hostile ones hold up nobody else's request
  std::unique_ptr<ThreadPool> control_pool;    // one thread: orders are carried out one after the other
  std::shared_ptr<Preparations> preparations;  // null without a media service
  std::vector<std::unique_ptr<Worker>> workers;

  bool healthy() const { return !engine_gone.load(std::memory_order_relaxed) && engine.healthy(); }
  bool ready() const { return healthy() && !control.shut(); }  // for requests that generate
  void post(int worker, Message message);                      // may wait: for the pool and the dispatcher
  void post_control(int worker, Message message);              // never waits: for workers
  std::string random_hex();                                    // 32 digits, never the same twice
};

// A request for the CPU pool.
struct Job {
  ReplyTo to;
  const Route* route = nullptr;
  std::string body, content_type, traceparent, query;
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
