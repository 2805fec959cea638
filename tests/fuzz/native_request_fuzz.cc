// Bodies of PaddleNLP's native protocol, with and without HTTP's checks of types: whatever JSON says, it is refused or
// its lengths lie within the limits.
#include <cstdlib>
#include <string_view>

#include "json/json.h"
#include "serve/native/lengths.h"
#include "serve/native/request.h"

namespace {

void try_body(tern::json::Object body) {
  using namespace tern::serve;
  const auto messages = native::check_fields(body);
  if (!messages.empty()) {
    if (native::python_list(messages).size() < 4) std::abort();
    return;
  }
  const native::NativeRequest request = native::take_request(body);
  const PaddleNlpConfig config{.seq_len_limit = 256, .dec_len_limit = 128, .total_blocks = 64, .query_blocks = 8};
  for (const int64_t input : {1, 255, 256, 511, 512, 5000}) {
    const int64_t kept = native::kept_tokens(request, config, 512, input);
    if (kept < 1 || kept > input) std::abort();
    std::optional<std::string> refused;
    const auto lengths = native::settle_lengths(request, config, 512, kept, refused);
    if (refused) continue;
    if (lengths.max_dec_len < 1 || lengths.max_dec_len > 128 || kept + lengths.max_dec_len > 512) std::abort();
    if (lengths.min_dec_len < 1 || lengths.min_dec_len > lengths.max_dec_len) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tern::serve;
  const auto body =
      tern::json::parse({reinterpret_cast<const char*>(data), size}, {.max_bytes = 1 << 16, .max_depth = 16});
  if (!body.ok()) return 0;
  (void)native::is_native(*body);
  if (!body->is_object()) return 0;
  try_body(body->get_object());
  tern::json::Object typed = body->get_object();
  native::Faults faults;
  native::check_types(typed, faults);
  if (faults.empty()) try_body(std::move(typed));
  return 0;
}
