// `tern bench throughput`: all prompts at once through the engine, without a server.
#include <fmt/format.h>

#include "app/options.h"
#include "app/report.h"
#include "base/clock.h"
#include "bench/bench.h"
#include "bench/engine/engine_bench.h"
#include "bench/requests/dataset.h"

namespace tern::bench {
namespace {

struct ThroughputOptions {
  std::string backend = "fastdeploy", dataset_name = "random", dataset_path, output_json, lora_path, hf_subset,
              hf_split;
  int input_len = 0, output_len = 0, prefix_len = 0, n = 1, prompts = 50, hf_batch = 0;
  double range_ratio = 0;
  bool disable_detokenize = false, one_process = false, remote_code = false;
  std::vector<std::string> flags;
  bool random() const { return dataset_name == "random"; }
};

Error wrong(std::string what, const char* flag) {
  return make_error(ErrorCode::kInvalidArgument, std::move(what), flag);
}

Status validate(const ThroughputOptions& o) {
  if (o.backend == "hf" || o.hf_batch > 0)
    return wrong("--backend hf and --hf-max-batch-size: the engine measures itself alone", "backend");
  if (!o.hf_subset.empty() || !o.hf_split.empty())
    return wrong("--hf-subset and --hf-split: data sets are local files", "hf-subset");
  if (!o.lora_path.empty()) return wrong("--lora-path: this build loads no adapters", "lora-path");
  if (o.remote_code) return wrong("--trust-remote-code: no Python code runs in this program", "trust-remote-code");
  if (o.random() && !o.dataset_path.empty())
    return wrong("--dataset-path needs --dataset-name EBChat, EB or sharegpt", "dataset-path");
  if (!o.random() && o.dataset_path.empty())
    return wrong(fmt::format("--dataset-name {} needs --dataset-path", o.dataset_name), "dataset-path");
  if (o.random() && o.input_len == 0) return wrong("--input-len is needed for random prompts", "input-len");
  if (o.random() && o.backend == "fastdeploy-chat")
    return wrong("--backend fastdeploy-chat needs a data set: random prompts are no messages", "backend");
  if (!o.random() && (o.input_len > 0 || o.prefix_len > 0 || o.range_ratio > 0))
    return wrong("--input-len, --prefix-len and --random-range-ratio are for random prompts", "input-len");
  return {};
}

// The prompt of a chat as a server renders it. Errors: pictures in messages, no template.
Expected<std::vector<int32_t>> render(const EngineBench& bench, json::Array messages) {
  if (bench.text.chat_template == nullptr)
    return wrong("--backend fastdeploy-chat needs a model with a chat template", "backend");
  for (json::Value& message : messages) {
    json::Object* object = message.if_object();
    const json::Value* content = object != nullptr ? json::find(*object, "content") : nullptr;
    if (content == nullptr || !content->is_array()) continue;
    std::string text;
    for (const json::Value& part : content->get_array()) {
      const json::Object* of = part.if_object();
      const json::Value* words = of != nullptr ? json::find(*of, "text") : nullptr;
      if (words == nullptr || !words->is_string())
        return wrong("a message holds more than text: tern bench serve sends pictures", "dataset-path");
      text += std::string_view(words->get_string());
    }
    (*object)["content"] = text;
  }
  const json::Value list(std::move(messages));
  const content::RenderInput input{.messages = &list};
  TERN_ASSIGN_OR_RETURN(const std::string variables,
                        content::render_variables(input, bench.text.tokenizer->special_text()));
  TERN_ASSIGN_OR_RETURN(const std::string prompt,
                        bench.text.chat_template->render(variables, content::local_unix_seconds()));
  return bench.text.tokenizer->encode(prompt, false);
}

Expected<app::OfflinePrompt> prompt_of(const ThroughputOptions& o, const EngineBench& bench, Sample sample) {
  app::OfflinePrompt prompt{.ids = std::move(sample.ids), .ignore_eos = o.random()};
  if (!o.random()) {
    if (bench.text.tokenizer == nullptr) return wrong("a data set needs the tokenizer files of the model", "model");
    if (o.backend == "fastdeploy-chat") {
      if (sample.messages.empty()) sample.messages.push_back(json::Object{{"role", "user"}, {"content", sample.text}});
      TERN_ASSIGN_OR_RETURN(prompt.ids, render(bench, std::move(sample.messages)));
    } else {
      TERN_ASSIGN_OR_RETURN(prompt.ids, bench.text.tokenizer->encode(last_text(sample), true));
    }
    if (prompt.ids.empty()) return wrong("a request of the data set has no text", "dataset-path");
  }
  const int room = bench.max_model_len() - static_cast<int>(prompt.ids.size());
  prompt.new_tokens = sample.output_len > 0 ? sample.output_len : room;
  if (prompt.new_tokens > room || room < 1) {
    return wrong(fmt::format("a prompt of {} tokens and an answer of {} are more than --max-model-len {}",
                             prompt.ids.size(), sample.output_len, bench.max_model_len()),
                 "max-model-len");
  }
  return prompt;
}

Expected<std::vector<app::OfflinePrompt>> make_prompts(const ThroughputOptions& o, const EngineBench& bench) {
  std::vector<Sample> samples;
  const auto seed = static_cast<uint64_t>(bench.settings.flags.integer("seed"));
  if (!o.random()) {
    TERN_ASSIGN_OR_RETURN(samples, read_samples({.name = o.dataset_name,
                                                 .path = o.dataset_path,
                                                 .count = o.prompts,
                                                 .seed = seed,
                                                 .output_len = o.output_len,
                                                 .tokenizer = bench.text.tokenizer.get()}));
  }
  constexpr int kOutput = 128;  // as the published benchmark
  for (int i = 0; o.random() && i < o.prompts; ++i) {
    samples.push_back(random_sample({.input_len = o.input_len,
                                     .output_len = o.output_len > 0 ? o.output_len : kOutput,
                                     .prefix_len = o.prefix_len,
                                     .range_ratio = o.range_ratio,
                                     .vocab = bench.offline->model().info().vocab_size,
                                     .seed = seed},
                                    i));
  }
  std::vector<app::OfflinePrompt> prompts;
  for (Sample& sample : samples) {
    TERN_ASSIGN_OR_RETURN(const app::OfflinePrompt prompt, prompt_of(o, bench, std::move(sample)));
    prompts.insert(prompts.end(), static_cast<size_t>(o.n), prompt);
  }
  return prompts;
}

Status run(const ThroughputOptions& o) {
  TERN_RETURN_IF_ERROR(validate(o));
  TERN_ASSIGN_OR_RETURN(const auto bench, load_engine_bench(o.flags, true));
  TERN_ASSIGN_OR_RETURN(const auto prompts, make_prompts(o, *bench));
  const int64_t start = monotonic_ns();
  int64_t output = 0, input = 0;
  const auto runs = bench->offline->run(prompts, plain_sampling(), [&](const app::OfflineRun& run) {
    output += static_cast<int64_t>(run.tokens.size());
    if (!o.disable_detokenize) detokenize(*bench, run);
  });
  const double seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  if (!runs.ok()) return runs.error();
  for (size_t i = 0; i < prompts.size(); i += static_cast<size_t>(o.n))
    input += static_cast<int64_t>(prompts[i].ids.size());
  const auto requests = static_cast<double>(prompts.size()) / o.n, tokens = static_cast<double>(input + output);
  fmt::print("Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n", requests / seconds,
             tokens / seconds, static_cast<double>(output) / seconds);
  fmt::print("Total num prompt tokens:  {}\nTotal num output tokens:  {}\n", input, output);
  if (o.output_json.empty()) return {};
  return write_result(o.output_json, "output-json",
                      {{"elapsed_time", seconds},
                       {"num_requests", static_cast<int64_t>(requests)},
                       {"total_num_tokens", input + output},
                       {"requests_per_second", requests / seconds},
                       {"tokens_per_second", tokens / seconds}});
}

void add_options(app::Options& parser, ThroughputOptions& o) {
  parser.add_option("--backend", o.backend, "fastdeploy: texts; fastdeploy-chat: chats by the model's template")
      .capture_default_str()
      .one_of({"fastdeploy", "fastdeploy-chat", "hf"});
  parser.add_option("--dataset-name", o.dataset_name, "random prompts, or a file of --dataset-path")
      .capture_default_str()
      .one_of({"random", "EBChat", "EB", "sharegpt"});
  parser.add_option("--dataset-path,--dataset", o.dataset_path,
                    "EBChat: JSON lines of {\"messages\", \"max_tokens\"}; EB: of texts; sharegpt: conversations");
  parser.add_option("--input-len", o.input_len, "Tokens of a random prompt").range(1, 1 << 22);
  parser.add_option("--output-len", o.output_len, "Tokens of an answer, in place of the data set's; random: 128")
      .range(1, 1 << 22);
  parser.add_option("--prefix-len", o.prefix_len, "Further tokens in front, the same in all random prompts")
      .capture_default_str()
      .range(0, 1 << 22);
  parser.add_option("--random-range-ratio", o.range_ratio, "Lengths of random prompts and answers vary by this share")
      .capture_default_str()
      .range(0.0, 0.999);
  parser.add_option("--n", o.n, "Answers to each prompt").capture_default_str().range(1, 1024);
  parser.add_option("--num-prompts", o.prompts, "Prompts").capture_default_str().range(1, 10'000'000);
  parser.add_option("--output-json", o.output_json,
                    "File for elapsed_time, num_requests, total_num_tokens, requests_per_second, tokens_per_second");
  parser.add_flag("--disable-detokenize", o.disable_detokenize, "Makes no text of the answers");
  parser.add_flag("--disable-frontend-multiprocessing", o.one_process, "There is one process in any case");
  parser.add_option("--lora-path", o.lora_path, "Refused: this build loads no adapters");
  parser.add_option("--hf-max-batch-size", o.hf_batch, "Refused, as --backend hf: the engine measures itself alone");
  parser.add_option("--hf-subset", o.hf_subset, "Refused: data sets are local files");
  parser.add_option("--hf-split", o.hf_split, "Refused: data sets are local files");
  parser.add_flag("--trust-remote-code", o.remote_code, "Refused: no Python code runs in this program");
}

}  // namespace

int run_bench_throughput(const std::vector<std::string>& args) {
  app::Options parser(
      "Requests and tokens per second of the engine, without a server. Random answers have their full length, others "
      "end by themselves. Further flags are those of tern serve (--model and on; --seed is also that of the prompts)",
      "tern bench throughput");
  ThroughputOptions o;
  add_options(parser, o);
  parser.pass_on(o.flags);
  if (const auto status = app::parse_options(parser, args)) return *status;
  const Status status = run(o);
  return status.ok() ? 0 : app::report(status.error());
}

}  // namespace tern::bench
