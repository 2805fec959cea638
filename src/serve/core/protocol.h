// What a protocol brings to the way that every request for an answer takes.
#pragma once

#include "base/error.h"
#include "json/json.h"
#include "serve/config.h"
#include "serve/core/ask.h"
#include "serve/core/writer.h"

namespace tern::serve {

struct Protocol {
  // The fields of a body, checked. The error's `param` is the field at fault; later checks, which all protocols share
  // (serve/prepare), name fields as the OpenAI protocol spells them.
  Expected<Ask> (*read)(json::Value body, const ServeConfig& config) = nullptr;
  MakeWriter make_writer = nullptr;
  // The route takes bodies of PaddleNLP's native protocol too, which are told by their fields (serve/native).
  bool native_too = false;
  bool pools = false;  // for pooling models; else for those that generate
};

}  // namespace tern::serve
