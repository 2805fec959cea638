// `tern pull NAME`: a model of a hub into its folder, without serving it.
#include <fmt/format.h>

#include "app/hub/hub_progress.h"
#include "app/hub/hub_pull.h"
#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"

namespace tern::cli {
namespace {

Status pull(const std::string& name, const std::string& revision) {
  TERN_ASSIGN_OR_RETURN(const app::Environment environment, app::Environment::from(app::Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(const app::HubPlan plan, app::hub_plan(name, revision, environment));
  if (!plan.forbidden_by.empty()) {
    return make_error(ErrorCode::kUnavailable, plan.forbidden_by + " forbids to fetch models");
  }
  TERN_ASSIGN_OR_RETURN(const app::HubPull pulled, app::pull_model(plan));
  const std::string came =
      pulled.bytes > 0 ? app::bytes_text(static_cast<double>(pulled.bytes)) + " fetched" : "nothing was lacking";
  fmt::print(stderr, "{} at {}: {} files, {}, {}\n", plan.repo, pulled.commit, pulled.files,
             app::bytes_text(static_cast<double>(pulled.all)), came);
  fmt::print("{}\n", pulled.folder);
  return {};
}

}  // namespace

int run_pull(const std::vector<std::string>& args) {
  app::Options options(
      "Fetches a model of a hub into FD_MODEL_CACHE (else HOME) and prints its folder. FD_MODEL_SOURCE names the hub",
      "tern pull");
  std::string name, revision;
  options.add_option("NAME", name, "OWNER/NAME at the hub").required();
  options.add_option("--revision", revision, "A branch, a tag or a commit; default: the hub's main branch");
  if (const auto status = app::parse_options(options, args)) return *status;
  const Status status = pull(name, revision);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::cli
