#include "bench/eval/held_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>

namespace tern::bench {
namespace {

constexpr size_t kMaxLine = size_t{256} << 20;

Expected<Question> read_question(const json::Object& object) {
  const auto wrong = [](const char* what) { return make_error(ErrorCode::kCorrupt, what); };
  Question question;
  TERN_ASSIGN_OR_RETURN(const auto answer, json::get_string(object, "answer"));
  if (!answer) return wrong("no answer");
  question.answer = *answer;
  TERN_ASSIGN_OR_RETURN(const auto image, json::get_string(object, "image"));
  question.picture = image.has_value();
  TERN_ASSIGN_OR_RETURN(const auto group, json::get_string(object, question.picture ? "row" : "task"));
  question.group = group.value_or("all");
  if (!question.picture) {
    const json::Value* messages = json::find(object, "messages");
    if (messages == nullptr || !messages->is_array()) return wrong("neither image nor messages");
    question.messages = messages->get_array();
    return question;
  }
  TERN_ASSIGN_OR_RETURN(const auto prompt, json::get_string(object, "prompt"));
  const std::string url = fmt::format("data:image/{};base64,{}", image->starts_with("/9j/") ? "jpeg" : "png", *image);
  question.messages.push_back(
      json::Object{{"role", "user"},
                   {"content", json::Array{json::Object{{"type", "image_url"}, {"image_url", {{"url", url}}}},
                                           json::Object{{"type", "text"}, {"text", prompt.value_or("OCR:")}}}}});
  question.max_tokens = static_cast<int>(question.answer.size()) + 100;
  return question;
}

Expected<std::string> ask(const EvalServer& server, const Question& question) {
  const json::Object body{{"model", server.model},
                          {"messages", question.messages},
                          {"temperature", 0},
                          {"max_tokens", question.max_tokens},
                          {"skip_special_tokens", false}};
  std::string answer;
  const client::HttpCall call{
      .path = "/chat/completions", .body = json::dump(body), .api_key = server.key, .ca_file = server.ca_file};
  TERN_ASSIGN_OR_RETURN(const int status, client::http_call(server.url, call, [&](std::string_view piece) {
                          answer += piece;
                          return answer.size() < (size_t{64} << 20);
                        }));
  if (status != 200)
    return make_error(ErrorCode::kUnavailable, fmt::format("status {}: {}", status, answer.substr(0, 300)));
  TERN_ASSIGN_OR_RETURN(const json::Value value, json::parse(answer));
  boost::system::error_code error;
  const json::Value* text = value.find_pointer("/choices/0/message/content", error);
  if (text == nullptr) return make_error(ErrorCode::kUnavailable, "the server's answer has no message");
  return text->is_string() ? std::string(text->get_string()) : std::string();
}

// Runs of blanks count as one, blanks at the ends of lines and empty lines as none.
std::string normalise(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string joined;
    for (std::string word; words >> word;) joined += (joined.empty() ? "" : " ") + word;
    if (!joined.empty()) out += (out.empty() ? "" : "\n") + joined;
  }
  return out;
}

std::vector<std::string_view> characters(const std::string& text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
    out.push_back(std::string_view(text).substr(at, end - at));
    at = end;
  }
  return out;
}

// Characters inserted, deleted and replaced.
int64_t distance(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t before = std::exchange(row[0], static_cast<int64_t>(i) + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t replaced = before + (a[i] == b[j] ? 0 : 1);
      before = row[j + 1];
      row[j + 1] = std::min({replaced, before + 1, row[j] + 1});
    }
  }
  return row.back();
}

struct Row {
  int64_t count = 0, characters = 0, errors = 0, exact = 0;
};
double share(int64_t part, int64_t all) { return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all); }

}  // namespace

