// /v1/responses, stateless: nothing is kept between requests, so clients send the whole conversation as items.
#pragma once

#include "serve/core/protocol.h"

namespace tern::serve::responses {

extern const Protocol kResponses;

}  // namespace tern::serve::responses
