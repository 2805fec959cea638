// Progress of one generation inside the scheduler.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/memory/prefetch.h"
#include "sched/scheduler.h"

namespace tern::sched {

enum class SeqState : uint8_t {
  kWaiting,  // queued, new or preempted; holds no block and no slot
  kRunning,
  kEnding,  // finished or aborted; what it holds returns with its last open row
};

struct Owner;

struct alignas(64) Sequence {
  // What planning a row that decodes touches lies in the first cache line, what its collection does in the second.
  SeqId id = 0;
  uint64_t table = 0;  // PlanRow
  int slot = -1;
  int computed = 0;      // tokens whose keys and values are written once every planned step has run
  int prefill_end = 0;   // below it the sequence prefills: all tokens known at admission (and given later at once)
  int known = 0;         // prompt and confirmed output; tokens.size()
  int limit = 0;         // prompt + max_new_tokens
  int logit_row = -1;    // of the newest sampling row, in its plan
  int8_t in_flight = 0;  // tokens that open plans sample: at most one per open plan
  int8_t open_rows = 0;  // rows in open plans
  SeqState state = SeqState::kWaiting;
  bool counted = false;  // was admitted before
  bool use_cache = true;
  bool keep_output = false;  // ended well: its output may enter the prefix cache
  bool score_prompt = false;
  std::vector<int32_t> blocks;  // reserved to the limit at admission, so that steps do not allocate
  int confirmed = 0;            // like computed, for collected steps only
  int cached_blocks = 0;        // first blocks that the index has been offered
  int decode_share = 0;         // legacy: blocks taken from the decode share
  int prompt = 0;
  std::vector<int32_t> tokens;
  std::vector<Hash128> hashes;  // of full blocks, as far as needed so far
  std::vector<ExtraKey> extra_keys;
  std::vector<std::pair<int, int>> unsplittable;
  Sequence* before = nullptr;  // neighbours in the waiting queue
  Sequence* after = nullptr;
  Owner* owner = nullptr;
  uint64_t arrival = 0;  // its number in the order of arrival

  int length() const { return known + in_flight; }
  bool prefilling() const { return computed < prefill_end; }
  // A decode row can be planned: the next token is not known to be the last one yet.
  bool decodes() const { return computed >= prefill_end && length() < limit; }
  bool preempted() const { return counted && state == SeqState::kWaiting; }
};

// Asks for the first lines of it.
inline void prefetch(const Sequence& s, size_t lines) { prefetch_memory(&s, 64 * lines); }

struct SequenceList {
  Sequence* front = nullptr;
  Sequence* back = nullptr;
};

// All sequences of one NewSequence::owner.
struct Owner {
  uint64_t key = 0;
  int sequences = 0;     // known
  int slots = 0;         // that they hold
  SequenceList waiting;  // in order of arrival
};

// Preempted sequences first. Of the others the oldest of the owner whose sequences hold the fewest slots; of equal
// owners the one whose oldest has waited longest. So one owner alone is served first in, first out, and many sequences
// of one never keep out those of another. Sequences may leave from the middle; they are not owned.
class WaitingQueue {
 public:
  void enter(Sequence* s, uint64_t owner);  // known from now on
  void leave(Sequence* s);                  // forgotten; it does not wait
  Sequence* front() const;
  int size() const { return size_; }
  void push_back(Sequence* s);
  void push_front(Sequence* s);  // a preempted one
  void remove(Sequence* s);      // waits no more
  void take_slot(Sequence* s);
  void give_slot(Sequence* s);

 private:
  SequenceList& list_of(Sequence* s) { return s->counted ? preempted_ : s->owner->waiting; }

  SequenceList preempted_;
  std::unordered_map<uint64_t, Owner> owners_;
  int size_ = 0;
  uint64_t arrivals_ = 0;
  mutable const Owner* next_ = nullptr;  // who is next; null: to be found
};

// Extends `hashes` to those of the first `blocks` full blocks of `tokens`. `extra_keys`: ordered by begin.
void extend_hashes(std::vector<Hash128>& hashes, std::span<const int32_t> tokens, std::span<const ExtraKey> extra_keys,
                   HashKey key, int block_size, int blocks);
// The same of a sequence.
void extend_hashes(Sequence& s, HashKey key, int block_size, int blocks);

// The end of a chunk that would end at `end`: rounded up to the end of an unsplittable range it would cut
// (fastdeploy.md 6.4).
int round_chunk_end(const Sequence& s, int end);
// Tokens of all ranges that [begin, end) touches, whole ones.
int touched_ranges(const Sequence& s, int begin, int end);
// The end of a chunk from `begin` that would end at `end`, when at most `room` tokens of ranges may be touched.
int bound_ranges(const Sequence& s, int begin, int end, int room);
// Where the unsplittable range that is cut at `end` begins.
int begin_of_range(const Sequence& s, int end);

// Tokens of a match of `matched` tokens that may be used when ranges are kept whole: up to the block boundary before a
// range that the match would cut (fastdeploy.md 6.4, --disable-chunked-mm-input).
int roll_back_match(const Sequence& s, int matched, int block_size);

// Why the sequence can never run, or nothing.
Status validate(const NewSequence& s, const SchedulerConfig& config, int total_blocks);

}  // namespace tern::sched
