#include "sched/tests/script.h"

#include <charconv>
#include <functional>
#include <optional>
#include <sstream>

namespace tern::sched::testing {
namespace {

struct Field {
  const char* name;
  std::function<void(WorldConfig&, double)> set;
  std::function<double(const WorldConfig&)> get;
};

#define TERN_FIELD(NAME, MEMBER)                                                           \
  Field {                                                                                  \
    NAME, [](WorldConfig& c, double v) { c.MEMBER = static_cast<decltype(c.MEMBER)>(v); }, \
        [](const WorldConfig& c) { return static_cast<double>(c.MEMBER); }                 \
  }

const std::vector<Field>& config_fields() {
  static const std::vector<Field> fields = {
      TERN_FIELD("v1", sched.v1),
      TERN_FIELD("block_size", sched.block_size),
      TERN_FIELD("blocks", blocks),
      TERN_FIELD("seqs", sched.max_num_seqs),
      TERN_FIELD("budget", sched.max_num_batched_tokens),
      TERN_FIELD("len", sched.max_model_len),
      TERN_FIELD("chunked", sched.chunked_prefill),
      TERN_FIELD("prefix", sched.prefix_caching),
      TERN_FIELD("output", sched.output_caching),
      TERN_FIELD("prealloc", sched.prealloc_dec_block_slot_num_threshold),
      TERN_FIELD("enc_dec", sched.enc_dec_block_num),
      TERN_FIELD("reserve", sched.reserve_output_blocks),
      TERN_FIELD("decay", sched.reserve_decay),
      TERN_FIELD("reserve_min", sched.reserve_min),
      TERN_FIELD("save", sched.save_output_cache_for_preempted),
      TERN_FIELD("ratio", sched.kv_cache_ratio),
      TERN_FIELD("partial", sched.max_num_partial_prefills),
      TERN_FIELD("long_partial", sched.max_long_partial_prefills),
      TERN_FIELD("long_threshold", sched.long_prefill_token_threshold),
      TERN_FIELD("max_prefill", sched.max_prefill_num),
      TERN_FIELD("mm_whole", sched.disable_chunked_mm_input),
      TERN_FIELD("logit_rows", sched.max_logit_rows),
      TERN_FIELD("range_tokens", sched.max_range_tokens),
  };
  return fields;
}

template <class T>
T number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) throw Failure("not a number: " + std::string(text));
  return value;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// "a<by>b" as two strings.
std::pair<std::string, std::string> halves(const std::string& text, const std::string& by) {
  const size_t at = text.find(by);
  if (at == std::string::npos) throw Failure("expected '" + by + "' in '" + text + "'");
  return {text.substr(0, at), text.substr(at + by.size())};
}

std::vector<int32_t> parse_tokens(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const std::string& part : split(text, ',')) {
    if (part.find("..") != std::string::npos) {
      const auto [first, last] = halves(part, "..");
      for (auto id = number<int32_t>(first); id <= number<int32_t>(last); ++id) tokens.push_back(id);
    } else if (part.find('*') != std::string::npos) {
      const auto [id, times] = halves(part, "*");
      tokens.insert(tokens.end(), number<size_t>(times), number<int32_t>(id));
    } else {
      tokens.push_back(number<int32_t>(part));
    }
  }
  return tokens;
}

WorldConfig parse_config(const std::vector<std::string>& words) {
  WorldConfig config;
  for (size_t i = 1; i < words.size(); ++i) {
    const auto [name, value] = halves(words[i], "=");
    bool found = false;
    for (const Field& field : config_fields()) {
      if (field.name != name) continue;
      field.set(config, number<double>(value));
      found = true;
    }
    if (!found) throw Failure("unknown config field " + name);
  }
  return config;
}

