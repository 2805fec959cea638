// mistral, both forms: [TOOL_CALLS][{"name": ..., "arguments": ...}, ...] of older tokenizers and
// [TOOL_CALLS]name{...} or [TOOL_CALLS]name[CALL_ID]id[ARGS]{...} of newer ones, repeated. Text before the first mark
// is content, text after it is dropped.
#include "answer/matcher.h"
#include "answer/tools/format.h"
#include "answer/tools/parts/call_object.h"
#include "answer/tools/parts/grammar_text.h"

namespace tern::answer {
namespace {

constexpr std::string_view kCalls = "[TOOL_CALLS]", kArgs = "[ARGS]", kCallId = "[CALL_ID]";
constexpr std::string_view kStart[] = {kCalls};
constexpr std::string_view kMarks[] = {kCalls, kArgs, kCallId};
constexpr size_t kMaxName = 1024;

class Mistral final : public ToolScanner {
 public:
  explicit Mistral(IdSource ids) : ToolScanner({.drop_text_after_first_call = true}, std::move(ids)) {}

 private:
  enum State : uint8_t {
    kText,
    kAfterMark,  // '[' or a name
    kItem,       // in the list: an object has to begin
    kObject,
    kSeparator,  // in the list, after an object: ',' or ']'
    kName,
    kCallIdText,  // after [CALL_ID]: up to [ARGS]
    kArguments,
    kRaw,  // malformed, the name known: verbatim up to the next mark
  };

  void step(char c) override;
  void end() override;
  size_t held_elsewhere() const override { return begin_.held().size() + (open_ ? inner_.held().size() : 0); }
  bool in_mark(char c);
  void in_text(char c);
  void after_mark(char c);
  void in_object(char c);
  void in_name(char c);
  void begin_named();
  void in_arguments(char c);
  void malformed(char c);
  void close(bool complete);

