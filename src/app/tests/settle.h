// Settings from a command line and an environment, as tests give them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "app/config/settings.h"

namespace tern::app {

using Args = std::vector<std::string>;
using Pairs = Environment::Pairs;

inline Expected<Settings> settle(const Args& args, const Pairs& pairs = {}, const ModelFacts& facts = {}) {
  TERN_ASSIGN_OR_RETURN(Arguments arguments, parse_arguments(args));
  TERN_ASSIGN_OR_RETURN(Environment environment, Environment::from(pairs));
  return resolve(std::move(arguments.flags), std::move(environment), facts);
}

// A failure fails the test.
inline Settings settled(const Args& args, const Pairs& pairs = {}, const ModelFacts& facts = {}) {
  auto result = settle(args, pairs, facts);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(result).value() : Settings();
}

// "" when nothing failed.
inline std::string failure(const Args& args, const Pairs& pairs = {}, const ModelFacts& facts = {}) {
  auto result = settle(args, pairs, facts);
  return result.ok() ? "" : result.error().message;
}

inline ModelFacts model_of(int64_t positions, const std::string& architecture = "Ernie4_5_ForCausalLM") {
  ModelFacts facts;
  facts.folder = std::string("m");  // from a literal gcc 12 warns of an overlap that is not there
  facts.architecture = architecture;
  facts.max_position_embeddings = positions;
  return facts;
}

}  // namespace tern::app
