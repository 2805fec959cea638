// What a control request asks for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "json/json.h"
#include "serve/control/states.h"
#include "serve/control/weights.h"

namespace tern::serve::control {

struct Ask {
  Order order = Order::kPause;
  uint8_t tags = kAllTags;
  WeightsFrom from;
  std::string version;  // of the weights that kUpdate brings
};

// `tags` of a raw query, as often as it stands there; without any, all.
Status read_tags(std::string_view query, Ask& ask);
// The body of /v1/update_weights.
Status read_update(const json::Value& body, Ask& ask);

}  // namespace tern::serve::control
