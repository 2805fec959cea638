// One request's way through its grammar: the engine thread says what came and asks for the next mask, a thread of the
// mask pool computes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/grammar.h"

namespace tern::engine {

enum class MaskState : uint8_t {
  kWaiting,  // for its tokens or its computation
  kWriting,  // the mask is being copied to where the sampler reads it: some microseconds
  kReady,
  kMissed,  // the step went on without it: the row says nothing and is computed again
  kFailed,  // Guide::error() says why: the request ends
};

// A row of a step that waits for a mask.
struct MaskRow {
  std::atomic<MaskState> state{MaskState::kWaiting};
  std::span<uint32_t> bits;     // where the sampler reads it
  std::vector<int32_t> forced;  // ids that follow for certain, the sampled one first; memory for kMostForced
  bool asked = false;           // of the engine thread: the guide knows of the row
  int step_row = -1;            // index of Step::rows
  int sample_row = -1;          // number in the sampling batch
};

class Guide {
 public:
  static constexpr size_t kMostForced = 32;

  // `words` of a mask.
  Guide(std::shared_ptr<const Grammar> grammar, size_t words, bool forces);

  // The engine thread. The answer has gone on with `news`; `row` wants the mask of what comes next. True: the guide is
  // to be given to the pool; else it is there already.
  bool ask(std::span<const int32_t> news, MaskRow* row);
  // The engine thread: the row asked for last has missed its step if it waits, and is not written to from here on.
  void cancel();
  // Valid after a row has failed.
  Error error() const;
  // The engine thread: ids that ask() has been told.
  size_t told() const { return told_; }

  // A thread of the pool, one at a time: answers the row that was asked for.
  void work();

 private:
  Status advance(std::span<const int32_t> news);
  void deliver();

  const std::shared_ptr<const Grammar> grammar_;
  const bool forces_;
  size_t told_ = 0;

  mutable std::mutex mutex_;
  std::vector<int32_t> news_;  // not consumed yet
  MaskRow* row_ = nullptr;     // that waits; null: none
  bool working_ = false;
  Error error_;
  bool failed_ = false;

  // Of the thread that works.
  std::unique_ptr<TokenMatcher> matcher_;
  std::vector<int32_t> taken_, forced_;
  std::vector<uint32_t> bits_;  // of what comes next
  bool filled_ = false;
};

}  // namespace tern::engine
