#include "cli/tools/model_folder.h"

#include "app/flags/environment.h"
#include "app/hub/find_folder.h"

namespace tern::cli {

Expected<std::string> model_folder(const std::string& name) {
  TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
  return app::obtain_folder({.name = name}, environment);
}

}  // namespace tern::cli
