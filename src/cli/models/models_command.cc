// `tern models` and `tern rm`: the models by name that are here.
#include <fmt/format.h>

#include <algorithm>

#include "app/hub/hub_progress.h"
#include "app/hub/hub_store.h"
#include "app/options.h"
#include "app/report.h"
#include "cli/commands.h"
#include "json/json.h"

namespace tern::cli {
namespace {

std::string size_text(int64_t bytes) { return app::bytes_text(static_cast<double>(bytes)); }

void print_table(const std::vector<app::StoredModel>& models) {
  size_t name = 5, where = 5, revision = 8;
  for (const auto& model : models) {
    name = std::max(name, model.name.size());
    where = std::max(where, model.where.size());
    revision = std::max(revision, model.revision.size());
  }
  const auto row = [&](const auto&... cells) { fmt::print("{:<{}}  {:<{}}  {:<{}}  {:>10}  {}\n", cells...); };
  row("MODEL", name, "WHERE", where, "REVISION", revision, "SIZE", "FOLDER");
  for (const auto& model : models) {
    const std::string folder = model.folder + (model.state == "whole" ? "" : " (" + model.state + ")");
    row(model.name, name, model.where, where, model.revision, revision, size_text(model.bytes), folder);
  }
}

}  // namespace

int run_models(const std::vector<std::string>& args) {
  app::Options options("Lists the models by name that are on this machine", "tern models");
  bool as_json = false;
  options.add_flag("--json", as_json, "Prints one JSON array");
  if (const auto status = app::parse_options(options, args)) return *status;
  const auto environment = app::Environment::from(app::Environment::of_process());
  if (!environment.ok()) return app::report(environment.error());
  const auto models = app::list_models(*environment);
  if (!as_json) {
    print_table(models);
    return 0;
  }
  json::Array out;
  for (const auto& model : models) {
    out.push_back(json::Object{{"name", model.name},
                               {"where", model.where},
                               {"revision", model.revision},
                               {"state", model.state},
                               {"bytes", model.bytes},
                               {"folder", model.folder}});
  }
  fmt::print("{}\n", json::dump(out));
  return 0;
}

int run_remove(const std::vector<std::string>& args) {
  app::Options options("Removes models that tern pull or a start has fetched", "tern rm");
  std::vector<std::string> names;
  options.add_option("NAME", names, "OWNER/NAME, as tern models lists it").required();
  if (const auto status = app::parse_options(options, args)) return *status;
  const auto environment = app::Environment::from(app::Environment::of_process());
  if (!environment.ok()) return app::report(environment.error());
  int worst = 0;
  for (const std::string& name : names) {
    const auto removed = app::remove_model(name, *environment);
    if (removed.ok()) fmt::print("{}: {} removed\n", name, size_text(*removed));
    if (!removed.ok()) worst = std::max(worst, app::report(removed.error()));
  }
  return worst;
}

}  // namespace tern::cli
