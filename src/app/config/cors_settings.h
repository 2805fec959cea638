// Which web pages may use the server.
#pragma once

#include "app/flags/flag_set.h"
#include "base/error.h"
#include "serve/http/cors.h"

namespace tern::app {

// --allowed-origins, --allow-credentials, --allowed-methods and --allowed-headers. kInvalidArgument for what
// http::check() refuses.
Expected<serve::http::CorsRules> cors_settings(const FlagSet& flags);

}  // namespace tern::app
