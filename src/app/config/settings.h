// Flags, environment and model folder resolved into the values the rooms below take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/access/access.h"
#include "app/config/device_settings.h"
#include "app/config/model_facts.h"
#include "app/flags/environment.h"
#include "app/flags/flag_set.h"
#include "app/paddlenlp/paddlenlp.h"
#include "base/error.h"
#include "base/log.h"
#include "content/media/service/media_service.h"
#include "engine/engine.h"
#include "model/loader.h"
#include "serve/config.h"

namespace tern::app {

struct LogSettings {
  std::string folder = "log";
  LogLevel level = LogLevel::kInfo;
  int backup_days = 7;
  bool scheduler_line = true;
  double scheduler_interval = 5;  // seconds
};

// Where spans of requests go (FD_TRACE otel or all).
struct SpanSettings {
  bool wanted = false;
  std::string endpoint;              // OTLP over HTTP; "": the console
  std::vector<std::string> headers;  // "name: value"
  int delay_ms = 500;                // between two calls
  int batch = 64;                    // requests of a call, at most
  std::string service = "FastDeploy", host = "localhost";
};

// Pictures and videos. Of use only for a model that has a tower and is deployed with it.
struct MediaSettings {
  bool wanted = false;            // the model has a tower, and --deploy-modality is not "text"
  json::Object processor_kwargs;  // --mm-processor-kwargs
  content::MediaOptions options;  // all but the profile
  int64_t encoder_cache_tokens = 0;
};

// Ranks that share the model (--tensor-parallel-size).
struct RankSettings {
  int count = 1;
  bool expert_parallel = false;  // whole experts instead of parts of each
  bool forced = false;           // TERN_TEST_RANKS: on a CPU with fewer cores, too
  bool optional = false;         // MP_NUM asks for them: one runs on fewer GPUs, too
};

// Engines with a copy of the model each (--data-parallel-size).
struct DataParallelSettings {
  int size = 1;              // in all
  int first = 0, count = 1;  // those of this process: all, or the one that --local-data-parallel-id names
};

struct Settings {
  FlagSet flags;  // resolved
  Environment environment;
  ModelFacts model;
  std::string tokenizer_folder;  // "" when there is none on this machine
  std::string chat_template;     // --chat-template
  DeviceSettings device;
  RankSettings ranks;
  DataParallelSettings data_parallel;
  model::LoadOptions load;
  engine::EngineConfig engine;
  serve::ServeConfig serve;
  Access access;
  MediaSettings media;
  LogSettings log;
  SpanSettings spans;
  std::string trace;                               // --trace; "": none
  std::string reasoning_parser, tool_call_parser;  // "": none
  std::string weights_root;                        // --weights-root; "": none
  std::string scripted;                            // --scripted; "": the model answers
  double drain_seconds = 0;
  std::optional<PaddleNlp> paddlenlp;  // the PaddleNLP front
  bool exit_with_stdin = false;        // --exit-with-stdin
  bool openai_port = true;             // --port; not with `tern serve-paddlenlp`
  std::vector<std::string> inert;      // flags and variables that --allow-inert-flags lets pass
  std::vector<std::string> warnings;   // one line each
};

// Derives what the user left open, checks everything and fills the rooms' values. Only what the user gave can be wrong.
// Errors: one sentence, with the flag or variable in `param`.
// `paddlenlp`: opens that front too, or, with `alone`, in place of --port.
Expected<Settings> resolve(FlagSet flags, Environment environment, const ModelFacts& model,
                           std::optional<PaddleNlp> paddlenlp = {}, bool alone = false);

// Sets derived values so that they are valid together with what was given. Part of resolve().
void derive(FlagSet& flags, const Environment& environment, const ModelFacts& model,
            std::vector<std::string>& warnings);
// Every rule of fastdeploy.md 1.10 and of Tern's own flags. Part of resolve().
Status validate(const FlagSet& flags, const Environment& environment);
// Limits and sources of media, from flags; nothing of it is read by a model of text.
MediaSettings media_settings(const FlagSet& flags, const ModelFacts& model);
Status validate_media(const FlagSet& flags);
// The line that names media flags given for a model that has no use for them; "" when there are none.
std::string idle_media_line(const FlagSet& flags, const ModelFacts& model);

// The resolved configuration: {"version", "flags", "sources", "environment", "model", "inert", "warnings"} and what
// describe_parts() adds; keys and passwords are replaced by "***".
json::Object describe(const Settings& settings);
// "scheduler", "engine", "weights", "device", "media", "server", "limits", "log": what the parts of the program take.
void describe_parts(const Settings& settings, json::Object& out);

}  // namespace tern::app
