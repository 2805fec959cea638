#include "app/config/cors_settings.h"

namespace tern::app {

Expected<serve::http::CorsRules> cors_settings(const FlagSet& flags) {
  serve::http::CorsRules rules;
  rules.origins = flags.texts("allowed-origins");
  rules.methods = flags.texts("allowed-methods");
  rules.headers = flags.texts("allowed-headers");
  rules.credentials = flags.boolean("allow-credentials");
  TERN_RETURN_IF_ERROR(serve::http::check(rules));
  return rules;
}

}  // namespace tern::app
