// What generation_config.json says: ids that end a text, and sampling values that a request may leave out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace tern::model {

struct GenerationDefaults {
  std::vector<int32_t> eos_token_ids;  // from generation_config.json, else from config.json
  int32_t bos_token_id = -1;           // -1: none named
  int32_t pad_token_id = -1;
  // As the file says them; nothing when it does not.
  std::optional<double> temperature, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int> top_k, max_new_tokens;
  std::optional<bool> do_sample;
  bool has_file = false;
};

// Reads generation_config.json of the folder when it is there, and `config` (config.json) for what it leaves out.
// A wrong type or a value that no sampler accepts is an error that names the key.
Expected<GenerationDefaults> read_generation_defaults(const std::string& folder, const json::Object& config);

}  // namespace tern::model
