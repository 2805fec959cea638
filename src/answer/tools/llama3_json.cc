// llama3_json (models-other.md 13.2, 15): [<|python_tag|>]{"name": ..., "parameters": ...}, several separated by ';'.
// An answer that begins otherwise has no calls. Text beside calls is dropped.
#include "answer/matcher.h"
#include "answer/tools/format.h"
#include "answer/tools/parts/call_object.h"
#include "answer/tools/parts/grammar_text.h"

namespace tern::answer {
namespace {

constexpr std::string_view kTag = "<|python_tag|>";
constexpr std::string_view kMarks[] = {kTag};

class Llama3Json final : public ToolScanner {
 public:
  explicit Llama3Json(IdSource ids) : ToolScanner({.drop_text_after_first_call = true}, std::move(ids)) {}

 private:
  enum State : uint8_t {
    kStart,   // white space, the tag or '{'
    kObject,  // in the object; until the call has begun all is held
    kNext,    // after a call: ';' or ','
    kRaw,     // malformed, the name known: verbatim to the end
    kPlain,   // content to the end
  };

  void step(char c) override;
  void end() override;
  size_t held_elsewhere() const override { return 0; }
  void in_start(char c);
  void in_object(char c);
  void plain(char c);

  State state_ = kStart;
  bool open_ = false;
  bool tagged_ = false;  // the tag came before this object
  Matcher tag_{kTag};
  CallObject object_{true};
};

void Llama3Json::plain(char c) {
  release();
  state_ = kPlain;
  content({&c, 1});
}

void Llama3Json::in_start(char c) {
  const bool in_tag = !tag_.held().empty();
  if (is_space(c) && !in_tag) {
    if (!hold(c)) plain(c);
    return;
  }
  if (c == '{' && !in_tag) {
    object_.reset();
    open_ = false;
    state_ = kObject;
    return in_object(c);
  }
  const Matcher::Step found = tagged_ ? Matcher::Step::kNo : tag_.put(c);
  if (found == Matcher::Step::kNo || !hold(c)) return plain(c);
  tagged_ = tagged_ || found == Matcher::Step::kFull;
}

void Llama3Json::in_object(char c) {
  const CallObject::Step result = object_.step(c);
  if (!object_.begun()) {
    if (result != CallObject::Step::kMore || !hold(c)) plain(c);
    return;
  }
  if (!open_) begin_call(object_.name());
  open_ = true;
  arguments(object_.arguments());
  object_.arguments().clear();
  if (result == CallObject::Step::kError) {
    arguments({&c, 1});
    state_ = kRaw;
  } else if (result == CallObject::Step::kEnd) {
    end_call(object_.has_arguments());
    state_ = kNext;
  }
}

void Llama3Json::step(char c) {
  switch (state_) {
    case kStart:
      return in_start(c);
    case kObject:
      return in_object(c);
    case kNext:
      if (is_space(c)) return;
      tagged_ = false;
      tag_.reset();
      state_ = c == ';' || c == ',' ? kStart : kPlain;
      if (state_ == kPlain && (c == '{' || c == kTag[0])) {  // not separated
        state_ = kStart;
        in_start(c);
      }
      return;
    case kRaw:
      return arguments({&c, 1});
    case kPlain:
      return content({&c, 1});
  }
}

void Llama3Json::end() {
  if (state_ == kRaw || (state_ == kObject && open_)) {
    end_call(false);
  } else {
    release();
  }
  state_ = kPlain;
}

std::string grammar(const GrammarAsk& ask) {
  GrammarText text(ask);
  const std::string call = text.json_calls("parameters");
  // The model decides by itself whether the tag stands before its calls.
  return text.calls({.begin = ask.after_trigger ? "" : GrammarText::group(text.mark(kTag), "?"),
                     .body = call,
                     .between = text.literal("; "),
                     .begin_once = true});
}

}  // namespace

const ToolFormat kLlama3Json = {
    .name = "llama3_json",
    .start_marks = kMarks,
    .trigger = kTag,
    .marks = kMarks,
    .scanner = [](std::shared_ptr<const Tools>, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<Llama3Json>(std::move(ids));
    },
    .grammar = grammar,
};

}  // namespace tern::answer
