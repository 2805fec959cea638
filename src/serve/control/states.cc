#include "serve/control/states.h"

namespace tern::serve::control {
namespace {

enum class Action : uint8_t {
  kNothing,  // it is so already
  kRefuse,
  kStopNow,
  kStartAgain,
  kGive,     // memory of the tags
  kTake,     // likewise
  kReplace,  // other weights; what waits goes on waiting
  kDrop,     // the weights, until kRestore
  kRestore,
};

struct Cell {
  Action action = Action::kNothing;
  std::string_view why = {};  // of kRefuse
  int code = 403;             // likewise
};

constexpr std::string_view kIsAsleep = "the server is asleep: /v1/wakeup comes first";
constexpr std::string_view kIsCleared = "the weights are cleared: /update_model_weight comes first";
constexpr std::string_view kRuns = "the server is not paused: /v1/pause comes first";

constexpr Cell kIdle{};
constexpr Cell refused(std::string_view why) { return {Action::kRefuse, why}; }

// Columns: running, paused, asleep, cleared. Rows: Order.
constexpr Cell kTable[kOrders][4] = {
    /* pause  */ {{Action::kStopNow}, kIdle, kIdle, kIdle},
    /* resume */ {kIdle, {Action::kStartAgain}, refused(kIsAsleep), refused(kIsCleared)},
    /* sleep  */ {{Action::kGive}, {Action::kGive}, {Action::kGive}, refused(kIsCleared)},
    /* wakeup */ {kIdle, kIdle, {Action::kTake}, refused(kIsCleared)},
    /* update */ {refused(kRuns), {Action::kReplace}, {Action::kReplace}, {Action::kReplace}},
    /* clear  */ {{Action::kDrop}, {Action::kDrop}, refused(kIsAsleep), kIdle},
    /* reload */ {kIdle, {Action::kReplace}, refused(kIsAsleep), {Action::kRestore}},
};

size_t column(const State& s) {
  if (s.cleared) return 3;
  if (s.asleep != 0) return 2;
  return s.paused ? 1 : 0;
}

std::vector<Step> give(const State& now, uint8_t tags) {
  const int more = tags & ~now.asleep;
  if (more == 0) return {};
  std::vector<Step> steps = {Step::kStop, Step::kForget};
  if ((more & kKvCache) != 0) steps.push_back(Step::kGiveCache);
  if ((more & kWeights) != 0) steps.push_back(Step::kGiveWeights);
  return steps;
}

// Nothing runs before all tags are back.
std::vector<Step> take(const State& now, uint8_t tags) {
  const int back = tags & now.asleep;
  if (back == 0) return {};
  std::vector<Step> steps;
  if ((back & kKvCache) != 0) steps.push_back(Step::kTakeCache);
  if ((back & kWeights) != 0) steps.push_back(Step::kReadWeights);
  if (back == now.asleep) steps.push_back(Step::kStart);
  return steps;
}

}  // namespace

Decision decide(const State& now, Order order, uint8_t tags) {
  const Cell& cell = kTable[static_cast<size_t>(order)][column(now)];
  switch (cell.action) {
    case Action::kNothing:
      break;
    case Action::kRefuse:
      return {cell.why, cell.code, {}};
    case Action::kStopNow:
      return {{}, 200, {Step::kStop}};
    case Action::kStartAgain:
      return {{}, 200, {Step::kStart}};
    case Action::kGive:
      return {{}, 200, give(now, tags)};
    case Action::kTake:
      return {{}, 200, take(now, tags)};
    case Action::kReplace:
      return {{}, 200, {Step::kForget, Step::kReadWeights}};
    case Action::kDrop:
      return {{}, 200, {Step::kStopCleared, Step::kForget, Step::kClearWeights}};
    case Action::kRestore:
      return {{}, 200, {Step::kReadWeights, Step::kStart}};
  }
  return {};
}

State after(State now, Step step) {
  switch (step) {
    case Step::kStop:
    case Step::kStopCleared:
      now.paused = true;
      break;
    case Step::kForget:
      break;
    case Step::kGiveCache:
      now.asleep |= kKvCache;
      break;
    case Step::kGiveWeights:
      now.asleep |= kWeights;
      break;
    case Step::kClearWeights:
      now.cleared = true;
      break;
    case Step::kTakeCache:
      now.asleep &= static_cast<uint8_t>(~kKvCache);
      break;
    case Step::kReadWeights:
      now.cleared = false;
      now.asleep &= static_cast<uint8_t>(~kWeights);
      break;
    case Step::kStart:
      now.paused = false;
      break;
  }
  return now;
}

bool parse_tags(std::string_view text, uint8_t& tags) {
  tags = text.empty() ? kAllTags : 0;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    if (name == "weight" || name == "weights")
      tags |= kWeights;
    else if (name == "kv_cache")
      tags |= kKvCache;
    else
      return false;
    if (comma == text.size() - 1) return false;
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return true;
}

}  // namespace tern::serve::control
