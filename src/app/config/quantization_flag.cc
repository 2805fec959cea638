#include "app/config/quantization_flag.h"

#include "model/quantization.h"

namespace tern::app {

Expected<json::Value> quantization_value(const std::string& text) {
  json::Value value;
  if (text.starts_with("{")) {
    TERN_ASSIGN_OR_RETURN(value, json::parse(text));
  } else if (!text.empty()) {
    value = text;
  }
  if (const auto read = model::read_quantization(value, ""); !read.ok())
    return make_error(ErrorCode::kInvalidArgument, "--quantization " + read.error().message, "quantization");
  return value;
}

}  // namespace tern::app
