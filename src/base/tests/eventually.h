// Waiting in tests for what another thread will do.
#pragma once

#include <chrono>
#include <thread>

namespace tern {

// True as soon as `condition()` holds; false if it does not within `limit`, which is long because only a failing test
// waits for it. Where a condition variable or a future tells the moment, wait for that instead.
template <class Condition>
bool eventually(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(20)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace tern
