// The engine thread's side of guided decoding: which rows want masks, who is asked for them, what came of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/generation.h"
#include "engine/masks/mask_pool.h"
#include "engine/masks/step_masks.h"

namespace tern::engine {

class Guidance {
 public:
  // `words` of a mask.
  Guidance(int threads, size_t words) : words_(words), pool_(threads) {}

  // The request enters; its constraint has a grammar.
  void open(Generation& g) const;
  // Its reasoning is over: the grammar begins. Rows that were given without a mask by then are void.
  void begin(Generation& g) const;
  // Asks for the mask of a row that will say token `generated` of its answer. `last`: nothing is in flight before it;
  // a row that does not go on where the answer stands has missed its step.
  void ask(Generation& g, MaskRow& row, int32_t generated, bool last);
  // Sends what was asked for to the pool, all at once.
  void flush() { pool_.give(asked_); }
  // The step of this row has been collected: the row's outcome. The mask is not written from here on.
  MaskState settle(Generation& g, MaskRow& row) const;
  // The request has ended.
  void close(Generation& g);

 private:
  const size_t words_;
  std::vector<std::shared_ptr<Guide>> asked_;
  MaskPool pool_;
};

}  // namespace tern::engine