Expected<std::vector<Question>> read_questions(const std::vector<std::string>& paths, int limit) {
  std::vector<Question> questions;
  std::map<std::string, int> counts;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    if (!file) return make_error(ErrorCode::kNotFound, fmt::format("{} cannot be read", path), "held-out");
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.empty()) continue;
      const auto corrupt = [&](const std::string& what) {
        return make_error(ErrorCode::kCorrupt, fmt::format("{}: line {}: {}", path, number, what), "held-out");
      };
      auto value = json::parse(line, {.max_bytes = kMaxLine});
      if (!value.ok()) return corrupt(value.error().message);
      if (!value->is_object()) return corrupt("no JSON object");
      auto question = read_question(value->get_object());
      if (!question.ok()) return corrupt(question.error().message);
      if (limit > 0 && ++counts[question->group] > limit) continue;
      questions.push_back(std::move(*question));
    }
  }
  if (questions.empty()) return make_error(ErrorCode::kInvalidArgument, "--held-out: no questions", "held-out");
  return questions;
}

Expected<std::vector<std::string>> ask_all(const EvalServer& server, const std::vector<Question>& questions,
                                           int together) {
  std::vector<std::string> answers(questions.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::optional<Error> failure;
  const auto work = [&] {
    for (size_t i; !stop && (i = next.fetch_add(1)) < questions.size();) {
      auto answer = ask(server, questions[i]);
      if (answer.ok()) {
        answers[i] = std::move(*answer);
        continue;
      }
      std::lock_guard lock(mutex);
      if (!failure) failure = answer.error();
      stop = true;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < together; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (failure) return *failure;
  return answers;
}

json::Object score(const std::vector<Question>& questions, const std::vector<std::string>& answers) {
  std::map<std::string, Row> pictures, texts;
  std::vector<std::string> picture_order, text_order;
  for (size_t i = 0; i < questions.size(); ++i) {
    const Question& question = questions[i];
    auto& rows = question.picture ? pictures : texts;
    if (!rows.contains(question.group)) (question.picture ? picture_order : text_order).push_back(question.group);
    Row& row = rows[question.group];
    ++row.count;
    if (!question.picture) {
      row.exact += question.answer == answers[i] ? 1 : 0;
      continue;
    }
    const std::string wanted = normalise(question.answer), got = normalise(answers[i]);
    const auto letters = characters(wanted);
    row.characters += static_cast<int64_t>(letters.size());
    row.errors += distance(letters, characters(got));
    row.exact += wanted == got ? 1 : 0;
  }
  json::Object out;
  json::Object rows, tasks;
  for (const std::string& name : picture_order) {
    const Row& row = pictures[name];
    rows[name] = json::Object{{"pictures", row.count},
                              {"characters", row.characters},
                              {"errors", row.errors},
                              {"error_rate", share(row.errors, row.characters)},
                              {"exact", share(row.exact, row.count)}};
  }
  Row all;
  for (const std::string& name : text_order) {
    const Row& row = texts[name];
    tasks[name] = json::Array{row.exact, row.count};
    all.exact += row.exact, all.count += row.count;
  }
  if (!rows.empty()) out["pictures"] = std::move(rows);
  if (!tasks.empty())
    out["text"] = json::Object{{"exact_match", share(all.exact, all.count)}, {"per_task", std::move(tasks)}};
  return out;
}

std::string score_text(const json::Object& scores) {
  std::string out;
  if (const json::Value* rows = json::find(scores, "pictures")) {
    out += fmt::format("{:<12}{:>9}{:>12}{:>8}{:>12}{:>8}\n", "row", "pictures", "characters", "errors", "error rate",
                       "exact");
    for (const auto& [name, row] : rows->get_object()) {
      const auto number = [&row = row](const char* key) { return row.at(key).to_number<double>(); };
      out += fmt::format("{:<12}{:>9.0f}{:>12.0f}{:>8.0f}{:>11.2f}%{:>7.1f}%\n", std::string(name), number("pictures"),
                         number("characters"), number("errors"), 100 * number("error_rate"), 100 * number("exact"));
    }
  }
  if (const json::Value* text = json::find(scores, "text")) {
    out += fmt::format("text tasks: {:.2f}% exact\n", 100 * text->at("exact_match").to_number<double>());
    for (const auto& [name, row] : text->at("per_task").get_object()) {
      out += fmt::format("{:<12}{:>9} of {}\n", std::string(name), row.at(0).to_number<int64_t>(),
                         row.at(1).to_number<int64_t>());
    }
  }
  return out;
}

}  // namespace tern::bench
