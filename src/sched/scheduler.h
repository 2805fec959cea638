// Which sequences run next, on which blocks (fastdeploy.md 6.2, 6.3). Pure: no clock, no thread, no device; the
// same calls give the same plans. Steps run ahead: plan() may be called before the tokens of the plan before are known.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "cache/block_pool.h"
#include "cache/prefix_index.h"
#include "sched/plan.h"

namespace tern::sched {

struct SchedulerConfig {
  int block_size = 64;
  int max_num_seqs = 8;
  int max_num_batched_tokens = 8192;
  int max_model_len = 2048;
  bool chunked_prefill = true;
  bool prefix_caching = true;
  bool output_caching = true;
  // Logit rows of one step (logits are [rows, vocabulary] of float32); 0: as many as tokens. At least max_num_seqs + 1.
  // Chunks of sequences with prompt_logit_rows are cut so that the plan's logit_rows never exceed it.
  int max_logit_rows = 0;
  bool v1 = true;  // ENABLE_V1_KVCACHE_SCHEDULER
  // V1 (fastdeploy.md 6.3)
  int prealloc_dec_block_slot_num_threshold = 12;
  int enc_dec_block_num = 2;          // FD_ENC_DEC_BLOCK_NUM; legacy: --static-decode-blocks
  double reserve_output_blocks = 16;  // FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL
  double reserve_decay = 0.025;
  double reserve_min = 0;
  bool save_output_cache_for_preempted = true;
  // Legacy (fastdeploy.md 6.2)
  double kv_cache_ratio = 0.75;
  int max_num_partial_prefills = 1;
  int max_long_partial_prefills = 1;
  int long_prefill_token_threshold = 0;  // 0: int(max_model_len * 0.04)
  int max_prefill_num = 3;
  // --disable-chunked-mm-input: a prefix match that ends inside an unsplittable range goes back to the block before it.
  bool disable_chunked_mm_input = false;
  // Tokens of unsplittable ranges that the rows of one plan may touch, each range counted whole for each row (a prefix
  // match may end inside one, and all of its picture is needed); 0: no limit. Longer ranges are refused.
  int max_range_tokens = 0;
};

// Extra key of a token range for the prefix cache: a picture's fingerprint, an adapter, a tenant's salt (whole
// sequence).
struct ExtraKey {
  int begin = 0, end = 0;  // tokens [begin, end)
  uint64_t key[2] = {0, 0};
};

// What the scheduler is told of a request. Values only.
struct NewSequence {
  SeqId id = 0;
  uint64_t owner = 0;  // opaque: waiting sequences are taken fairly over owners, first in first out within one
  std::vector<int32_t> prompt;
  int max_new_tokens = 0;                         // at least 1; prompt + max_new_tokens <= max_model_len
  bool use_prefix_cache = true;                   // false with prompt log-probs
  int prompt_logit_rows = 0;                      // > 0: every prompt position yields a logit row
  std::vector<ExtraKey> extra_keys;               // ordered by begin
  std::vector<std::pair<int, int>> unsplittable;  // ranges [begin, end) a chunk never cuts (pictures)
};

struct SchedulerStats {
  int running = 0, waiting = 0, preempted_waiting = 0;
  int free_blocks = 0, usable_blocks = 0;  // usable: free plus evictable cached ones
  uint64_t preemptions = 0, full_hits = 0, prefix_hit_tokens = 0, prefix_lookup_tokens = 0;
  int total_blocks = 0;    // without the null block
  int cached_blocks = 0;   // named by the prefix index, in use or not
  int prefill_blocks = 0;  // legacy: the prefill share; V1: all
  // Counted once per request, when it is first admitted (a resumed one counts in `resumed` only).
  uint64_t prefix_lookups = 0, prefix_hits = 0, resumed = 0;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Queues a sequence. Errors: duplicate id, empty prompt, ranges out of order (kInvalidArgument); longer than
  // max_model_len (kTooLarge); more blocks, or unchunked a larger prompt, than can ever run (kResourceExhausted).
  virtual Status add(NewSequence sequence) = 0;

  // Removes a sequence that is still waiting at once; a running one leaves every later plan, and its blocks return when
  // no submitted step names them. Unknown ids are ignored.
  virtual void abort(SeqId id) = 0;

  // The next step. Fills `plan` (reusing its memory). Rows of sequences whose newest token is still in flight name it
  // by previous_row, an index into the logit rows of the newest open plan. At most two plans may be open (planned and
  // not yet collected). A plan without rows is not open: nothing is launched, it is not collected, and it takes no step
  // number (its `preempted` still counts). Blocks and slots of preempted sequences are reused at once: steps must run
  // in plan order.
  virtual void plan(Plan& plan) = 0;

  // The tokens of the oldest open plan: results[i] belongs to its i-th row with samples == true and holds zero, one or
  // more tokens. `finished`: the engine ends that sequence with these tokens (end of text, stop, length, error, abort).
  // Rows of sequences that have already ended are given and ignored. Without tokens the row is computed again; several
  // tokens are all kept. Either way the row of a later open plan, which assumed one token, is ignored. A sequence at
  // its length limit ends whether or not `finished` says so. Finished without tokens means failed (not a number, say):
  // nothing of that row enters the prefix cache.
  struct RowResult {
    SeqId seq = 0;
    std::span<const int32_t> tokens;
    bool finished = false;
  };
  virtual void collect(std::span<const RowResult> results) = 0;

  // Blocks of a sequence that holds a slot, in order; valid until the next call that changes it. Empty for unknown ids.
  // Read them whole for every plan: a full block gives way to an equal one that another sequence cached first.
  virtual std::span<const int32_t> blocks(SeqId id) const = 0;
  // Ids known of a sequence: prompt and confirmed output.
  virtual std::span<const int32_t> tokens(SeqId id) const = 0;
  // What row `row` of the newest plan reads, without a look-up: tokens() and blocks() of its sequence. The spans are
  // valid until the next call.
  struct RowView {
    std::span<const int32_t> tokens, blocks;
  };
  virtual RowView row(size_t row) const = 0;
  virtual bool has_work() const = 0;  // something runs, waits or is open
  virtual SchedulerStats stats() const = 0;
  // Asserts every invariant (blocks accounted for, none writable twice, budgets): for tests and debug builds.
  virtual void check_invariants() const = 0;
};

// V1 or legacy by config.v1. The pool and index outlive the scheduler.
std::unique_ptr<Scheduler> make_scheduler(const SchedulerConfig& config, cache::BlockPool& pool,
                                          cache::PrefixIndex& index);

}  // namespace tern::sched
