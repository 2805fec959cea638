#include "app/flags/json_text.h"

namespace tern::app {
namespace {

class Writer {
 public:
  explicit Writer(int broken_levels) : broken_levels_(broken_levels) {}

  void write(const json::Value& value, int level) {
    if (const json::Object* object = value.if_object()) return write_object(*object, level);
    if (const json::Array* array = value.if_array()) return write_array(*array, level);
    if (const double* number = value.if_double()) return json::append_double(out_, *number);
    if (const auto* text = value.if_string()) return json::append_quoted(out_, *text);
    out_ += json::dump(value);
  }
  std::string take() { return std::move(out_); }

 private:
  void new_line(int level) {
    if (level >= broken_levels_) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(level) * 2, ' ');
  }

  void write_object(const json::Object& object, int level) {
    if (object.empty()) {
      out_ += "{}";
      return;
    }
    const bool broken = level < broken_levels_;
    const char* separator = "{";
    for (const auto& item : object) {
      out_ += separator;
      if (broken) {
        out_ += '\n';
        out_.append(static_cast<size_t>(level + 1) * 2, ' ');
      }
      json::append_quoted(out_, item.key());
      out_ += ": ";
      write(item.value(), level + 1);
      separator = broken ? "," : ", ";
    }
    new_line(level);
    out_ += '}';
  }

  void write_array(const json::Array& array, int level) {
    out_ += '[';
    for (size_t i = 0; i < array.size(); ++i) {
      if (i != 0) out_ += ", ";
      write(array[i], level + 1);
    }
    out_ += ']';
  }

  const int broken_levels_;
  std::string out_;
};

std::string written(const json::Value& value, int levels) {
  Writer writer(levels);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace

std::string json_line(const json::Value& value) { return written(value, 0); }
std::string json_page(const json::Value& value) { return written(value, 2); }

}  // namespace tern::app
