// Who says which ids may come next (guided decoding). The engine asks between the forward pass and sampling.
#pragma once

#include <cstdint>
#include <span>

#include "base/error.h"
#include "engine/request.h"

namespace tern::engine {

// Called by the engine thread only; computing may go on elsewhere.
class MaskProvider {
 public:
  virtual ~MaskProvider() = default;
  // Whether this request's rows wait for masks. Called once, when the request enters. An error ends the request alone.
  virtual Expected<bool> open(const Request& request) = 0;
  // The mask of the next token: bit id % 32 of word id / 32 allows the id. `output`: all ids said so far. Called when
  // the forward pass of the row has been submitted and its previous token is known. An error ends the request alone.
  virtual Status fill(RequestId id, std::span<const int32_t> output, std::span<uint32_t> bits) = 0;
  // The request has ended.
  virtual void close(RequestId id) = 0;
};

}  // namespace tern::engine
