// States of a server that can be paused, put to sleep and given other weights, and what each control route does from
// each of them: a table, without threads and memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tern::serve::control {

// What sleep takes memory from.
enum Tag : uint8_t { kWeights = 1, kKvCache = 2 };
inline constexpr uint8_t kAllTags = kWeights | kKvCache;

struct State {
  bool paused = false;   // nothing runs; also while anything of the next two holds
  bool cleared = false;  // /clear_load_weight took the weights
  uint8_t asleep = 0;    // tags without memory

  bool operator==(const State&) const = default;
  // Requests that generate are answered with 304; while only `paused` they wait.
  bool shut() const { return cleared || asleep != 0; }
};

enum class Order : uint8_t {
  kPause,
  kResume,
  kSleep,
  kWakeUp,
  kUpdate,  // /v1/update_weights
  kClear,   // /clear_load_weight
  kReload,  // /update_model_weight
};
inline constexpr int kOrders = 7;

enum class Step : uint8_t {
  kStop,         // open requests end; the engine waits
  kStopCleared,  // the same, and they are told that the weights went
  kForget,       // prefix index and encoder cache
  kGiveCache,
  kGiveWeights,  // to sleep
  kClearWeights,
  kTakeCache,
  kReadWeights,
  kStart,
};

struct Decision {
  std::string_view refusal;  // why nothing is done; "": the steps are what is to be done, one after the other
  int code = 200;            // of the routes that answer with one (fastdeploy.md 2.5)
  std::vector<Step> steps;   // none: it is so already
};

// `tags`: of kSleep and kWakeUp.
Decision decide(const State& now, Order order, uint8_t tags);
// The state once the step is done. An order that fails stays where its last step has led.
State after(State now, Step step);

// "weight,kv_cache", in any order and number; "": all. False: a name that is none.
bool parse_tags(std::string_view text, uint8_t& tags);

}  // namespace tern::serve::control
