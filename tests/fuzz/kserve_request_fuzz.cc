// A request over KServe: the count of its fields, what it must be, and the payload in its input, down to an ask.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "serve/kserve/infer.h"
#include "serve/kserve/wire.h"
#include "serve/native/payload.h"

namespace {

using namespace tern;

// Pieces of the input, each with its length in front.
class Pieces {
 public:
  explicit Pieces(std::string_view bytes) : rest_(bytes) {}
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto b = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return b;
  }
  std::string_view text() {
    const size_t size = byte();
    const std::string_view out = rest_.substr(0, size);
    rest_.remove_prefix(out.size());
    return out;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

void payload(std::string_view text) {
  auto body = json::parse(text, {.max_bytes = 1u << 20, .max_depth = 64, .max_nodes = 1u << 16});
  if (!body.ok()) return;
  auto read = serve::native::read_payload(*std::move(body));
  if (auto* found = std::get_if<serve::native::Payload>(&read)) {
    [[maybe_unused]] const auto request = serve::native::take_payload(*found);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Any bytes of a message, and more fields than allowed are never taken.
  if (serve::kserve::few_fields(bytes, 3) && !serve::kserve::few_fields(bytes, 4)) std::abort();
  payload(bytes);
  std::string ascii;
  serve::kserve::append_ascii(ascii, bytes);
  for (const char c : ascii) {
    if ((static_cast<unsigned char>(c) & 0x80) != 0) std::abort();
  }
  [[maybe_unused]] const auto address = serve::kserve::address_of(bytes);

  Pieces pieces(bytes);
  const uint8_t form = pieces.byte();
  const std::vector<int64_t> shape(form & 3, form >> 6);
  const std::vector<std::string_view> contents((form >> 2) & 1, bytes);
  std::vector<serve::kserve::Parameter> parameters;
  std::vector<serve::kserve::InputTensor> inputs;
  std::vector<std::string_view> outputs, raw;
  for (int i = pieces.byte() & 3; i > 0; --i) {
    const auto kind = static_cast<serve::kserve::Parameter::Kind>(pieces.byte() % 6);
    parameters.push_back({.name = pieces.text(), .kind = kind, .flag = true});
  }
  for (int i = pieces.byte() & 3; i > 0; --i) {
    inputs.push_back({.name = pieces.text(),
                      .datatype = pieces.text(),
                      .shape = shape,
                      .has_contents = (form & 8) != 0,
                      .contents = contents});
  }
  if ((form & 16) != 0) outputs.push_back(pieces.text());
  const std::string_view model = pieces.text(), version = pieces.text(), id = pieces.text();
  if ((form & 32) != 0) raw.push_back(pieces.rest());
  const auto read =
      serve::kserve::read_infer({model, version, id, parameters, inputs, outputs, raw}, (form & 128) == 0, {});
  if (const auto* text = std::get_if<std::string_view>(&read)) payload(*text);
  return 0;
}
