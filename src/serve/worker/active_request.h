#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "serve/worker/connection.h"
#include "serve/worker/shared.h"

namespace tern::serve {

// A request that waits for an engine slot or whose rows run in the engine.
struct ActiveRequest {
  uint64_t key = 0, connection = 0;
  int key_index = 0;  // of the API key that asked
  std::unique_ptr<Generation> generation;
  std::vector<engine::Request> requests;  // until submitted
  Ticket ticket;
  MemoryBudget::Lease memory;  // of its prompts
  bool has_slot = false;
  bool told = false;  // the log knows of its first chunk
  EngineSlots::Waiter place;
  int64_t wait_deadline_ns = 0;
  std::vector<std::pair<size_t, engine::Delta>> held;  // choice, delta: the client reads too slowly
  size_t held_tokens = 0;
};

}  // namespace tern::serve
