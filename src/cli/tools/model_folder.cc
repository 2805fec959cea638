#include "cli/tools/model_folder.h"

#include <fmt/format.h>

#include "app/config/model_facts.h"
#include "app/flags/environment.h"

namespace tern::cli {

Expected<std::string> model_folder(const std::string& name) {
  TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
  std::string folder = app::find_folder(name, environment);
  if (folder.empty())
    return make_error(ErrorCode::kNotFound, fmt::format("there is no model folder {}", name), "model");
  return folder;
}

}  // namespace tern::cli
