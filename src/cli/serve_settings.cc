#include "cli/serve_settings.h"

#include <fmt/format.h>

#include "app/download/download.h"
#include "app/hub/find_folder.h"

namespace tern::cli {
namespace {

using app::Environment;

// The model's configuration as PaddleNLP's variables ask of it; nothing of a folder that is not there.
Expected<app::PaddleNlpModel> paddlenlp_model(const std::string& folder, const app::ModelFacts& facts,
                                              const std::string& config_name) {
  app::PaddleNlpModel model;
  model.positions = facts.max_position_embeddings;
  if (folder.empty()) return model;
  TERN_ASSIGN_OR_RETURN(const json::Value config,
                        json::parse_file(folder + "/" + config_name, {.max_bytes = 16u << 20}));
  if (config.is_object()) model.config = config.get_object();
  return model;
}

// `fetch`: a model that is not here is asked for at its hub; else facts without a folder.
Expected<app::ModelFacts> read_facts(const app::FlagSet& flags, const Environment& environment, bool fetch) {
  const app::ModelWish wish = app::wish_of(flags);
  std::string folder;
  if (fetch) {
    TERN_ASSIGN_OR_RETURN(folder, app::obtain_folder(wish, environment));
  } else {
    folder = app::find_folder(wish.name, environment, wish.revision);
  }
  return app::read_model_facts(folder, flags);
}

Expected<app::Settings> checked(Expected<app::Settings> settings) {
  if (settings.ok() && !settings->model.folder.empty() && settings->tokenizer_folder.empty()) {
    return make_error(ErrorCode::kNotFound,
                      fmt::format("there is no tokenizer folder {}", settings->flags.text("tokenizer")));
  }
  return settings;
}

// PaddleNLP's front beside the OpenAI port: flags rule the engine, variables the front, ports as start_server's.
Expected<app::Settings> with_paddlenlp(app::FlagSet flags) {
  const auto pairs = app::script_environment(Environment::of_process(), "");
  TERN_ASSIGN_OR_RETURN(Environment environment, app::paddlenlp_environment(pairs));
  TERN_ASSIGN_OR_RETURN(const app::ModelFacts facts, read_facts(flags, environment, !flags.boolean("dry-run")));
  TERN_ASSIGN_OR_RETURN(app::PaddleNlp p, app::resolve_paddlenlp(environment, {{}, facts.max_position_embeddings}));
  // Only what was set counts as given: the rest is the script's.
  TERN_ASSIGN_OR_RETURN(environment, app::paddlenlp_environment(Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(app::Settings s, app::resolve(std::move(flags), std::move(environment), facts, std::move(p)));
  auto& front = *s.serve.paddlenlp;
  front.seq_len_limit = std::min(front.seq_len_limit, s.serve.max_model_len);
  front.dec_len_limit = std::min(front.dec_len_limit, s.serve.max_model_len);
  return s;
}

// A model that is named is fetched before its files are read.
Status fetch_model(const Environment& environment) {
  const std::string name = environment.text("model_name");
  if (name.empty()) return {};
  app::DownloadPlan plan = app::download_plan(environment, name);
  const int64_t nodes = environment.integer("MP_NNODE");
  plan.part = app::download_part(nodes, environment.text("POD_0_IP") == environment.text("HOST_IP"));
  plan.folder = environment.text("MODEL_DIR");
  return app::download(plan);
}

Expected<app::Settings> paddlenlp_alone_settings(app::FlagSet flags) {
  if (flags.given("port")) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "--port is of the OpenAI front: SERVICE_HTTP_PORT names this one's port (tern serve --paddlenlp has "
        "both)",
        "port");
  }
  TERN_ASSIGN_OR_RETURN(Environment environment, app::paddlenlp_environment(Environment::of_process()));
  if (!flags.boolean("dry-run")) TERN_RETURN_IF_ERROR(fetch_model(environment));
  // Where the model lies is needed before its files can change the rest.
  TERN_ASSIGN_OR_RETURN(const app::PaddleNlpFolder folder, app::paddlenlp_folder(environment));
  if (!flags.given("model")) flags.set("model", json::Value(folder.path), app::Source::kEnvironment);
  if (!flags.given("model-config-name")) {
    flags.set("model-config-name", json::Value(folder.config_name), app::Source::kEnvironment);
  }
  TERN_ASSIGN_OR_RETURN(const app::ModelFacts facts, read_facts(flags, environment, !flags.boolean("dry-run")));
  TERN_ASSIGN_OR_RETURN(const app::PaddleNlpModel model,
                        paddlenlp_model(facts.folder, facts, flags.text("model-config-name")));
  TERN_ASSIGN_OR_RETURN(app::PaddleNlp p, app::resolve_paddlenlp(environment, model));
  app::apply_paddlenlp(p, flags, environment);
  return app::resolve(std::move(flags), std::move(environment), facts, std::move(p), true);
}

}  // namespace

Expected<app::Settings> serve_settings(app::FlagSet flags, bool paddlenlp_alone) {
  if (paddlenlp_alone) return checked(paddlenlp_alone_settings(std::move(flags)));
  if (flags.boolean("paddlenlp")) return checked(with_paddlenlp(std::move(flags)));
  TERN_ASSIGN_OR_RETURN(Environment environment, Environment::from(Environment::of_process()));
  TERN_ASSIGN_OR_RETURN(app::ModelFacts facts, read_facts(flags, environment, false));
  if (facts.folder.empty() && !flags.boolean("dry-run")) {
    // Wrong flags are told before gigabytes are fetched.
    if (const auto early = app::resolve(flags, environment, facts); !early.ok()) return early.error();
    TERN_ASSIGN_OR_RETURN(facts, read_facts(flags, environment, true));
  }
  return checked(app::resolve(std::move(flags), std::move(environment), facts));
}

json::Object paddlenlp_columns(const app::Settings& settings) {
  const auto column = [&](const Environment::Pairs& pairs) -> json::Value {
    auto environment = app::paddlenlp_environment(pairs);
    if (!environment.ok()) return json::Value(environment.error().message);
    auto model = paddlenlp_model(settings.model.folder, settings.model, settings.flags.text("model-config-name"));
    if (!model.ok()) return json::Value(model.error().message);
    auto resolved = app::resolve_paddlenlp(*environment, *model);
    if (!resolved.ok()) return json::Value(resolved.error().message);
    return app::describe_paddlenlp(*resolved);
  };
  const auto own = Environment::of_process();
  return {{"serve-paddlenlp", column(own)}, {"start_server", column(app::script_environment(own, ""))}};
}

}  // namespace tern::cli