  State state_ = kText;
  bool open_ = false;
  Matcher begin_{kCalls}, inner_{kArgs, kCallId};
  std::string name_;
  size_t id_bytes_ = 0;
  CallObject object_;
  JsonCursor cursor_;
};

// Looks for the mark that begins calls, in text and in malformed arguments. False: nothing is held, c is not part of
// it.
bool Mistral::in_mark(char c) {
  const Matcher::Step found = begin_.put(c);
  if (found == Matcher::Step::kPart) return true;
  if (found == Matcher::Step::kFull) {
    if (open_) close(false);
    for (const char m : kCalls) hold(m);
    name_.clear();
    state_ = kAfterMark;
    return true;
  }
  const std::string_view held = begin_.held();
  const bool retry = !held.empty();
  open_ ? arguments(held) : content(held);
  begin_.reset();
  return retry && in_mark(c);
}

void Mistral::in_text(char c) {
  if (in_mark(c)) return;
  open_ ? arguments({&c, 1}) : content({&c, 1});
}

// c cannot stand here.
void Mistral::malformed(char c) {
  if (!open_) release();
  inner_.reset();
  state_ = open_ ? kRaw : kText;
  in_text(c);
}

void Mistral::close(bool complete) {
  end_call(complete);
  open_ = false;
}

void Mistral::after_mark(char c) {
  if (is_space(c)) {
    if (!hold(c)) malformed(c);
  } else if (c == '[') {
    hold(c);
    state_ = kItem;
  } else {
    state_ = kName;
    in_name(c);
  }
}

void Mistral::in_object(char c) {
  const CallObject::Step result = object_.step(c);
  const bool begun = object_.begun();
  if (result == CallObject::Step::kError || (!begun && (result == CallObject::Step::kEnd || !hold(c)))) {
    return malformed(c);
  }
  if (!begun) return;
  if (!open_) begin_call(object_.name());
  open_ = true;
  arguments(object_.arguments());
  object_.arguments().clear();
  if (result != CallObject::Step::kEnd) return;
  close(object_.has_arguments());
  state_ = kSeparator;
}

void Mistral::begin_named() {
  while (!name_.empty() && is_space(name_.back())) name_.pop_back();
  begin_call(name_);
  open_ = true;
  cursor_.reset();
  state_ = kArguments;
}

void Mistral::in_name(char c) {
  const bool in_inner = !inner_.held().empty();
  if ((c == '[' || in_inner) && !name_.empty()) {
    const Matcher::Step found = inner_.put(c);
    if (found == Matcher::Step::kNo || !hold(c)) return malformed(c);
    if (found != Matcher::Step::kFull) return;
    if (inner_.index() == 0) return begin_named();
    id_bytes_ = 0;
    state_ = kCallIdText;
    return;
  }
  if (c == '{' && !name_.empty()) {
    begin_named();
    return in_arguments(c);
  }
  const bool word = c == '_' || c == '-' || c == '.' || c == ':' || c == '/' || (c >= '0' && c <= '9') ||
                    (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0;
  if ((!word && !is_space(c)) || name_.size() >= kMaxName || !hold(c)) return malformed(c);
  name_ += c;
}

void Mistral::in_arguments(char c) {
  if (!cursor_.begun() && is_space(c)) return;
  if (!cursor_.begun() && c != '{') return malformed(c);
  const JsonCursor::Step found = cursor_.step(c);
  if (found == JsonCursor::Step::kError) return malformed(c);
  arguments({&c, 1});
  if (found != JsonCursor::Step::kDone) return;
  close(true);
  state_ = kText;
}

void Mistral::step(char c) {
  switch (state_) {
    case kText:
    case kRaw:
      return in_text(c);
    case kAfterMark:
      return after_mark(c);
    case kItem:
      if (is_space(c) && hold(c)) return;
      object_.reset();
      state_ = kObject;
      return in_object(c);
    case kObject:
      return in_object(c);
    case kSeparator:
      if (is_space(c)) return;
      if (c == ',') hold(c);
      state_ = c == ',' ? kItem : kText;
      if (c != ',' && c != ']') in_text(c);
      return;
    case kName:
      return in_name(c);
    case kCallIdText: {
      const Matcher::Step found = inner_.put(c);
      if (++id_bytes_ > kMaxName || !hold(c)) return malformed(c);
      if (found == Matcher::Step::kFull && inner_.index() == 0) return begin_named();
      if (found != Matcher::Step::kNo) return;
      const bool again = !inner_.held().empty();
      inner_.reset();
      if (again) inner_.put(c);
      return;
    }
    case kArguments:
      return in_arguments(c);
  }
}

void Mistral::end() {
  if (open_) {
    arguments(begin_.held());
    close(false);
  } else {
    content(begin_.held());
    release();
  }
  begin_.reset();
  inner_.reset();
  state_ = kText;
}

std::string grammar(const GrammarAsk& ask) {
  GrammarText text(ask);
  const std::string begin = text.mark(kCalls);
  const std::string object = text.json_calls("arguments");
  const std::string more = GrammarText::group(GrammarText::row({text.literal(", "), object}), "*");
  text.rule("list", GrammarText::row({text.literal("["), object, ask.parallel ? more : "", text.literal("]")}));
  // Newer tokenizers have a token between the name and the arguments.
  const bool has_args = ask.vocabulary != nullptr && ask.vocabulary->mark_id(kArgs).has_value();
  const std::string named = text.named_calls(has_args ? text.mark(kArgs) : "");
  const std::string others = GrammarText::group(GrammarText::row({begin, named}), "*");
  text.rule("named", GrammarText::row({named, ask.parallel ? others : ""}));
  return text.calls({.begin = begin, .body = has_args ? "named" : "(list | named)", .once = true});
}

}  // namespace

const ToolFormat kMistral = {
    .name = "mistral",
    .start_marks = kStart,
    .trigger = kCalls,
    .marks = kMarks,
    .short_ids = true,
    .scanner = [](std::shared_ptr<const Tools>, ToolScanner::IdSource ids) -> std::unique_ptr<ToolScanner> {
      return std::make_unique<Mistral>(std::move(ids));
    },
    .grammar = grammar,
};

}  // namespace tern::answer
