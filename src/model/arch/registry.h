// Architectures by the name that config.json gives them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/config/config_reader.h"
#include "model/decoder_spec.h"

namespace tern::model {

// Reads the config into `spec`; complaints stay in `config`.
using ReadSpec = void (*)(ConfigReader& config, DecoderSpec& spec);

struct Architecture {
  std::string_view name;
  ReadSpec read;
};

std::span<const Architecture> architectures();

// The spec of a config: reads it with its architecture's file and checks it. An unknown architecture is kUnsupported
// and names the known ones.
Expected<DecoderSpec> read_spec(const json::Object& config);

// architectures[0] of a folder's config, with overrides.
Expected<std::string> read_architecture(const std::string& folder, const std::string& config_name,
                                        const json::Object& overrides);

}  // namespace tern::model
