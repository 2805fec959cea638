// The command line, the configuration file and the environment, then everything that is derived from them. The first
// byte chooses; words end with a newline.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "app/config/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::app;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  FlagSet flags;
  Environment environment;
  if (data[0] % 3 == 0) {
    if (!read_config_text(text, "fuzz.yaml", flags).ok()) return 0;
  } else if (data[0] % 3 == 1) {
    std::vector<std::string> words;
    for (const auto word : split(text, '\n')) {
      if (word.find("config") != std::string_view::npos) return 0;  // would read files of the machine
      words.emplace_back(word);
    }
    auto arguments = parse_arguments(words);
    if (!arguments.ok()) return 0;
    flags = std::move(arguments->flags);
  } else {
    Environment::Pairs pairs;
    for (const auto word : split(text, '\n')) {
      pairs.emplace_back(word.substr(0, word.find('=')), word.substr(std::min(word.size(), word.find('=') + 1)));
    }
    auto values = Environment::from(pairs);
    if (!values.ok()) return 0;
    environment = std::move(values).value();
  }
  ModelFacts facts;
  facts.max_position_embeddings = data[0];
  (void)resolve(std::move(flags), std::move(environment), facts).ok();
  return 0;
}