NewSequence parse_add(const std::vector<std::string>& words) {
  NewSequence s;
  s.id = number<SeqId>(words.at(1));
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "nocache") {
      s.use_prefix_cache = false;
      continue;
    }
    if (words[i] == "score") {
      s.prompt_logit_rows = 1;
      continue;
    }
    const auto [name, value] = halves(words[i], "=");
    if (name == "prompt") {
      s.prompt = parse_tokens(value);
    } else if (name == "new") {
      s.max_new_tokens = number<int>(value);
    } else if (name == "whole") {
      const auto [begin, end] = halves(value, "-");
      s.unsplittable.emplace_back(number<int>(begin), number<int>(end));
    } else if (name == "key") {
      const auto [range, key] = halves(value, ":");
      const auto [begin, end] = halves(range, "-");
      s.extra_keys.push_back({number<int>(begin), number<int>(end), {number<uint64_t>(key), 0}});
    } else {
      throw Failure("unknown word " + words[i]);
    }
  }
  return s;
}

std::vector<Outcome> parse_outcomes(const std::vector<std::string>& words) {
  std::vector<Outcome> outcomes;
  for (size_t i = 1; i < words.size(); ++i) {
    std::string word = words[i];
    Outcome o;
    if (word.back() == '!') {
      o.finished = true;
      word.pop_back();
    }
    if (word.find('=') != std::string::npos) {
      const auto [id, count] = halves(word, "=");
      o.tokens = number<int>(count);
      word = id;
    }
    o.seq = number<SeqId>(word);
    outcomes.push_back(o);
  }
  return outcomes;
}

const char* code_text(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid";
    case ErrorCode::kTooLarge:
      return "too large";
    case ErrorCode::kResourceExhausted:
      return "exhausted";
    default:
      return "other";
  }
}

std::string stats_text(const SchedulerStats& s, const std::vector<std::string>& names) {
  const std::pair<const char*, uint64_t> values[] = {
      {"running", static_cast<uint64_t>(s.running)},
      {"waiting", static_cast<uint64_t>(s.waiting)},
      {"preempted", static_cast<uint64_t>(s.preempted_waiting)},
      {"free", static_cast<uint64_t>(s.free_blocks)},
      {"usable", static_cast<uint64_t>(s.usable_blocks)},
      {"total", static_cast<uint64_t>(s.total_blocks)},
      {"cached", static_cast<uint64_t>(s.cached_blocks)},
      {"prefill", static_cast<uint64_t>(s.prefill_blocks)},
      {"preemptions", s.preemptions},
      {"resumed", s.resumed},
      {"full_hits", s.full_hits},
      {"hits", s.prefix_hits},
      {"lookups", s.prefix_lookups},
      {"hit_tokens", s.prefix_hit_tokens},
      {"lookup_tokens", s.prefix_lookup_tokens},
  };
  std::string text;
  for (size_t i = 1; i < names.size(); ++i) {
    bool found = false;
    for (const auto& [name, value] : values) {
      if (names[i] != name) continue;
      if (!text.empty()) text += ' ';
      text += names[i] + "=" + std::to_string(value);
      found = true;
    }
    if (!found) throw Failure("unknown figure " + names[i]);
  }
  return text;
}

std::string numbers_text(std::span<const int32_t> values) {
  std::string text;
  for (int32_t v : values) {
    if (!text.empty()) text += ',';
    text += std::to_string(v);
  }
  return text;
}

// Carries out one command; returns what it prints, if it does.
std::optional<std::string> execute(std::optional<World>& world, const std::vector<std::string>& words) {
  const std::string& name = words[0];
  if (name == "config") {
    world.emplace(parse_config(words));
    return {};
  }
  if (!world) throw Failure("a script starts with config");
  if (name == "add") {
    const Status status = world->add(parse_add(words));
    if (status.ok()) return {};
    return std::string(code_text(status.error().code)) + ": " + status.error().message;
  }
  if (name == "abort") {
    world->abort(number<SeqId>(words.at(1)));
  } else if (name == "plan") {
    return plan_text(world->plan(), world->config().sched);
  } else if (name == "collect") {
    world->collect(parse_outcomes(words));
  } else if (name == "run") {
    for (int i = number<int>(words.at(1)); i > 0; --i) {
      world->plan();
      if (world->open() > 0) world->collect({});
    }
  } else if (name == "drain") {
    world->drain(10000, words.size() > 1 ? number<size_t>(words[1]) : 1);
  } else if (name == "blocks") {
    return numbers_text(world->scheduler().blocks(number<SeqId>(words.at(1))));
  } else if (name == "tokens") {
    return numbers_text(world->scheduler().tokens(number<SeqId>(words.at(1))));
  } else if (name == "stats") {
    return stats_text(world->scheduler().stats(), words);
  } else {
    throw Failure("unknown command " + name);
  }
  return {};
}

}  // namespace

