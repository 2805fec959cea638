// Messages between the threads of the server.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/client.h"
#include "serve/core/generation.h"
#include "serve/http/response.h"
#include "serve/kserve/calls.h"
#include "serve/limits/admission.h"
#include "serve/limits/engine_slots.h"
#include "serve/limits/memory_budget.h"
#include "serve/net/fd.h"
#include "serve/router.h"

namespace tern::serve {

// Where an answer goes: a connection of a worker, or a call, and which of its requests. Answers for another one are
// dropped.
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
  bool secure = false;  // speaks TLS
  net::Peer peer;
  AddressCounts::Lease place;
};
struct DeltaBatch {
  std::vector<engine::Delta> items;
};
struct Reply {
  ReplyTo to;
  http::Response response;
  Ticket ticket;        // of the open request, given back when the answer is written
  bool served = false;  // of a route that generates: the answer, not a refusal
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
struct StreamClosed {
  uint64_t stream = 0;
};
struct CallRoom {
  uint64_t call = 0;
};
struct CloseListeners {};
struct AbortAll {};    // clients get their last chunk with "abort"
struct EngineGone {};  // every open request fails
struct Quit {};

using Message = std::variant<NewConnection, DeltaBatch, Reply, Ready, SlotGranted, std::unique_ptr<AbortSweep>,
                             kserve::NewCall, StreamClosed, CallRoom, CloseListeners, AbortAll, EngineGone, Quit>;

}  // namespace tern::serve
