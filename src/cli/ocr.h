// The pieces of `tern ocr`: a picture as a chat request, and what comes back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "app/config/settings.h"
#include "base/error.h"

namespace tern::cli {

struct OcrAnswer {
  std::string text, finish_reason;
  int64_t prompt_tokens = 0, image_tokens = 0, completion_tokens = 0;
  double seconds = 0;
};

// A greedy chat request with the file as a data: URL; a file that is no picture of a known kind goes as it is, the
// server says what is wrong with it. `max_tokens` 0: as many as fit.
std::string ocr_body(std::string_view file, const std::string& prompt, const std::string& model, int max_tokens);
// kUnavailable with the server's own words for any status but 200.
Expected<OcrAnswer> parse_ocr_answer(int status, std::string_view body);

// models/tern-demo-ocr beside the program, above its build folder or in the working folder, or the packed folder's
// model;
// "" when it is nowhere.
std::string shipped_model();
// Settings of a server for this process alone.
Expected<app::Settings> ocr_settings(const std::string& model, const std::string& api_key, int parallel,
                                     const std::string& device = "auto");

// RFC 4648, with padding.
std::string encode_base64(std::string_view bytes);

}  // namespace tern::cli
