// What the small files of a model folder say: config.json and generation_config.json. No weights are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/flags/flag_set.h"
#include "base/error.h"
#include "json/json.h"
#include "serve/config.h"

namespace tern::app {

struct ModelFacts {
  std::string folder;                   // "" when the name is no folder of this machine
  std::string architecture;             // architectures[0]
  int64_t max_position_embeddings = 0;  // 0: not named
  int64_t vocab_size = 0;
  bool pictures = false;               // config.json describes a vision tower
  std::vector<int32_t> eos_token_ids;  // config.json and generation_config.json, each once
  serve::GenerationDefaults generation;
};

// Errors: a folder without its config file, or files that do not parse or hold values out of range.
Expected<ModelFacts> read_model_facts(const std::string& folder, const std::string& config_name,
                                      const json::Object& overrides);
// The same with the file and the overrides that the flags name.
Expected<ModelFacts> read_model_facts(const std::string& folder, const FlagSet& flags);

// The parts, for tests.
Status read_config_json(const json::Object& config, ModelFacts& facts);
Status read_generation_json(const json::Object& config, ModelFacts& facts);

}  // namespace tern::app
