#include "serve/kserve/transport.h"

namespace tern::serve::kserve {

uint64_t interface_number() { return TERN_KSERVE_INTERFACE; }

}  // namespace tern::serve::kserve
