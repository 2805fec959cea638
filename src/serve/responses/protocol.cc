#include "serve/responses/protocol.h"

#include "serve/responses/request.h"
#include "serve/responses/writer.h"

namespace tern::serve::responses {

const Protocol kResponses{.read = read_request, .make_writer = make_writer};

}  // namespace tern::serve::responses
