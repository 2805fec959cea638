// Accuracy on files of questions with their right answers, such as models/heldout_sample.jsonl.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "client/http_client.h"
#include "json/json.h"

namespace tern::bench {

// A picture, or a text task.
struct Question {
  std::string group;  // "row" of pictures, "task" of texts
  json::Array messages;
  std::string answer;
  int max_tokens = 128;
  bool picture = false;
};

// JSON lines of {"row", "prompt", "image" (base64), "answer"} or {"task", "messages", "answer"}. `limit`: of each
// group; 0: all. Errors: kNotFound, kCorrupt with the line's number.
Expected<std::vector<Question>> read_questions(const std::vector<std::string>& paths, int limit);

struct EvalServer {
  client::Url url;  // with /v1
  std::string key, ca_file, model = "default";
};
// The answers in the questions' order, `together` at a time. Errors: the first failure ends it.
Expected<std::vector<std::string>> ask_all(const EvalServer& server, const std::vector<Question>& questions,
                                           int together);

// {"pictures": {row: {pictures, characters, errors, error_rate, exact}}, "text": {exact_match, per_task}}. Characters
// are those inserted, deleted and replaced; blanks at the ends of lines do not count.
json::Object score(const std::vector<Question>& questions, const std::vector<std::string>& answers);
std::string score_text(const json::Object& scores);

}  // namespace tern::bench