std::string plan_text(const Plan& plan, const SchedulerConfig& config) {
  std::string text;
  const auto word = [&text](const std::string& w) {
    if (!text.empty()) text += ' ';
    text += w;
  };
  for (const PlanRow& row : plan.rows) {
    std::ostringstream w;
    w << row.seq << '@' << row.slot << ':' << row.first << '+' << row.count;
    if (row.previous_row >= 0) w << '<' << row.previous_row;
    if (row.samples) w << '*';
    if (row.logit_count > (row.samples ? 1 : 0)) w << '[' << row.logit_begin << '+' << row.logit_count << ']';
    word(w.str());
  }
  for (const Admission& a : plan.admitted) {
    word("admit");
    word(std::to_string(a.seq) + "=" + std::to_string(a.cached_tokens) + (a.resumed ? "r" : ""));
  }
  for (SeqId id : plan.preempted) {
    word("preempt");
    word(std::to_string(id));
  }
  if (plan.tokens > config.max_num_batched_tokens) {
    word("over");
    word(std::to_string(plan.tokens - config.max_num_batched_tokens));
  }
  return text.empty() ? "-" : text;
}

std::string config_text(const WorldConfig& config) {
  std::ostringstream out;
  out << "config";
  for (const Field& field : config_fields()) out << " " << field.name << "=" << field.get(config);
  return out.str();
}

std::string command_text(const Command& command) {
  std::string text;
  switch (command.kind) {
    case Command::kPlan:
      return "plan";
    case Command::kAbort:
      return "abort " + std::to_string(command.id);
    case Command::kCollect:
      text = "collect";
      for (const Outcome& o : command.outcomes) {
        text += " " + std::to_string(o.seq) + (o.tokens == 1 ? "" : "=" + std::to_string(o.tokens));
        if (o.finished) text += "!";
      }
      return text;
    case Command::kAdd:
      break;
  }
  const NewSequence& s = command.sequence;
  text =
      "add " + std::to_string(s.id) + " prompt=" + numbers_text(s.prompt) + " new=" + std::to_string(s.max_new_tokens);
  if (!s.use_prefix_cache) text += " nocache";
  if (s.prompt_logit_rows > 0) text += " score";
  for (const ExtraKey& key : s.extra_keys) {
    text += " key=" + std::to_string(key.begin) + "-" + std::to_string(key.end) + ":" + std::to_string(key.key[0]);
  }
  for (const auto& range : s.unsplittable) {
    text += " whole=" + std::to_string(range.first) + "-" + std::to_string(range.second);
  }
  return text;
}

std::string script_text(const WorldConfig& config, const std::vector<Command>& commands) {
  std::string text = config_text(config) + "\n";
  for (const Command& command : commands) text += command_text(command) + "\n";
  return text;
}

std::string run_script(const std::string& text) {
  std::optional<World> world;
  std::string result;
  std::istringstream in(text);
  int number_of_line = 0;
  for (std::string line; std::getline(in, line);) {
    ++number_of_line;
    if (line.starts_with("= ")) continue;  // written anew after the command before
    result += line + "\n";
    const std::vector<std::string> words = split(line.substr(0, line.find('#')), ' ');
    if (words.empty()) continue;
    try {
      const std::optional<std::string> printed = execute(world, words);
      if (printed) result += "= " + *printed + "\n";
    } catch (const std::exception& e) {
      throw Failure("line " + std::to_string(number_of_line) + " (" + line + "): " + e.what());
    }
  }
  return result;
}

}  // namespace tern::sched::testing
