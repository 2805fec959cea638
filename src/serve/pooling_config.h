// What a server of a pooling model needs to know of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/request.h"

namespace tern::serve {

struct PoolingConfig {
  int32_t width = 0;     // values of a row
  bool rewards = false;  // rows are scores; else embeddings
  // Of which prompt tokens; kAll: scores alone, of every token or of those with `step_tag_id`.
  engine::PooledRows rows = engine::PooledRows::kLast;
  // Of --override-pooler-config. Of embeddings, where a request says nothing:
  bool normalize = true;
  std::optional<int32_t> dimensions;
  // Of scores: they become probabilities (of one label by the logistic function), of the tokens with that id only, of
  // these labels only (empty: all).
  bool softmax = false;
  std::optional<int32_t> step_tag_id;
  std::vector<int32_t> labels;
};

}  // namespace tern::serve
